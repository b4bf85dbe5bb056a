// The whole, started for a test: a server behind its gate, a client, a ledger. What was started is stopped after each test.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import { type Ledger, type LedgerRecord, openLedger, read } from "../src/ledger/index.js";
import { type Client, type ConnectOptions, connect } from "../src/mcp/client/index.js";
import { listenMemory } from "../src/mcp/transports/index.js";
import { createServer, permitAll, type RunOptions, type Server } from "../src/server.js";

export const open = { noGuardrailRequired: true } as const;
export const anything = { type: "object" } as const;
export const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

export function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-promise-"));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export function started(options: RunOptions): Server {
  const server = createServer({ name: "t", version: "1.0.0" }, { policy: permitAll, ...options });
  cleanups.push(() => server.close());
  return server;
}

export async function connected(server: Server, options: ConnectOptions = {}): Promise<Client> {
  const { url } = await server.listen({ transport: "http", port: 0 });
  const client = await connect(url, options);
  cleanups.push(() => client.close());
  return client;
}

/** Sends one message as it is, without a client's help, and gives the answer. */
export async function raw(server: Server, message: object): Promise<unknown> {
  const transport = (await listenMemory(server.handler)).client();
  cleanups.push(() => transport.close());
  return new Promise((resolve, reject) => {
    const started = transport.start({ message: (text) => resolve(JSON.parse(text)), closed: () => {} });
    started.then(() => transport.send(JSON.stringify({ jsonrpc: "2.0", id: 1, ...message }))).catch(reject);
  });
}

export const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};

export async function newLedger(): Promise<Ledger> {
  const ledger = await openLedger({ dir: join(folder(), "ledger"), origin: "example.com/promises" });
  cleanups.push(() => ledger.close());
  return ledger;
}

/** What is in the ledger once everything that waits has been written. */
export async function recorded(ledger: Ledger): Promise<LedgerRecord[]> {
  await ledger.append({ kind: "admin", actor: "test", action: "flush" });
  const records: LedgerRecord[] = [];
  for await (const { record } of read(ledger.dir)) records.push(record);
  return records;
}
