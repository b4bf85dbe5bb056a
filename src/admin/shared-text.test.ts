import { expect, it } from "vitest";
import { SharedText } from "./shared-text.js";

it("a text that strangers ask for without pause is made a few times a second, and they share the last one", async () => {
  let made = 0;
  const shared = new SharedText(async () => String(++made));
  const texts = await Promise.all(Array.from({ length: 1_000 }, () => shared.get()));
  expect(made).toBeLessThan(20);
  expect([texts[0], texts[1]]).toEqual(["1", "2"]);
  expect(texts.at(-1)).toBe(String(made));
});

it("a text that could not be made is made again for the next stranger", async () => {
  let made = 0;
  const shared = new SharedText(async () => {
    made++;
    if (made <= 8) throw new Error("not now");
    return "text";
  });
  for (let i = 0; i < 8; i++) await expect(shared.get()).rejects.toThrow("not now");
  expect(await shared.get()).toBe("text");
});
