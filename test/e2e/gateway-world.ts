// A whole gateway of applications in a folder of its own, with real keys, and servers behind it that count.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createKey } from "../../src/auth/index.js";
import { type Client, type ConnectOptions, connect } from "../../src/mcp/client/index.js";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { type GatewayRuntime, type GatewayRuntimeOptions, startGateway } from "../../src/runtime/start.js";
import { createServer, permitAll, type Server } from "../../src/server.js";
import type { ApplicationDocument } from "../../src/storage/index.js";

export interface Deployment extends AsyncDisposable {
  readonly dir: string;
  readonly url: string;
  readonly runtime: GatewayRuntime;
  put(app: string, document: ApplicationDocument): Promise<void>;
  key(app: string, agent: string, permissions?: readonly string[]): Promise<string>;
  client(token: string, options?: ConnectOptions): Promise<Client>;
  /** One POST, as bytes. */
  post(token: string, body: object, headers?: Record<string, string>): Promise<{ status: number; text: string }>;
  close(): Promise<void>;
}

export async function deploy(policy: string, options: Partial<GatewayRuntimeOptions> = {}): Promise<Deployment> {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-deployment-"));
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "test.cedar"), policy);
  const runtime = await startGateway({
    stateDir: dir,
    telemetry: { log: { level: "critical" } },
    http: { host: "127.0.0.1", port: 0 },
    admin: { host: "127.0.0.1", port: 0 },
    identity: keysOrLocal({ localApp: "local", isLoopback: false }),
    ...options,
  });
  const url = runtime.listeners[0]?.url as string;
  const close = async (): Promise<void> => {
    await runtime.close();
    rmSync(dir, { recursive: true, force: true });
  };
  return {
    dir,
    url,
    runtime,
    put: async (app, document) => void (await runtime.storage.applications.put(app, document, "test")),
    key: async (app, agent, permissions = ["invoke(*)", "read(*)", "list"]) => {
      const request = { app, agent, name: agent, permissions: [...permissions] };
      return (await createKey(runtime.storage.keys, request, "test")).token;
    },
    client: (token, more = {}) =>
      // On a busy machine a client that soon gives up discovery would speak an earlier revision.
      connect(url, {
        ...more,
        timeouts: { discoveryMs: 60_000, ...more.timeouts },
        headers: { authorization: `Bearer ${token}` },
      }),
    post: async (token, body, headers = {}) => {
      const response = await fetch(url, {
        method: "POST",
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          ...headers,
        },
        body: JSON.stringify(body),
      });
      return { status: response.status, text: await response.text() };
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

const OPEN = { noGuardrailRequired: true } as const;

export interface Counting {
  readonly url: string;
  readonly server: Server;
  /** What reached it, by tool. */
  readonly calls: string[];
  close(): Promise<void>;
}

/** A server whose every word carries a mark. */
export async function counting(
  mark: string,
  build: (server: Server, calls: string[]) => void = () => {},
  port = 0,
): Promise<Counting> {
  const calls: string[] = [];
  const server = createServer({ name: `server-of-${mark}`, version: "1.0.0" }, { policy: permitAll });
  const text = { type: "object", properties: { text: { type: "string" } } } as const;
  server.tool(
    "read",
    `reads for ${mark}`,
    text,
    ({ text }) => {
      calls.push("read");
      return `${mark} says ${text ?? "nothing"}`;
    },
    OPEN,
  );
  server.tool(
    "write",
    `writes for ${mark}`,
    text,
    ({ text }) => {
      calls.push("write");
      return `${mark} wrote ${text ?? "nothing"}`;
    },
    OPEN,
  );
  server.resource(`note://${mark}/one`, `note of ${mark}`, () => {
    calls.push("note");
    return `${mark} in a note`;
  });
  server.prompt("ask", `asks for ${mark}`, {}, () => {
    calls.push("ask");
    return `${mark} asks`;
  });
  build(server, calls);
  const { url } = await server.listen({ transport: "http", port });
  return { url, server, calls, close: () => server.close() };
}
