import { expect, it } from "vitest";
import { Breaker } from "./breaker.js";
import { DEFAULT_UPSTREAM_LIMITS, DEFAULT_UPSTREAM_TIMEOUTS } from "./types.js";

it("admits a call within three seconds of an outage, however long the outage was", () => {
  let now = 0;
  const { failuresToOpen } = DEFAULT_UPSTREAM_LIMITS;
  const breaker = new Breaker({ ...DEFAULT_UPSTREAM_TIMEOUTS, failuresToOpen }, () => now);
  for (; now < 600_000; now += 100) if (breaker.admit()) breaker.failure();
  const endedAt = now;
  while (!breaker.admit()) now += 10;
  expect(now - endedAt).toBeLessThan(3_000);
  breaker.success();
  expect(breaker.state).toBe("closed");
});

it("admits few calls during an outage", () => {
  let now = 0;
  const breaker = new Breaker({ ...DEFAULT_UPSTREAM_TIMEOUTS, failuresToOpen: 5 }, () => now);
  let admitted = 0;
  for (; now < 600_000; now += 10) {
    if (!breaker.admit()) continue;
    admitted++;
    breaker.failure();
  }
  expect(admitted).toBeLessThan(400);
});

it("admits the next call when the one that probes is not answered for two seconds", () => {
  let now = 0;
  const breaker = new Breaker({ ...DEFAULT_UPSTREAM_TIMEOUTS, failuresToOpen: 1 }, () => now);
  breaker.failure();
  while (!breaker.admit()) now += 10;
  now += 1_990;
  expect(breaker.admit()).toBe(false);
  now += 10;
  expect(breaker.admit()).toBe(true);
  expect(breaker.admit()).toBe(false);
  breaker.success();
  expect(breaker.state).toBe("closed");
});
