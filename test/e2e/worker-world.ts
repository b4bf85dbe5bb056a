// A gateway with two workers, started by the built command, for attacks on what one worker knows and another one does not.
// Each request has a connection of its own, and the workers take connections in turn.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, vi } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { openStorage, type ServerEntry, type Storage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { root, type Serving, serve } from "./serving.js";

const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"notes.write", resource) unless { context.approved };
`;
export const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};
export const INITIALIZE = {
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
};
export const JSON_TYPE = { "content-type": "application/json", accept: "application/json, text/event-stream" };
export const WAIT = { timeout: 30_000, interval: 200 };
export const ALL = ["invoke(*)", "read(*)", "list"];
/** Requests in a row: both workers answer some of them. */
const TRIES = 6;
const FIXTURE = join(root, "src", "upstream", "fixtures", "server.mjs");

export interface Answer {
  readonly status: number;
  readonly session: string | undefined;
  readonly text: string;
}
type Headers = Readonly<Record<string, string>>;

/** The application `shop` has a server that counts (`notes`) and one that sends requests to clients (`asks`). */
export class Workers {
  readonly dir = mkdtempSync(join(tmpdir(), "portcullis-worker-attacks-"));
  shop!: Counting;
  storage!: Storage;
  serving!: Serving;

  async open(args: readonly string[] = []): Promise<void> {
    this.shop = await counting("shop", (server, calls) => {
      const reached = (what: string): string => {
        calls.push(what);
        return what;
      };
      const region = { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } } as const;
      for (const name of ["seen", "hidden"])
        server.tool(name, "does it", region, () => reached(name), { noGuardrailRequired: true });
      server
        .template("note://shop/by-id/{id}", "by id", () => reached("template"), {
          complete: { id: () => [reached("template completion")] },
        })
        .prompt("greet", "greets", { name: {} }, () => reached("prompt"), {
          complete: { name: () => [reached("prompt completion")] },
        });
    });
    mkdirSync(join(this.dir, "policy"), { mode: 0o700 });
    writeFileSync(join(this.dir, "policy", "test.cedar"), POLICY);
    this.storage = await openStorage(`sqlite:${join(this.dir, "portcullis.db")}`);
    const asks = { command: process.execPath, args: [FIXTURE, "asks"], prefix: "asks", noGuardrail: ["*"] };
    await this.storage.applications.put("shop", { servers: { notes: this.notes, asks } }, "test");
    const { token } = await this.keyOf("shop", "first");
    const fixed = ["--workers", "2", "--challenge-wait", "0", "--log-level", "error"];
    this.serving = await serve([...fixed, ...args], { dir: this.dir });
    // The second worker starts when the first one serves.
    await vi.waitFor(
      async () => {
        await this.call(token, "notes.read", { text: "x" });
        const hasServed = [1, 2].map((place) => this.ledgerOf(place).includes("tools/call"));
        expect(hasServed).toEqual([true, true]);
      },
      { timeout: 90_000, interval: 100 },
    );
  }

  get notes(): ServerEntry {
    const forward = ["_meta/com.example/*", "tenant"];
    return { url: this.shop.url, prefix: "notes", noGuardrail: ["*"], forward };
  }

  async close(): Promise<void> {
    await this.serving?.stop();
    await this.storage?.close();
    await this.shop?.close();
    rmSync(this.dir, { recursive: true, force: true });
  }

  ledgerOf(place: number): string {
    const at = join(this.dir, "ledger", `worker-${place}`);
    const names = existsSync(at) ? readdirSync(at).filter((name) => name.endsWith(".ndjson")) : [];
    return names.map((name) => readFileSync(join(at, name), "utf8")).join("");
  }

  async keyOf(
    app: string,
    agent: string,
    permissions: readonly string[] = ALL,
    expiresAt?: number,
  ): Promise<{ id: string; token: string }> {
    const asked = { app, agent, name: agent, permissions: [...permissions] };
    const made = await createKey(this.storage.keys, expiresAt === undefined ? asked : { ...asked, expiresAt }, "test");
    return { id: made.key.id, token: made.token };
  }

  /** `fetch` sets some headers itself and keeps connections, so the request is made by hand. */
  post(path: string, token: string | undefined, headers: Headers, body: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const all = { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), ...headers };
      const url = new URL(path, this.serving.url);
      const asked = request(url, { method: "POST", headers: all, agent: false }, (response) => {
        let text = "";
        const session = response.headers["mcp-session-id"] as string | undefined;
        response.on("data", (chunk: Buffer) => (text += chunk.toString("utf8")));
        response.on("end", () => resolve({ status: response.statusCode as number, session, text }));
      });
      asked.on("error", reject);
      asked.end(body);
    });
  }

  send(token: string | undefined, body: object, headers: Headers = {}): Promise<Answer> {
    return this.post("/mcp", token, { ...JSON_TYPE, ...headers }, JSON.stringify({ jsonrpc: "2.0", ...body }));
  }

  /** One request of 2026-07-28. */
  ask(
    token: string | undefined,
    method: string,
    params: Record<string, unknown>,
    headers: Headers = {},
    meta: object = {},
  ): Promise<Answer> {
    const name = params.name ?? params.uri;
    const named: Headers = typeof name === "string" ? { "mcp-name": name } : {};
    const modern = { "mcp-protocol-version": "2026-07-28", "mcp-method": method, ...named };
    const body = { id: 1, method, params: { ...params, _meta: { ...META, ...meta } } };
    return this.send(token, body, { ...modern, ...headers });
  }

  call(token: string | undefined, name: string, args: object, more: object = {}, meta: object = {}): Promise<Answer> {
    return this.ask(token, "tools/call", { name, arguments: args, ...more }, {}, meta);
  }

  /** A key reaches other processes a moment after it was added. */
  async served(token: string): Promise<void> {
    await expect.poll(() => statuses(() => this.call(token, "notes.read", { text: "x" })), WAIT).toEqual([200]);
  }
}

/** The same attack several times in a row. */
export async function repeated<T>(attack: () => Promise<T>, times = TRIES): Promise<T[]> {
  const answers: T[] = [];
  for (let i = 0; i < times; i++) answers.push(await attack());
  return answers;
}

/** Which HTTP statuses the attack was answered with. */
export async function statuses(attack: () => Promise<Answer>): Promise<number[]> {
  return [...new Set((await repeated(attack)).map(({ status }) => status))];
}
