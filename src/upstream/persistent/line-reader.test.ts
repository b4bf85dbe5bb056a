import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it, vi } from "vitest";
import { ByteBudget } from "../../mcp/index.js";
import { UpstreamLineReader } from "./lines.js";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

it("costs about as much as it holds when a server sends its line byte by byte [U12]", () => {
  const seen: string[] = [];
  const reader = new UpstreamLineReader(1024 * 1024, {
    message: (text) => seen.push(text),
    malformed: () => {},
    oversized: () => {},
  });
  const live = (): number => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const before = live();
  const bytes = 1000;
  // Just under the number of pieces that used to be joined, each with a buffer of its own.
  for (let i = 0; i < bytes; i++) reader.push(Buffer.allocUnsafeSlow(1).fill(0x78));
  expect(live() - before).toBeLessThan(50 * bytes);
  reader.push(Buffer.from("\n"));
  expect(seen).toEqual(["x".repeat(bytes)]);
});

it("keeps both ends of a line over the limit, however it is cut into pieces", () => {
  const line = `{"id":7,${"y".repeat(5_000)}"end":1}`;
  for (const size of [1, 7, 4_096, line.length]) {
    const hints: string[] = [];
    const reader = new UpstreamLineReader(1_000, {
      message: () => expect.unreachable(),
      malformed: () => expect.unreachable(),
      oversized: (hint) => hints.push(hint),
    });
    for (let i = 0; i < line.length; i += size) reader.push(Buffer.from(line.slice(i, i + size)));
    reader.push(Buffer.from("\n"));
    expect(hints).toHaveLength(1);
    expect(hints[0]).toMatch(/^\{"id":7,y/);
    expect(hints[0]).toMatch(/"end":1\}$/);
  }
});

it("charges an unfinished line to its budget, and gives up a line that the budget does not allow", () => {
  const budget = new ByteBudget(2_000);
  const seen: string[] = [];
  let given = 0;
  const reader = new UpstreamLineReader(
    1024 * 1024,
    { message: (text) => seen.push(text), malformed: () => {}, oversized: () => given++ },
    budget,
  );
  reader.push(Buffer.from("x".repeat(600)));
  expect(budget.used).toBeGreaterThanOrEqual(600);
  reader.push(Buffer.from("x".repeat(600)));
  reader.push(Buffer.from("x".repeat(5_000)));
  expect(budget.used).toBe(0);
  reader.push(Buffer.from("\nnext\n"));
  expect({ seen, given }).toEqual({ seen: ["next"], given: 1 });
  reader.push(Buffer.from("rest"));
  reader.stop();
  expect(budget.used).toBe(0);
});

it("skips blank lines without a search for each of them", () => {
  const seen: string[] = [];
  const reader = new UpstreamLineReader(1024 * 1024, {
    message: (text) => seen.push(text),
    malformed: () => expect.unreachable(),
    oversized: () => expect.unreachable(),
  });
  const chunk = Buffer.from(`${"\n".repeat(30_000)}one\n${"\r\n".repeat(15_000)}two\r\n\n\nthr`);
  const searches = vi.spyOn(chunk, "indexOf");
  reader.push(chunk);
  reader.push(Buffer.from("ee\n\n"));
  expect(seen).toEqual(["one", "two", "three"]);
  expect(searches.mock.calls.length).toBeLessThan(10);
});
