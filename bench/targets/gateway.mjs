// Portcullis as a gateway, with shipped defaults: an application in the store, a policy that reads the argument,
// validation, and the ledger on a real disk. APPS and KEYS fill the store with others. With KEYED the load comes with an
// API key as callers do; without it as the local user, or as the application that a header names.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createKey } from "../../dist/auth/index.js";
import { read } from "../../dist/ledger/index.js";
import { keysOrLocal } from "../../dist/runtime/identity.js";
import { startGateway } from "../../dist/runtime/start.js";
import { openStorage } from "../../dist/storage/index.js";
import { ready } from "./child.mjs";

// Beside the repository, not in a temporary folder that may be memory.
const dir = mkdtempSync(join(import.meta.dirname, "..", "..", ".portcullis-bench-"));
mkdirSync(join(dir, "policy"));
writeFileSync(
  join(dir, "policy", "bench.cedar"),
  `@id("append") permit (principal, action == Action::"append", resource) when { context.arguments.text like "*" };
   @id("others") permit (principal, action in Action::"tools/call", resource) unless { resource.tags.contains("never") };`,
);
const { DOWNSTREAM, CONNECTIONS } = process.env;
const entry = DOWNSTREAM
  ? { url: DOWNSTREAM }
  : { command: process.execPath, args: [join(import.meta.dirname, "echo.mjs"), "--stdio"] };
const count = Number(process.env.SERVERS ?? 1);
const names = count === 1 ? ["echo"] : Array.from({ length: count }, (_, i) => `s${i}`);
const document = { servers: Object.fromEntries(names.map((name) => [name, { ...entry, noGuardrail: ["*"] }])) };
const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
await storage.applications.put("local", document, "bench");
const apps = Number(process.env.APPS ?? 0);
for (let i = 0; i < apps; i++) {
  const url = process.env[`DOWNSTREAM_${i}`];
  const own = url ? { servers: { echo: { url, noGuardrail: ["*"] } } } : document;
  await storage.applications.put(`app-${i}`, own, "bench");
}
for (let i = 0; i < Number(process.env.KEYS ?? 0); i++) {
  const id = `key-${i}`;
  await storage.keys.add(
    {
      id,
      app: `app-${i % apps}`,
      agent: "a",
      name: id,
      hash: String(i).padStart(64, "0"),
      prefix: id,
      permissions: ["invoke(*)"],
      limits: {},
    },
    "bench",
  );
}
const headers = {};
if (process.env.KEYED) {
  const request = { app: "local", name: "bench", permissions: ["invoke(*)", "list"] };
  const { token } = await createKey(storage.keys, request, "bench");
  headers.authorization = `Bearer ${token}`;
}
await storage.close();
const identity = keysOrLocal({ localApp: "local", isLoopback: true });
const runtime = await startGateway({
  stateDir: dir,
  http: {
    host: "127.0.0.1",
    port: 0,
    ...(CONNECTIONS
      ? { limits: { maxConnections: Number(CONNECTIONS), maxConnectionsPerAddress: Number(CONNECTIONS) } }
      : {}),
  },
  telemetry: { log: { level: "error" } },
  identity: async (parts) => {
    // Keys are held as in service; the load itself comes as the local user.
    const here = await identity(parts);
    const of = (app) => ({ app, agent: "bench", scope: [], via: "local" });
    const identify = (peer, auth, meta) =>
      peer.headers?.authorization === undefined
        ? of(peer.headers?.["x-bench-app"] ?? "local")
        : here.identify(peer, auth, meta);
    return { ...here, identify };
  },
});
ready(runtime.listeners[0].url, {
  headers,
  stop: async () => {
    await runtime.close();
    let decisions = 0;
    let outcomes = 0;
    for await (const { record } of read(runtime.state.ledgerDir)) {
      if (record.tool !== "append") continue;
      if (record.kind === "decision") decisions++;
      if (record.kind === "outcome") outcomes++;
    }
    rmSync(dir, { recursive: true, force: true });
    return { decisions, outcomes };
  },
});
