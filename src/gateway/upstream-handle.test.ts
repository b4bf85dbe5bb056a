import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { ServerEntry } from "../storage/index.js";
import type { Catalogue, Upstream } from "../upstream/index.js";
import type { SuspendedCalls } from "./relay/suspended-calls.js";
import { UpstreamHandle, type UpstreamHandleServices } from "./upstream-handle.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** How often a server is read in ten minutes in which that fails each time. */
async function attempts(entry: ServerEntry, fails: "server" | "store"): Promise<number> {
  let count = 0;
  const upstream = {
    onChange: () => () => {},
    close: async () => {},
    catalogue: async () => {
      count++;
      if (fails === "server") throw new Error("connection refused");
      return {} as Catalogue;
    },
  } as unknown as Upstream;
  const services = {
    connect: () => upstream,
    accept: () => Promise.reject(new Error("the store does not answer")),
    remembered: async () => undefined,
    failed: () => {},
  } as unknown as UpstreamHandleServices;
  const link = new UpstreamHandle("notes", entry, true, {} as SuspendedCalls, services);
  await link.refresh();
  await vi.advanceTimersByTimeAsync(600_000);
  await link.close();
  return count;
}

it("tries a server again within five seconds of each attempt, and within one where only the store failed", async () => {
  const url = { url: "http://127.0.0.1:1/mcp" };
  expect(await attempts(url, "server")).toBeGreaterThan(110);
  expect(await attempts(url, "store")).toBeGreaterThan(590);
  expect(await attempts({ command: "server" }, "store")).toBeGreaterThan(590);
});

it("starts a process that fails no more than once a minute in the end", async () => {
  expect(await attempts({ command: "server" }, "server")).toBeLessThan(20);
});
