// Time is given, not measured: every step names the moment it happens at.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { noteActive, readWithin, TimeShare, timeShareOf } from "./time.js";

/** Far apart, so that no test sees the activity of another. */
let start = 1e9;
beforeEach(() => {
  start += 1e6;
});
afterEach(() => vi.useRealTimers());

describe("the time that reading for one application takes", () => {
  it("costs no pause while no other application is active", () => {
    const share = new TimeShare("alone");
    // Another test of this process may have been active last.
    noteActive("alone", start - 10_000);
    for (let i = 1; i <= 100; i++) expect(share.spend(50, 65_536, start + i * 50)).toBe(0);
  });

  it("the time that reading for one application takes is held to a third while another application is active [U12]", () => {
    const share = new TimeShare("noisy");
    let now = start;
    let busyMs = 0;
    while (now < start + 10_000) {
      noteActive("quiet", now);
      busyMs += 4;
      now += 4;
      now += share.spend(4, 0, now);
    }
    expect(busyMs).toBeGreaterThan(2_500);
    expect(busyMs).toBeLessThan(3_700);
  });

  it("counts the bytes too, so that cheap chunks without end are held as well", () => {
    const share = new TimeShare("noisy");
    noteActive("quiet", start);
    let pauses = 0;
    for (let i = 0; i < 1_000; i++) if (share.spend(0, 65_536, start + i * 0.04) > 0) pauses++;
    expect(pauses).toBeGreaterThan(0);
  });

  it("the time that reading for one application takes never stops an application for more than half a second", () => {
    const share = new TimeShare("noisy");
    noteActive("quiet", start);
    expect(share.spend(60_000, 0, start)).toBe(500);
  });

  it("the time that reading for one application takes is one account for all servers of an application", () => {
    expect(timeShareOf("shop")).toBe(timeShareOf("shop"));
    expect(timeShareOf("shop")).not.toBe(timeShareOf("blog"));
  });
});

it("pauses the source that took too long and resumes it later", () => {
  vi.useFakeTimers();
  const share = timeShareOf("noisy");
  const seen: string[] = [];
  const source = { pause: () => seen.push("pause"), resume: () => seen.push("resume") };
  noteActive("noisy");
  noteActive("quiet");
  readWithin(share, source, 200 * 65_536, () => seen.push("read"));
  expect(seen).toEqual(["read", "pause"]);
  vi.runAllTimers();
  expect(seen).toEqual(["read", "pause", "resume"]);
});
