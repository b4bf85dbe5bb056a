import { describe, expect, it } from "vitest";
import { RetainedBytes } from "../mcp/index.js";
import { DEFAULT_GATEWAY_LIMITS } from "../gateway/index.js";
import { runtimeOptions, type ServeApplicationsOptions } from "./serve.js";
import { connectionCount, listenAddress, megabytes, poolSize, retainedLimits } from "./serve-limits.js";

const MIB = 1024 * 1024;
const OPTIONS = {
  host: "127.0.0.1",
  port: 0,
  adminPort: 0,
  tcpPort: 0,
  wsPort: 0,
  challengeWait: 0,
  logLevel: "error",
};

describe("the limits of a serving process", () => {
  it("are set for every listener and for all retained bytes", () => {
    const given = { ...OPTIONS, memoryBudget: 100, addressConnections: 7 } as unknown as ServeApplicationsOptions;
    const { limits, http, tcp, websocket } = runtimeOptions("/tmp", given);
    expect(limits).toMatchObject({ maxRetainedBytes: 100 * MIB, maxAppRetainedBytes: 40 * MIB });
    for (const listener of [http, tcp, websocket]) {
      expect(listener).toMatchObject({ limits: { maxConnectionsPerAddress: 7 } });
    }
  });

  it("give the default budget the default shares, and the least one room for the largest message", () => {
    const { maxRetainedBytes, maxAppRetainedBytes, maxAgentRetainedBytes } = DEFAULT_GATEWAY_LIMITS;
    expect(retainedLimits({ memoryBudget: 160 })).toEqual({
      maxRetainedBytes,
      maxAppRetainedBytes,
      maxAgentRetainedBytes,
    });
    const least = new RetainedBytes({ ...DEFAULT_GATEWAY_LIMITS, ...retainedLimits({ memoryBudget: 64 }) });
    expect(least.of({ app: "a", agent: "b" }).take(2 * 4 * MIB + 16 * 1024)).toBe(true);
  });

  it("are refused when they are not numbers in range", () => {
    expect(() => megabytes("10")).toThrow(/at least 64/);
    expect(() => megabytes("1.5")).toThrow(/at least 64/);
    expect(() => connectionCount("0")).toThrow(/from 1 to/);
    expect([megabytes("64"), connectionCount("5")]).toEqual([64, 5]);
    expect(() => poolSize("1")).toThrow(/from 2 to 100/);
    expect(() => listenAddress("mysql://user:password@host/db")).toThrow(/^(?!.*password).*postgres:\/\//);
    expect([poolSize("2"), listenAddress("none")]).toEqual([2, "none"]);
  });

  it("reach the store: its connections and the address to listen at", () => {
    const given = { ...OPTIONS, storageConnections: 3, storageListen: "none" } as unknown as ServeApplicationsOptions;
    expect(runtimeOptions("/tmp", given)).toMatchObject({ storageConnections: 3, storageListen: "none" });
  });
});
