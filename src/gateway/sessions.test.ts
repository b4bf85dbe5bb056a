import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { RetainedBytes } from "../mcp/index.js";
import { DEFAULT_GATEWAY_LIMITS } from "../pipeline/types.js";
import { Sessions } from "./sessions.js";

const NO_STORE = {
  save: async () => {},
  change: async () => {},
  load: async () => undefined,
  touch: () => {},
  remove: () => {},
};

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("keeps a session that is in use alive in the store, and lets an idle one expire [H12]", () => {
  const touched: string[][] = [];
  const limits = { ...DEFAULT_GATEWAY_LIMITS, sessionIdleMs: 40_000 };
  const sessions = new Sessions(limits, new RetainedBytes(limits), undefined, {
    ...NO_STORE,
    touch: (ids) => touched.push([...ids]),
  });
  const principal = { app: "team", agent: "one", scope: [], via: "key" };
  const used = sessions.open(principal);
  const idle = sessions.open({ ...principal, agent: "two" });
  vi.advanceTimersByTime(10_000);
  sessions.find(used.id, principal);
  vi.advanceTimersByTime(10_000);
  expect(touched).toEqual([[used.id, idle.id], [used.id]]);
  vi.advanceTimersByTime(31_000);
  expect(sessions.get(idle.id)).toBeUndefined();
  sessions.closeAll();
});
