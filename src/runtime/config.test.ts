import { readFileSync, writeFileSync } from "node:fs";
import { Command } from "commander";
import { describe, expect, it } from "vitest";
import { DEFAULT_GATEWAY_LIMITS } from "../gateway/index.js";
import { RetainedBytes } from "../mcp/index.js";
import { addSettings, configurationPage, limitsOf, parserOf, type Settings, settingsOf } from "./config.js";
import { runtimeOptions } from "./serve.js";

const MIB = 1024 * 1024;

function settings(args: readonly string[], env: NodeJS.ProcessEnv = {}, file: Partial<Settings> = {}): Settings {
  const command = addSettings(new Command("serve"))
    .exitOverride()
    .configureOutput({ writeErr: () => {} });
  command.parse(["node", "serve", ...args]);
  return settingsOf(command, env, file);
}

describe("settings", () => {
  it("takes a flag before a variable, a variable before the file, and the file before the default", () => {
    const file = { toolTimeout: 3, logLevel: "error", port: 3, pageSize: 3 } as const;
    const env = { PORTCULLIS_TOOL_TIMEOUT: "2", PORTCULLIS_LOG_LEVEL: "info", PORTCULLIS_HTTP_PORT: "2" };
    expect(settings(["--tool-timeout", "1"], env, file)).toMatchObject({
      toolTimeout: 1,
      logLevel: "info",
      port: 2,
      pageSize: 3,
      host: "127.0.0.1",
      challengeWait: 45,
      compressLedger: true,
    });
  });

  it("reads switches and lists from flags and variables", () => {
    const given = settings(["--no-compress-ledger", "--no-local-access", "--allow-host", "a", "b"], {
      PORTCULLIS_OBSERVE: "true",
      PORTCULLIS_MODULES: "",
      PORTCULLIS_ALLOW_ORIGIN: "https://a.example,https://b.example",
    });
    expect(given).toMatchObject({
      compressLedger: false,
      localAccess: false,
      allowHost: ["a", "b"],
      observe: true,
      modules: [],
      allowOrigin: ["https://a.example", "https://b.example"],
    });
    expect(given.keepArguments).toBeUndefined();
  });

  it("refuses values that are not allowed and names the allowed ones", () => {
    expect(() => settings(["--log-level", "loud"])).toThrow(/Allowed choices are debug, info, notice/);
    expect(() => settings(["--memory-budget", "10"])).toThrow(/must be a whole number from 64 to/);
    expect(() => settings(["--port", ""])).toThrow(/must be a whole number from 0 to 65535/);
    expect(() => settings([], { PORTCULLIS_TOOL_TIMEOUT: "soon" })).toThrow(
      "PORTCULLIS_TOOL_TIMEOUT must be a number from 0 to 3600",
    );
    expect(() => settings([], { PORTCULLIS_LOG_LEVEL: "loud" })).toThrow(/must be one of debug, info, notice/);
    expect(() => settings([], { PORTCULLIS_OBSERVE: "yes" })).toThrow(/must be true or false/);
    expect(() => parserOf("storageListen")("mysql://user:password@host/db")).toThrow(/^(?!.*password).*postgres:\/\//);
  });

  it("reaches every listener, the bounds of calls and the retained bytes", () => {
    const given = settings([
      ...["--memory-budget", "100", "--address-connections", "7", "--max-message-bytes", "2048"],
      ...["--tcp-port", "0", "--ws-port", "0", "--tool-timeout", "2", "--validation-timeout", "0.5"],
      ...["--storage-connections", "3", "--storage-listen", "none"],
    ]);
    const { limits, http, tcp, websocket, storageConnections, storageListen } = runtimeOptions("/tmp", given);
    expect(limits).toEqual({
      maxRetainedBytes: 100 * MIB,
      maxAppRetainedBytes: 40 * MIB,
      maxAgentRetainedBytes: 20 * MIB,
      challengeWaitMs: 45_000,
      toolTimeoutMs: 2_000,
      validationTimeoutMs: 500,
    });
    for (const listener of [http, tcp, websocket]) {
      expect(listener?.limits).toEqual({ maxConnectionsPerAddress: 7, maxMessageBytes: 2_048 });
    }
    expect([storageConnections, storageListen]).toEqual([3, "none"]);
  });

  it("gives the default memory budget the default shares, and the smallest one room for the largest message", () => {
    const { maxRetainedBytes, maxAppRetainedBytes, maxAgentRetainedBytes } = DEFAULT_GATEWAY_LIMITS;
    expect(limitsOf({ memoryBudget: 160 })).toEqual({ maxRetainedBytes, maxAppRetainedBytes, maxAgentRetainedBytes });
    const least = new RetainedBytes({ ...DEFAULT_GATEWAY_LIMITS, ...limitsOf({ memoryBudget: 64 }) });
    expect(least.of({ app: "a", agent: "b" }).take(2 * 4 * MIB + 16 * 1024)).toBe(true);
  });

  it("generates docs/reference/configuration.md as published (UPDATE_SCHEMA=1 writes it)", () => {
    const page = new URL("../../docs/reference/configuration.md", import.meta.url);
    if (process.env.UPDATE_SCHEMA === "1") writeFileSync(page, configurationPage());
    expect(readFileSync(page, "utf8")).toBe(configurationPage());
  });
});
