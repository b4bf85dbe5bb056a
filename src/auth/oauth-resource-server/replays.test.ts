import { describe, expect, it } from "vitest";
import { onceHere } from "./proof.js";

describe("what was used", () => {
  it("what was used is known until its time is over", () => {
    let now = 0;
    const once = onceHere({ now: () => now });
    expect(once("a:1", 100)).toBe(true);
    now = 99;
    expect(once("a:1", 100)).toBe(false);
    expect(once("a:2", 100)).toBe(true);
    now = 100;
    expect(once("a:1", 100)).toBe(true);
    expect(once("a:2", 100)).toBe(false);
  });

  it("never forgets a used proof when the cache is full: it rejects new proofs until entries expire", () => {
    let now = 0;
    const once = onceHere({ now: () => now, max: 3, maxOfOne: 2 });
    for (const id of ["a:1", "a:2", "b:1"]) expect(once(id, 100)).toBe(true);
    expect(() => once("c:1", 100)).toThrow(expect.objectContaining({ type: "Unavailable" }));
    for (const id of ["a:1", "a:2", "b:1"]) expect(once(id, 100)).toBe(false);
    now = 100;
    expect(once("c:1", 100)).toBe(true);
  });

  it("what was used of one key leaves room for others", () => {
    let now = 0;
    const once = onceHere({ now: () => now, max: 100, maxOfOne: 2 });
    for (const id of ["a:1", "a:2"]) expect(once(id, 100)).toBe(true);
    expect(() => once("a:3", 100)).toThrow(expect.objectContaining({ type: "TooMany" }));
    expect(once("b:1", 100)).toBe(true);
    now = 100;
    for (const id of ["a:3", "a:4"]) expect(once(id, 100)).toBe(true);
    expect(() => once("a:5", 100)).toThrow(expect.objectContaining({ type: "TooMany" }));
  });
});
