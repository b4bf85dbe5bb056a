// Backup and restore with real gateways: under load, into a new place and in place, with one store of each kind.

import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { read } from "../../src/ledger/index.js";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Replicas, startReplicas } from "./replicas.js";
import { type Ran, root, type Serving, serve } from "./serving.js";

const main = join(root, "dist", "cli", "main.js");
const PASSPHRASE = "correct horse battery staple";
const POLICY = `
  permit (principal, action, resource);
  @id("ask") @outcome("challenge") @approvers("operators")
  forbid (principal, action == Action::"write", resource) unless { context.approved };
`;

let base: string;
let dir: string;
let upstream: Counting;
let replicas: Replicas | undefined;
const running: Serving[] = [];

beforeEach(async () => {
  base = mkdtempSync(join(tmpdir(), "portcullis-backup-test-"));
  dir = join(base, "data");
  upstream = await counting("one");
});
afterEach(async () => {
  for (const each of running.splice(0)) await each.stop();
  await replicas?.close();
  replicas = undefined;
  await upstream.close();
  rmSync(base, { recursive: true, force: true });
});

/** Runs a command while this process continues to serve and call. */
function run(args: readonly string[], passphrase: string | null = PASSPHRASE): Promise<Ran> {
  const { PORTCULLIS_BACKUP_PASSPHRASE: _, ...env } = process.env;
  const given = passphrase === null ? {} : { PORTCULLIS_BACKUP_PASSPHRASE: passphrase };
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [main, "--json", ...args],
      { env: { ...env, ...given, NO_COLOR: "1" }, maxBuffer: 1 << 26 },
      (error, stdout, stderr) =>
        resolve({ code: error ? ((error.code as unknown as number) ?? 1) : 0, stdout, stderr }),
    );
  });
}

async function ok(args: readonly string[], passphrase?: string): Promise<Record<string, any>> {
  const { code, stdout, stderr } = await run(args, passphrase);
  expect(code, `${args.join(" ")}: ${stderr}`).toBe(0);
  return JSON.parse(stdout) as Record<string, any>;
}

async function populate(storage: string): Promise<void> {
  const store = await openStorage(storage, { sweepMs: 0 });
  await store.applications.put("blog", { servers: { up: { url: upstream.url, noGuardrail: ["*"] } } }, "test");
  await store.close();
}

function prepare(): string {
  mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), POLICY);
  return `sqlite:${join(dir, "portcullis.db")}`;
}

async function start(at = dir): Promise<Serving> {
  const serving = await serve(["--log-level", "error", "--challenge-wait", "0"], { dir: at });
  running.push(serving);
  return serving;
}
async function stop(): Promise<void> {
  for (const each of running.splice(0)) await each.stop();
}

const keyFor = (at: readonly string[]): Promise<Record<string, any>> =>
  ok([...at, "key", "add", "blog", "--name", "agent", "--allow", "invoke(*)", "list"]);

async function call(url: string, token: string, tool = "read", text = "x"): Promise<{ status: number; body: any }> {
  const response = await fetch(new URL(`/tools/${tool}`, url), {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ text }),
  });
  return { status: response.status, body: await response.json().catch(() => undefined) };
}

async function admin(serving: Serving, path: string, body?: object): Promise<any> {
  const token = readFileSync(join(serving.dir, "operator.token"), "utf8").trim();
  const response = await fetch(new URL(path, serving.admin), {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  return response.json();
}

async function recordsOf(ledger: string): Promise<Record<string, any>[]> {
  const records: Record<string, any>[] = [];
  for await (const { record } of read(ledger)) records.push(record as unknown as Record<string, any>);
  return records;
}

describe("a backup of a running gateway", { timeout: 240_000 }, () => {
  it("a backup of a running gateway holds every call that was acknowledged before it began, and a new machine continues from it", async () => {
    await populate(prepare());
    const key = await keyFor(["--dir", dir]);
    const serving = await start();
    // Approved and not used yet: it may be used between the backup and the restore.
    expect((await call(serving.url, key.token, "write")).status).not.toBe(200);
    const [open] = (await admin(serving, "/v1/approvals")).approvals;
    await admin(serving, `/v1/approvals/${open.id}/approve`, { reason: "fine" });

    let acknowledged = 0;
    let isDone = false;
    const load = Array.from({ length: 8 }, async () => {
      while (!isDone) if ((await call(serving.url, key.token)).status === 200) acknowledged++;
    });
    await expect.poll(() => acknowledged, { timeout: 60_000 }).toBeGreaterThan(50);
    const before = acknowledged;
    const made = await ok(["--dir", dir, "backup", join(base, "b1.backup")]);
    isDone = true;
    await Promise.all(load);
    expect(acknowledged).toBeGreaterThan(before);
    expect(made).toMatchObject({ store: { kind: "sqlite" }, ledgers: [{ path: "ledger" }], ledgers_elsewhere: [] });
    expect(made.keys).toEqual(expect.arrayContaining(["seal key", "operator.token", "ledger 0 signing.key"]));
    expect(await ok(["backup", "verify", made.file])).toMatchObject({ ok: true, authenticated: true, id: made.id });
    // It is used once, after the backup.
    expect((await call(serving.url, key.token, "write")).status).toBe(200);
    const written = upstream.calls.filter((name) => name === "write").length;
    await stop();

    const other = join(base, "other");
    const report = await ok(["restore", made.file, "--data-dir", other]);
    expect(report).toMatchObject({
      backup: made.id,
      expiredApprovals: 1,
      keysBack: [key.key.id],
      keysMissing: [],
      ledgers: [{ state: "restored" }],
    });
    const decisions = (await recordsOf(join(other, "ledger"))).filter(
      ({ kind, tool, effect }) => kind === "decision" && tool === "read" && effect === "permit",
    );
    expect(decisions.length).toBeGreaterThanOrEqual(before);
    const verified = await ok(["--dir", other, "audit", "verify"]);
    expect(verified).toMatchObject({ ok: true });
    expect(verified.notes.join("\n")).toContain(`restored from backup ${made.id}`);

    const again = await start(other);
    expect((await call(again.url, key.token)).status).toBe(200);
    // The approval does not count a second time.
    expect((await call(again.url, key.token, "write")).status).not.toBe(200);
    expect(upstream.calls.filter((name) => name === "write").length).toBe(written);
    await stop();
    expect(await ok(["--dir", other, "audit", "verify"])).toMatchObject({ ok: true });
    const actions = (await recordsOf(join(other, "ledger"))).map(({ action }) => action);
    expect(actions).toEqual(expect.arrayContaining(["ledger.restored", "store.restored"]));
  });

  it("a backup of a running gateway is refused when it would write keys in clear, and when the file is there", async () => {
    await populate(prepare());
    const without = await run(["--dir", dir, "backup", join(base, "b")], null);
    expect([without.code, without.stderr]).toEqual([64, expect.stringContaining("--without-keys")]);
    const short = await run(["--dir", dir, "backup", join(base, "b")], "short");
    expect([short.code, short.stderr]).toEqual([64, expect.stringContaining("fewer than 12")]);
    const made = await ok(["--dir", dir, "backup", "--without-keys", `${base}/`]);
    expect(made.file).toMatch(/portcullis-\d{8}T\d{6}Z\.backup$/);
    expect((await run(["--dir", dir, "backup", "--without-keys", made.file])).code).toBe(64);
    expect(await ok(["backup", "verify", made.file])).toMatchObject({ authenticated: false, keys: null });
  });
});

describe("a restore", { timeout: 240_000 }, () => {
  it("a restore refuses a target that is not empty, a damaged backup and another passphrase, and changes nothing", async () => {
    await populate(prepare());
    await start();
    await stop();
    const { file } = await ok(["--dir", dir, "backup", join(base, "b1.backup")]);
    const target = join(base, "target");
    const refused = async (args: string[], passphrase?: string): Promise<string> => {
      const { code, stderr } = await run(["restore", ...args], passphrase ?? PASSPHRASE);
      expect(code).not.toBe(0);
      return stderr;
    };
    expect(await refused([file, "--data-dir", dir])).toContain("--replace");
    expect(await refused([file, "--data-dir", target], "another passphrase")).toContain("passphrase");
    const bytes = readFileSync(file);
    for (const [name, damage] of [
      ["cut", bytes.subarray(0, bytes.length - 200)],
      ["flipped", bytes.map((byte, i) => (i === Math.floor(bytes.length / 2) ? byte ^ 1 : byte))],
      ["empty", Buffer.alloc(0)],
    ] as const) {
      writeFileSync(join(base, name), damage);
      expect(await refused([join(base, name), "--data-dir", target])).not.toBe("");
      expect((await run(["backup", "verify", join(base, name)])).code).toBe(1);
    }
    expect((await run(["restore", file, "--data-dir", target], null)).code).toBe(64);
    await ok(["restore", file, "--data-dir", target]);
  });

  it("a restore keeps a ledger that is newer, and takes revocations from it when the store is lost", async () => {
    const storage = prepare();
    await populate(storage);
    const key = await keyFor(["--dir", dir]);
    await start();
    await stop();
    const { file } = await ok(["--dir", dir, "backup", join(base, "b1.backup")]);
    const serving = await start();
    await ok(["--dir", dir, "key", "revoke", key.key.id]);
    await expect.poll(async () => (await call(serving.url, key.token)).status, { timeout: 30_000 }).toBe(401);
    await expect
      .poll(async () => (await recordsOf(join(dir, "ledger"))).some(({ action }) => action === "key.revoke"))
      .toBe(true);
    await stop();
    const size = (await recordsOf(join(dir, "ledger"))).length;
    writeFileSync(join(dir, "portcullis.db"), "this is not a database");
    for (const ending of ["-wal", "-shm"]) rmSync(join(dir, `portcullis.db${ending}`), { force: true });
    const report = await ok(["restore", file, "--data-dir", dir, "--replace"]);
    expect(report).toMatchObject({ ledgers: [{ state: "kept" }], keysStayRevoked: [key.key.id] });
    const again = await start();
    expect((await call(again.url, key.token)).status).toBe(401);
    await stop();
    expect((await recordsOf(join(dir, "ledger"))).length).toBeGreaterThan(size);
    expect(await ok(["--dir", dir, "audit", "verify"])).toMatchObject({ ok: true });
  });

  it("a restore continues a ledger that is lost from the backup, and verification says what is missing", async () => {
    await populate(prepare());
    const key = await keyFor(["--dir", dir]);
    await start();
    await stop();
    const { file } = await ok(["--dir", dir, "backup", join(base, "b1.backup")]);
    const serving = await start();
    for (let i = 0; i < 5; i++) await call(serving.url, key.token);
    await stop();
    cpSync(join(dir, "ledger", "checkpoint"), join(base, "later-checkpoint"));
    rmSync(join(dir, "ledger"), { recursive: true });
    const report = await ok(["restore", file, "--data-dir", dir, "--replace"]);
    expect(report.ledgers).toMatchObject([{ state: "restored" }]);
    await start();
    await stop();
    const verified = await ok(["--dir", dir, "audit", "verify"]);
    expect(verified.notes.join("\n")).toMatch(/restored from backup .* had been signed/);
    // A checkpoint that was kept elsewhere shows that records are gone.
    const outside = await run(["--dir", dir, "audit", "verify", "--checkpoint", join(base, "later-checkpoint")]);
    expect(outside.code).toBe(1);
  });

  it("a restore is picked up by running replicas on PostgreSQL, without a revoked key or a later change", async () => {
    replicas = await startReplicas(2, POLICY);
    const { storage, all } = replicas;
    const at = ["--dir", replicas.dir];
    await populate(storage);
    const withStore = (...args: string[]): string[] => [...at, ...args, "--storage", storage];
    const add = (): Promise<Record<string, any>> =>
      ok(withStore("key", "add", "blog", "--name", "agent", "--allow", "invoke(*)", "list"));
    const [one, two] = [await add(), await add()];
    const status = (token: string): Promise<number[]> =>
      Promise.all(all.map(async ({ url }) => (await call(url, token)).status));
    await expect.poll(() => status(one.token), { timeout: 30_000 }).toEqual([200, 200]);

    const reached = async (url: string, server: Counting): Promise<boolean> => {
      const before = server.calls.length;
      await call(url, one.token);
      return server.calls.length > before;
    };

    let isDone = false;
    let failures = 0;
    const load = all.map(async ({ url }) => {
      while (!isDone) if ((await call(url, one.token)).status !== 200) failures++;
    });
    const made = await ok(withStore("backup", join(base, "b1.backup")));
    isDone = true;
    await Promise.all(load);
    expect(failures).toBe(0);
    expect(made.ledgers.map(({ path }: { path: string }) => path)).toEqual(["ledgers/r1", "ledgers/r2"]);

    await ok(withStore("key", "revoke", two.key.id));
    const three = await add();
    // The same definitions: another server would have to be accepted first.
    const other = await counting("one");
    try {
      const store = await openStorage(storage, { sweepMs: 0 });
      await store.applications.put("blog", { servers: { up: { url: other.url, noGuardrail: ["*"] } } }, "test");
      await store.applications.put("late", {}, "test");
      await store.close();
      await expect.poll(() => status(two.token), { timeout: 30_000 }).toEqual([401, 401]);
      await expect.poll(() => status(three.token), { timeout: 30_000 }).toEqual([200, 200]);
      await expect.poll(() => reached(all[0]?.url as string, other), { timeout: 30_000 }).toBe(true);

      const report = await ok(withStore("restore", made.file, "--replace"));
      expect(report).toMatchObject({
        applicationsGone: ["late"],
        applicationsChanged: ["blog"],
        keysGone: [three.key.id],
        keysStayRevoked: [two.key.id],
        ledgers: [{ state: "kept" }, { state: "kept" }],
      });
      for (const { url } of all) await expect.poll(() => reached(url, upstream), { timeout: 30_000 }).toBe(true);
      await expect.poll(() => status(three.token), { timeout: 30_000 }).toEqual([401, 401]);
      expect(await status(two.token)).toEqual([401, 401]);
    } finally {
      await other.close();
    }
    for (const replica of all) await replicas.stop(replica);
    const paths = all.map(({ ledgerDir }) => ledgerDir);
    expect(await ok(withStore("audit", "verify", ...paths))).toMatchObject({ ok: true, missing: [] });
  });
});
