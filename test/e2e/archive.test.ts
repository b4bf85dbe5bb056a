// `portcullis audit archive`, `prune`, `restore`, and a gateway that archives and prunes by itself, against a directory
// and a server that speaks S3.

import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { directoryArchive, type Ledger, openLedger, verify } from "../../src/ledger/index.js";
import { startRetention } from "../../src/runtime/retention.js";
import { createTelemetry } from "../../src/telemetry/index.js";
import { checkSignatures, type SignatureCheck } from "../../src/upstream/fixtures/signature-check.js";
import { portcullis, root, serve } from "./serving.js";

const S3rver = createRequire(import.meta.url)("s3rver");
const ORIGIN = "example.com/archive";
const scratch = mkdtempSync(join(tmpdir(), "portcullis-archive-"));
let store: { run(): Promise<{ port: number }>; close(): Promise<void> };
let check: SignatureCheck;
let s3: Record<string, string>;

beforeAll(async () => {
  store = new S3rver({
    port: 0,
    address: "127.0.0.1",
    silent: true,
    directory: join(scratch, "s3"),
    configureBuckets: [{ name: "ledgers" }],
  });
  const credentials = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER", region: "us-east-1" };
  check = await checkSignatures(`http://127.0.0.1:${(await store.run()).port}`, credentials);
  s3 = {
    AWS_ENDPOINT_URL: check.url,
    AWS_ACCESS_KEY_ID: "S3RVER",
    AWS_SECRET_ACCESS_KEY: "S3RVER",
  };
});
afterAll(async () => {
  expect(check.refused).toEqual([]);
  expect(check.passed).toBeGreaterThan(0);
  await check.close();
  await store.close();
  rmSync(scratch, { recursive: true, force: true });
});

interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** The store answers from this process, so the command runs beside it. */
function audit(dir: string, args: readonly string[], env: Record<string, string> = s3): Promise<Ran> {
  const all = [join(root, "dist", "cli", "main.js"), "--dir", dir, "audit", ...args];
  return new Promise((resolve) => {
    execFile(process.execPath, all, { env: { ...process.env, NO_COLOR: "1", ...env } }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
}

async function write(ledger: Ledger, calls: number): Promise<void> {
  const shared = { trace: "0".repeat(32), actor: "blog/writer", tool: "notes.read", args_cid: "bafy" };
  const written: Promise<unknown>[] = [];
  for (let i = 0; i < calls; i++) {
    const call = `call-${ledger.status().size}-${i}`;
    const decided = { kind: "decision", app: "blog", agent: "writer", method: "tools/call", binding: "notes" } as const;
    const why = { effect: "permit", rules: ["allow"], policy: "0".repeat(64), reason: "", mode: "enforce" } as const;
    written.push(ledger.append({ ...shared, ...decided, ...why, call }));
    written.push(ledger.append({ ...shared, kind: "outcome", call, outcome: "ok", latency_ms: 1, bytes: 1 }));
    if (written.length >= 50) await Promise.all(written.splice(0));
  }
  await Promise.all(written);
}

async function sample(name: string): Promise<{ dir: string; ledgerDir: string }> {
  const dir = join(scratch, name);
  const ledgerDir = join(dir, "ledger");
  const ledger = await openLedger({ dir: ledgerDir, origin: ORIGIN, maxSegmentBytes: 20_000 });
  await write(ledger, 200);
  await ledger.close();
  return { dir, ledgerDir };
}

const segments = (ledgerDir: string): string[] => readdirSync(ledgerDir).filter((name) => name.startsWith("seq-"));

it("archives, prunes, verifies, proves and restores a ledger on the command line, with S3 [U9]", async () => {
  const { dir, ledgerDir } = await sample("s3-ledger");
  const to = "s3://ledgers/gateway/one";
  const all = segments(ledgerDir).length;
  const refused = await audit(dir, ["prune", "--archive", to, "--all"]);
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.stderr).toContain("are not in the archive");
  expect(segments(ledgerDir)).toHaveLength(all);

  expect(await audit(dir, ["archive", "--to", to])).toMatchObject({ code: 0 });
  expect((await audit(dir, ["archive", "--to", to])).stdout).toContain("0 files copied");
  const pruned = await audit(dir, ["prune", "--archive", to, "--all"]);
  expect(pruned).toMatchObject({ code: 0, stderr: "" });
  expect(pruned.stdout).toContain("statement over records 0 to");
  expect(segments(ledgerDir)).toHaveLength(1);

  const checked = await audit(dir, ["verify"]);
  expect(checked).toMatchObject({ code: 0 });
  expect(checked.stdout).toMatch(/were pruned by cli:.* to /);
  expect(checked.stdout).toMatch(/\d+ pruned before them/);
  expect(await audit(dir, ["verify", "--archive", to])).toMatchObject({ code: 0 });
  const missing = await audit(dir, ["prove", "5"]);
  expect(missing).toMatchObject({ code: 1 });
  expect(missing.stderr).toContain(`--archive ${to}`);
  expect(JSON.parse((await audit(dir, ["prove", "5", "--archive", to])).stdout)).toMatchObject({ index: 5 });
  expect((await audit(dir, ["restore", "--archive", to])).stdout).toContain(`${all - 1} files restored`);
  expect(await verify(ledgerDir)).toMatchObject({ ok: true, from: 0 });
});

it("archives to a directory and prunes by age on the command line", async () => {
  const { dir, ledgerDir } = await sample("directory-ledger");
  const to = join(scratch, "copies");
  expect(await audit(dir, ["archive", "--to", to])).toMatchObject({ code: 0 });
  expect((await audit(dir, ["prune", "--archive", to, "--keep-days", "1"])).stdout).toContain("0 files removed");
  expect(await audit(dir, ["prune", "--archive", to])).toMatchObject({ code: 64 });
  expect(await audit(dir, ["prune", "--archive", to, "--keep-size", "0"])).toMatchObject({ code: 0 });
  expect(segments(ledgerDir)).toHaveLength(1);
  expect(await verify(ledgerDir, { archive: directoryArchive(to) })).toMatchObject({ ok: true, from: 0 });
});

describe("an S3 archive", () => {
  it("an S3 archive needs credentials in the environment and refuses them in its address", async () => {
    const { dir } = await sample("credentials");
    const none = { AWS_ACCESS_KEY_ID: "", AWS_SECRET_ACCESS_KEY: "" };
    const missing = await audit(dir, ["archive", "--to", "s3://ledgers/x"], { ...s3, ...none });
    expect(missing).toMatchObject({ code: 64 });
    expect(missing.stderr).toContain("an S3 archive needs AWS_ACCESS_KEY_ID");
    const inside = await audit(dir, ["archive", "--to", "s3://me:secret@ledgers/x"]);
    expect(inside).toMatchObject({ code: 64 });
    expect(inside.stderr).not.toContain("secret@");
  });

  it("an archive that was changed is found by verify, and a prune refuses it", async () => {
    const { dir, ledgerDir } = await sample("changed");
    expect(await audit(dir, ["archive", "--to", "s3://ledgers/changed"])).toMatchObject({ code: 0 });
    const files = readdirSync(join(scratch, "s3", "ledgers", "changed"), { recursive: true, withFileTypes: true });
    const object = files.find(({ name }) => name.includes("0000000000000000.ndjson.gz._S3rver_object"));
    const path = join(object?.parentPath as string, object?.name as string);
    const bytes = readFileSync(path);
    const all = segments(ledgerDir).length;
    const changed = Buffer.from(bytes);
    changed[300] = (changed[300] as number) ^ 1;
    writeFileSync(path, changed);
    const refused = await audit(dir, ["prune", "--archive", "s3://ledgers/changed", "--all"]);
    expect(refused).toMatchObject({ code: 1 });
    expect(refused.stderr).toContain("its SHA-256 differs");
    expect(segments(ledgerDir)).toHaveLength(all);
    writeFileSync(path, bytes);
    expect(await audit(dir, ["prune", "--archive", "s3://ledgers/changed", "--all"])).toMatchObject({ code: 0 });
    writeFileSync(path, changed);
    expect(await audit(dir, ["verify"])).toMatchObject({ code: 0 });
    const checked = await audit(dir, ["verify", "--archive", "s3://ledgers/changed"]);
    expect(checked).toMatchObject({ code: 1 });
    expect(checked.stdout).toContain("its SHA-256 differs");
  });
});

describe("retention", () => {
  it("retention archives and prunes by itself while records are written, and nothing is lost", async () => {
    const ledgerDir = join(scratch, "retained");
    const archive = directoryArchive(join(scratch, "retained-copies"));
    const telemetry = createTelemetry({ serviceName: "test", log: { level: "critical" } });
    const ledger = await openLedger({ dir: ledgerDir, origin: ORIGIN, maxSegmentBytes: 20_000, compress: true });
    const retention = startRetention(ledger, { archive, keepBytes: 10_000, close: async () => {} }, telemetry, 20);
    await write(ledger, 200);
    await vi.waitFor(() => expect(existsSync(join(ledgerDir, "pruned"))).toBe(true), { timeout: 30_000 });
    await retention.close();
    await ledger.close();
    await telemetry.shutdown();
    expect((await verify(ledgerDir)).pruned).toBeGreaterThan(0);
    const whole = await verify(ledgerDir, { archive });
    expect(whole).toMatchObject({ ok: true, from: 0 });
    expect(whole.to).toBeGreaterThan(400);
  });

  it("retention reports an archive that fails as a warning and a metric, and a later start archives and prunes", async () => {
    const dir = join(scratch, "failing");
    const blocked = join(scratch, "a-file");
    writeFileSync(blocked, "not a directory");
    const first = await serve(["--log-level", "critical"], { dir });
    await first.stop();
    // A second file, so that the first is closed and has to be archived.
    const ledgerDir = join(dir, "ledger");
    const origin = readFileSync(join(ledgerDir, "checkpoint"), "utf8").split("\n")[0] as string;
    const ledger = await openLedger({ dir: ledgerDir, origin, maxSegmentBytes: 2_000 });
    for (let i = 0; i < 4; i++) await write(ledger, 10);
    await ledger.close();
    const serving = await serve(["--log-level", "critical", "--archive", join(blocked, "x"), "--outcomes", "flush"], {
      dir,
    });
    try {
      const authorization = `Bearer ${readFileSync(join(dir, "operator.token"), "utf8").trim()}`;
      const get = (path: string): Promise<Response> =>
        fetch(new URL(path, serving.admin), { headers: { authorization } });
      await vi.waitFor(
        async () => {
          const ready = await get("/readyz");
          expect(ready.status).toBe(200);
          const { components } = (await ready.json()) as { components: Record<string, { warning?: string }> };
          expect(components.archive?.warning).toContain("the ledger is not archived or pruned");
        },
        { timeout: 30_000 },
      );
      expect(await (await get("/metrics")).text()).toContain("\nportcullis_ledger_archive_failing 1");
    } finally {
      await serving.stop();
    }
    const copies = join(scratch, "failing-copies");
    const again = await serve(["--log-level", "critical", "--archive", copies, "--keep-size", "0"], { dir });
    try {
      await vi.waitFor(() => expect(existsSync(join(ledgerDir, "pruned"))).toBe(true), { timeout: 30_000 });
      expect(portcullis(["--dir", dir, "audit", "tail", "--all", "-n", "5"])).toMatchObject({ code: 0 });
      expect(portcullis(["--dir", dir, "audit", "rotate-key"])).toMatchObject({ code: 0, stderr: "" });
    } finally {
      await again.stop();
    }
    expect(await verify(ledgerDir)).toMatchObject({ ok: true });
    expect(await verify(ledgerDir, { archive: directoryArchive(copies) })).toMatchObject({ ok: true, from: 0 });
    // What was pruned does not keep the ledger from starting under the checkpoint that the store has.
    await (await serve(["--log-level", "critical"], { dir })).stop();
  });

  it("retention refuses to prune without a place where pruned records go", async () => {
    const args = [join(root, "dist", "cli", "main.js"), "--dir", join(scratch, "none"), "serve", "--keep-days", "30"];
    const ran = await new Promise<string>((resolve) => {
      execFile(process.execPath, args, (_error, _stdout, stderr) => resolve(stderr));
    });
    expect(ran).toContain("--keep-days and --keep-size need --archive");
  });
});
