// How much of the product one call passes: the files of src of which a function runs between the socket and a stdio server.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, it, vi } from "vitest";
import { root } from "./serving.js";

const main = join(root, "dist", "cli", "main.js");
const RULES = '@id("all") permit (principal, action, resource);\n';
/** A server that answers everything at once. */
const SERVER = `
import { createInterface } from "node:readline";
const tool = { name: "echo", inputSchema: { type: "object" } };
const results = {
  initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "e", version: "1" } },
  "tools/list": { tools: [tool] },
  "tools/call": { content: [{ type: "text", text: "here" }] },
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const result = results[method];
  const answer = result ? { result } : { error: { code: -32601, message: "no" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
});
`;

/** Only ever lowered; the aim is 35. */
const MAX_FILES = 92;

it("passes no more files than the bound between the socket and a stdio server in a tools/call", {
  timeout: 120_000,
}, async () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-path-"));
  const executed = join(dir, "executed");
  writeFileSync(join(dir, "server.mjs"), SERVER);
  writeFileSync(join(dir, "all.cedar"), RULES);
  const server = { command: process.execPath, args: [join(dir, "server.mjs")], noGuardrail: ["*"] };
  const document = { applications: { local: { servers: { echo: server }, policies: ["all.cedar"] } } };
  writeFileSync(join(dir, "apps.json"), JSON.stringify(document));
  const flags = ["--json", "--dir", join(dir, "data")];
  const env = { ...process.env, EXECUTED_FILES: executed, PORTCULLIS_HOME: dir };
  const run = (...args: string[]) => spawn(process.execPath, [...args], { env, stdio: ["ignore", "pipe", "pipe"] });
  const applied = run(main, ...flags, "app", "apply", join(dir, "apps.json"), "--yes");
  let said = "";
  applied.stderr.on("data", (chunk) => (said += chunk));
  applied.stdout.on("data", (chunk) => (said += chunk));
  expect(await new Promise((resolve) => applied.on("exit", resolve)), said).toBe(0);
  const hook = pathToFileURL(join(import.meta.dirname, "executed-files.mjs")).href;
  const gateway = run("--import", hook, main, ...flags, "serve", "--port", "0", "--admin-port", "0");
  try {
    let out = "";
    let err = "";
    gateway.stdout.on("data", (chunk) => (out += chunk));
    gateway.stderr.on("data", (chunk) => (err += chunk));
    await vi.waitFor(() => expect(out.trimEnd(), err).toMatch(/}$/), 60_000);
    const url = JSON.parse(out).urls[0] as string;
    const call = async (): Promise<any> => {
      const response = await fetch(url, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          "mcp-protocol-version": "2026-07-28",
          "mcp-method": "tools/call",
          "mcp-name": "echo",
        },
        body: JSON.stringify({
          jsonrpc: "2.0",
          id: 1,
          method: "tools/call",
          params: {
            name: "echo",
            arguments: {},
            _meta: {
              "io.modelcontextprotocol/protocolVersion": "2026-07-28",
              "io.modelcontextprotocol/clientCapabilities": {},
            },
          },
        }),
      });
      return response.json();
    };
    const take = async (round: number): Promise<string[]> => {
      gateway.kill("SIGUSR2");
      await vi.waitFor(() => expect(existsSync(`${executed}.${round}`)).toBe(true), 60_000);
      return readFileSync(`${executed}.${round}`, "utf8").split("\n");
    };
    await vi.waitFor(
      async () => expect((await call()).result?.content, err).toEqual([{ type: "text", text: "here" }]),
      {
        timeout: 30_000,
        interval: 200,
      },
    );
    const counts: string[][] = [];
    for (let round = 0; round < 6; round += 2) {
      await take(round);
      await call();
      counts.push(await take(round + 1));
    }
    // Timers of the process run beside a call: what all measurements share is the call.
    const passed = counts.reduce((all, files) => all.filter((file) => files.includes(file)));
    expect(passed).toContain("pipeline/call.js");
    expect(passed.length, passed.sort().join("\n")).toBeLessThanOrEqual(MAX_FILES);
  } finally {
    gateway.kill("SIGTERM");
    await new Promise((resolve) => gateway.on("exit", resolve));
    rmSync(dir, { recursive: true, force: true });
  }
});
