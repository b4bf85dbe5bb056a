// A call that is denied, challenged, too large, invalid or cannot be recorded has no effect: shown on a server that
// counts what reached it, over every transport, in both eras, for every method.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { request as httpRequest } from "undici";
import { afterEach, describe, expect, it } from "vitest";
import { type Client, connect } from "../../src/mcp/client/index.js";
import { listenMemory } from "../../src/mcp/transports/index.js";
import { brokenLedger, countingServer, POLICY } from "./counting.js";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-effect-"));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

interface Place {
  client: Client;
  reached: () => Record<string, number>;
}

type Revision = "2026-07-28" | "2025-11-25";
type TransportName = "memory" | "stdio" | "tcp" | "websocket" | "http";

async function start(transport: TransportName, revision: Revision, broken: boolean): Promise<Place> {
  if (transport === "stdio") return startStdio(revision, broken);
  const { server, reached } = countingServer(broken ? { ledger: await brokenLedger(folder()) } : {});
  cleanups.push(() => server.close());
  const target =
    transport === "memory" ? await listenMemory(server.handler) : (await server.listen({ transport, port: 0 })).url;
  const client = await connect(target, { revision });
  cleanups.push(() => client.close());
  return { client, reached: () => Object.fromEntries(reached) };
}

async function startStdio(revision: Revision, broken: boolean): Promise<Place> {
  const dir = folder();
  const counts = join(dir, "counts.json");
  writeFileSync(counts, "{}");
  const script = join(import.meta.dirname, "stdio-counting.mjs");
  const args = [script, counts, dir, POLICY, broken ? "broken" : "whole"];
  const client = await connect({ command: process.execPath, args }, { revision });
  cleanups.push(() => client.close());
  return { client, reached: () => JSON.parse(readFileSync(counts, "utf8")) as Record<string, number> };
}

/** One attempt by each method on the part of the server that `kind` names. Whatever it answers, or throws. */
const ATTEMPTS: Readonly<Record<string, (client: Client, kind: string) => Promise<unknown>>> = {
  "tools/call": (client, kind) => client.callTool(`${kind}.write`, { text: "x" }),
  "resources/read": (client, kind) => client.readResource(`count://${kind}`),
  "prompts/get": (client, kind) => client.getPrompt(kind, {}),
  "completion/complete": (client, kind) =>
    client.complete({ type: "ref/prompt", name: kind }, { name: "name", value: "" }),
};

const outcome = (attempt: Promise<unknown>): Promise<"answered" | "refused"> =>
  attempt.then(
    (answer) => ((answer as { isError?: boolean }).isError === true ? "refused" : "answered"),
    () => "refused",
  );

const transports: TransportName[] = ["memory", "stdio", "tcp", "websocket", "http"];
const revisions: Revision[] = ["2026-07-28", "2025-11-25"];
const places = transports.flatMap((transport) => revisions.map((revision) => [transport, revision] as const));

describe.each(places)("over %s in %s", (transport, revision) => {
  it("a permitted call reaches the server exactly once", async () => {
    const { client, reached } = await start(transport, revision, false);
    for (const attempt of Object.values(ATTEMPTS)) expect(await outcome(attempt(client, "open"))).toBe("answered");
    expect(reached()).toEqual({
      "tools/call open": 1,
      "resources/read open": 1,
      "prompts/get open": 1,
      "completion/complete open": 1,
    });
  });

  it("a denied or challenged call reaches no server [H11 G8]", async () => {
    const { client, reached } = await start(transport, revision, false);
    for (const attempt of Object.values(ATTEMPTS)) {
      expect(await outcome(attempt(client, "closed"))).toBe("refused");
    }
    for (const method of ["tools/call", "resources/read", "prompts/get"]) {
      expect(await outcome((ATTEMPTS[method] as (typeof ATTEMPTS)[string])(client, "asked"))).toBe("refused");
    }
    expect(await outcome(client.callTool("bare.write", { text: "x" }))).toBe("refused");
    expect(reached()).toEqual({});
  });

  it("a call that is invalid, unknown or too large reaches no server, and the next call is served [U10 H11]", async () => {
    const { client, reached } = await start(transport, revision, false);
    const bad = [
      client.callTool("open.write", {}),
      client.callTool("open.write", { text: 5 }),
      client.callTool("open.write", { text: "x", more: 1 }),
      client.callTool("open.write", { text: "x".repeat(1001) }),
      client.callTool("nobody.write", { text: "x" }),
      client.readResource("count://nobody"),
      client.getPrompt("nobody", {}),
    ].map(outcome);
    for (const attempt of bad) expect(await attempt).toBe("refused");
    expect(await outcome(client.callTool("open.write", { text: "x".repeat(5 * 1024 * 1024) }))).toBe("refused");
    expect(reached()).toEqual({});
    expect(await outcome(client.callTool("open.write", { text: "x" }))).toBe("answered");
  });

  it("a call that cannot be recorded reaches no server [G8]", async () => {
    const { client, reached } = await start(transport, revision, true);
    for (const attempt of Object.values(ATTEMPTS)) expect(await outcome(attempt(client, "open"))).toBe("refused");
    expect(reached()).toEqual({});
  });
});

describe("over the HTTP door that speaks no MCP", () => {
  const post = async (url: string, name: string, body: string) => {
    const response = await httpRequest(new URL(`/tools/${name}`, url), {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    });
    return { status: response.statusCode, body: (await response.body.json()) as { error?: { code: string } } };
  };

  it("refused calls of the REST endpoint reach no server, and return a status and the one error object [G3]", async () => {
    const { server, reached } = countingServer();
    cleanups.push(() => server.close());
    const { url } = await server.listen({ transport: "http", port: 0 });
    expect(await post(url, "open.write", '{"text":"x"}')).toMatchObject({ status: 200, body: { content: [{}] } });
    expect([...reached]).toEqual([["tools/call open", 1]]);
    expect(await post(url, "closed.write", '{"text":"x"}')).toMatchObject({
      status: 403,
      body: { error: { code: "POLICY_DENY" } },
    });
    expect(await post(url, "asked.write", '{"text":"x"}')).toMatchObject({
      status: 403,
      body: { error: { code: "CHALLENGE" } },
    });
    expect(await post(url, "open.write", "{}")).toMatchObject({
      status: 400,
      body: { error: { code: "INVALID_ARGS" } },
    });
    expect(await post(url, "open.write", "[]")).toMatchObject({ status: 400 });
    expect(await post(url, "open.write", '{"text":"a","text":"b"}')).toMatchObject({
      status: 400,
      body: { error: { code: "PARSE_ERROR" } },
    });
    expect(await post(url, "nobody", "{}")).toMatchObject({ status: 404, body: { error: { code: "TOOL_NOT_FOUND" } } });
    expect([...reached]).toEqual([["tools/call open", 1]]);
  });

  it("a call of the REST endpoint that cannot be recorded returns 503 and reaches no server", async () => {
    const { server, reached } = countingServer({ ledger: await brokenLedger(folder()) });
    cleanups.push(() => server.close());
    const { url } = await server.listen({ transport: "http", port: 0 });
    expect(await post(url, "open.write", '{"text":"x"}')).toMatchObject({
      status: 503,
      body: { error: { code: "AUDIT_FAILURE" } },
    });
    expect(reached.size).toBe(0);
  });
});
