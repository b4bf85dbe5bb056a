import { expect, it } from "vitest";
import { compareVersions, isVersion } from "./home.js";

it("orders versions as semver does", () => {
  const order = [
    "0.9.9",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
  ];
  for (const [i, a] of order.entries()) {
    for (const [j, b] of order.entries()) expect(Math.sign(compareVersions(a, b)), `${a} ${b}`).toBe(Math.sign(i - j));
  }
});

it("accepts only semantic versions", () => {
  for (const text of ["1.2.3", "1.2.3-beta.1"]) expect(isVersion(text), text).toBe(true);
  const others = [
    "",
    "1.2",
    "01.2.3",
    "v1.2.3",
    "1.2.3/..",
    "../1.2.3",
    "1.2.3 ",
    "1.2.3\n",
    "1.2.3+build",
    `1.2.3-${"a".repeat(99)}`,
    1,
    undefined,
  ];
  for (const text of others) expect(isVersion(text), String(text)).toBe(false);
});
