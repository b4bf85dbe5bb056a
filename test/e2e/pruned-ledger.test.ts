// A ledger whose older records were archived and pruned: `audit replay`, `backup` and `restore` work with what remains, and
// the archive still fits a restored ledger.

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openLedger, read } from "../../src/ledger/index.js";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { startGateway } from "../../src/runtime/start.js";
import { portcullis } from "./serving.js";

const CALLS = 200;
let base: string;
let dir: string;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "portcullis-pruned-"));
  dir = join(base, "data");
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

// biome-ignore lint/suspicious/noExplicitAny: answers of commands
function ok(args: readonly string[]): any {
  const { code, stdout, stderr } = portcullis(["--json", ...args]);
  expect(code, `${args.join(" ")}: ${stderr}`).toBe(0);
  return JSON.parse(stdout);
}

/** Starts and stops a gateway; answers with the origin of its ledger. */
async function startOnce(at: string): Promise<string> {
  const runtime = await startGateway({
    stateDir: at,
    telemetry: { log: { level: "critical" } },
    identity: keysOrLocal({ localApp: "blog", isLoopback: false }),
  });
  await runtime.storage.applications.put("blog", {}, "test");
  const { origin } = runtime.ledger;
  await runtime.close();
  return origin;
}

async function writeCalls(origin: string): Promise<void> {
  const ledger = await openLedger({ dir: join(dir, "ledger"), origin, maxSegmentBytes: 20_000, keepArguments: true });
  for (let i = 0; i < CALLS; i++) {
    const shared = { call: `call-${i}`, trace: "0".repeat(32), actor: "blog/writer", tool: "read", args_cid: "bafy" };
    const decided = { kind: "decision", app: "blog", agent: "writer", method: "tools/call", binding: "notes" } as const;
    const why = { effect: "permit", rules: ["all"], policy: "0".repeat(64), reason: "", mode: "enforce" } as const;
    await ledger.append({ ...shared, ...decided, ...why, args: "{}" });
    await ledger.append({ ...shared, kind: "outcome", outcome: "ok", latency_ms: 1, bytes: 1 });
  }
  await ledger.close();
}

it("replays, backs up and restores a ledger that was pruned, and the archive completes the restored one", {
  timeout: 180_000,
}, async () => {
  await writeCalls(await startOnce(dir));
  const archive = join(base, "archive");
  ok(["--dir", dir, "audit", "archive", "--to", archive]);
  ok(["--dir", dir, "audit", "prune", "--archive", archive, "--all"]);
  const remaining: string[] = [];
  for await (const { record } of read(join(dir, "ledger"))) if (record.kind === "decision") remaining.push(record.call);
  expect(remaining.length).toBeGreaterThan(0);
  expect(remaining.length).toBeLessThan(CALLS);

  const tools = join(base, "tools.json");
  writeFileSync(tools, JSON.stringify({ tools: [{ name: "read", inputSchema: { type: "object" } }] }));
  const policy = join(base, "none.cedar");
  writeFileSync(policy, '@id("none") forbid (principal, action, resource);');
  const replayed = ok(["--dir", dir, "audit", "replay", policy, "--app", "blog", "--tools", tools]);
  expect(replayed).toMatchObject({ compared: remaining.length, skipped: 0 });
  expect(replayed.changes).toHaveLength(remaining.length);

  const file = join(base, "pruned.backup");
  const passphrase = ["--passphrase-file", join(base, "passphrase")];
  writeFileSync(passphrase[1] as string, "correct horse battery staple", { mode: 0o600 });
  ok(["--dir", dir, "backup", file, ...passphrase]);
  expect(ok(["backup", "verify", file, ...passphrase])).toMatchObject({ ok: true });
  const other = join(base, "other");
  expect(ok(["restore", file, "--data-dir", other, ...passphrase])).toMatchObject({ ledgers: [{ state: "restored" }] });
  expect(readdirSync(join(other, "ledger"))).not.toContain("registered.json");
  const verified = ok(["--dir", other, "audit", "verify"]);
  expect(verified).toMatchObject({ ok: true });
  const last = remaining.at(-1) as string;
  expect(ok(["--dir", other, "audit", "prove", last])).toBeTruthy();
  expect(ok(["--dir", other, "audit", "prove", "call-3", "--archive", archive])).toBeTruthy();
  await startOnce(other);
  expect(ok(["--dir", other, "audit", "verify", "--archive", archive])).toMatchObject({ ok: true });
  ok(["--dir", other, "audit", "restore", "--archive", archive]);
  const all: string[] = [];
  for await (const { record } of read(join(other, "ledger"))) if (record.kind === "decision") all.push(record.call);
  expect(all).toHaveLength(CALLS);
  expect(ok(["--dir", other, "audit", "verify"])).toMatchObject({ ok: true });
});
