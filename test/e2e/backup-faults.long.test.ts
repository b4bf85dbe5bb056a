// What a backup and a restore leave behind when they are killed, and backups that are damaged, incomplete or of another version.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openLedger } from "../../src/ledger/index.js";
import { pack, unpackBackup } from "../../src/runtime/backup/archive.js";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { portcullis, root, type Serving, serve } from "./serving.js";

const main = join(root, "dist", "cli", "main.js");
const CALLS = 5_000;
const KILLS_AFTER_MS = [0, 30, 100, 250, 500];
const POLICY = `
  permit (principal, action, resource);
  @id("ask") @outcome("challenge") @approvers("operators")
  forbid (principal, action == Action::"write", resource) unless { context.approved };
`;

let base: string;
let dir: string;
let token: string;
let upstream: Counting;
let running: Serving | undefined;

// biome-ignore lint/suspicious/noExplicitAny: answers of commands
function ok(args: readonly string[]): any {
  const { code, stdout, stderr } = portcullis(["--json", ...args]);
  expect(code, `${args.join(" ")}: ${stderr}`).toBe(0);
  return JSON.parse(stdout);
}

function refused(args: readonly string[]): string {
  const { code, stderr } = portcullis(args);
  expect(code, args.join(" ")).not.toBe(0);
  return stderr;
}

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), "portcullis-backup-faults-"));
  dir = join(base, "data");
  mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), POLICY);
  upstream = await counting("one");
  const store = await openStorage(`sqlite:${join(dir, "portcullis.db")}`, { sweepMs: 0 });
  await store.applications.put("blog", { servers: { up: { url: upstream.url, noGuardrail: ["*"] } } }, "test");
  await store.close();
  ({ token } = ok(["--dir", dir, "key", "add", "blog", "--name", "agent", "--allow", "invoke(*)", "list"]));
  await start(dir);
  await stop();
  const [origin = ""] = readFileSync(join(dir, "ledger", "checkpoint"), "utf8").split("\n");
  const ledger = await openLedger({ dir: join(dir, "ledger"), origin });
  const shared = { trace: "0".repeat(32), actor: "blog/agent", tool: "read", args_cid: "bafy" };
  for (let i = 0; i < CALLS; i += 500) {
    const some = Array.from({ length: 500 }, (_, n) => `call-${i + n}`);
    await Promise.all(
      some.map((call) =>
        ledger.append({
          ...shared,
          kind: "outcome",
          call,
          outcome: "ok",
          latency_ms: 1,
          bytes: 1,
          detail: { text: "x".repeat(800) },
        }),
      ),
    );
  }
  await ledger.close();
});
afterAll(async () => {
  await stop();
  await upstream?.close();
  rmSync(base, { recursive: true, force: true });
});

async function start(at: string): Promise<Serving> {
  running = await serve(["--log-level", "error", "--challenge-wait", "0"], { dir: at });
  return running;
}
async function stop(): Promise<void> {
  await running?.stop();
  running = undefined;
}

async function call(url: string, tool: string, text = "x"): Promise<number> {
  const response = await fetch(new URL(`/tools/${tool}`, url), {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ text }),
  });
  await response.text();
  return response.status;
}

function passphrase(): string[] {
  const file = join(base, "passphrase");
  writeFileSync(file, "correct horse battery staple", { mode: 0o600 });
  return ["--passphrase-file", file];
}

const partsIn = (kind: "part" | "restore"): string[] =>
  readdirSync(base).filter((name) => new RegExp(`\\.${kind}-\\w{6}$`).test(name));

/** Its last byte was written before the kill: gzip says so itself, and such an archive is a backup. */
function isWhole(archive: string): boolean {
  try {
    return gunzipSync(readFileSync(archive)).length > 0;
  } catch {
    return false;
  }
}

/** What a killed backup left is a whole backup, or is refused and changes nothing. */
function expectWholeOrRefused(archive: string): void {
  const target = mkdtempSync(join(base, "from-part-"));
  const args = ["restore", archive, "--data-dir", join(target, "data"), "--without-keys"];
  if (isWhole(archive)) {
    ok(["backup", "verify", archive]);
    expect(ok(args).ledgers[0].size).toBeGreaterThan(CALLS);
    expect(ok(["--dir", join(target, "data"), "audit", "verify"])).toMatchObject({ ok: true });
  } else {
    expect(refused(args)).toContain(archive);
    expect(readdirSync(target)).toEqual([]);
  }
  rmSync(target, { recursive: true });
}

/** Starts a command and kills it so long after its work directory is there, or when that holds this entry. */
async function killed(args: readonly string[], kind: "part" | "restore", when: number | string): Promise<void> {
  const before = new Set(partsIn(kind));
  const child: ChildProcess = spawn(process.execPath, [main, "--json", ...args], { stdio: "ignore" });
  const gone = new Promise((resolve) => child.once("exit", resolve));
  const deadline = performance.now() + 60_000;
  const entry = typeof when === "string" ? when : "";
  const isThere = (): boolean => partsIn(kind).some((name) => !before.has(name) && existsSync(join(base, name, entry)));
  while (!isThere() && child.exitCode === null && performance.now() < deadline) await sleep(2);
  if (typeof when === "number") await sleep(when);
  child.kill("SIGKILL");
  await gone;
}

/** A module that kills its process before the nth use of a path that ends so. */
const killBefore = (method: string, end: string, nth = 1): string => `
  import fs from "node:fs";
  import { syncBuiltinESMExports } from "node:module";
  let uses = 0;
  for (const name of ${JSON.stringify(method.split(","))}) {
    const [owner, last] = name.startsWith("promises.") ? [fs.promises, name.slice(9)] : [fs, name];
    const original = owner[last];
    owner[last] = (path, ...rest) => {
      if (String(path).endsWith(${JSON.stringify(end)}) && ++uses === ${nth}) process.kill(process.pid, "SIGKILL");
      return original.call(owner, path, ...rest);
    };
  }
  syncBuiltinESMExports();
`;

/** A backup whose entries were changed; `change` gets the directory with them and its manifest. */
// biome-ignore lint/suspicious/noExplicitAny: a manifest to be changed
async function changedBackup(name: string, change: (folder: string, manifest: any) => void): Promise<string> {
  const plain = join(base, "plain.backup");
  if (!existsSync(plain)) ok(["--dir", dir, "backup", "--without-keys", plain]);
  const folder = join(base, `${name}-entries`);
  await unpackBackup(plain, folder);
  const manifest = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
  change(folder, manifest);
  writeFileSync(join(folder, "manifest.json"), JSON.stringify(manifest));
  const all = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name).slice(folder.length + 1))
    .filter((entry) => entry !== "manifest.json");
  const file = join(base, `${name}.backup`);
  await pack(file, folder, [...all, "manifest.json"]);
  return file;
}

describe("a backup that is killed", { timeout: 240_000 }, () => {
  it("a backup that is killed leaves no file that looks like a backup, and the next one is whole and removes what was left", async () => {
    // `read` is there while the archive is whole and does not have its name yet.
    for (const when of [...KILLS_AFTER_MS, "archive", "read"]) {
      const file = join(base, `killed-${when}.backup`);
      await killed(["--dir", dir, "backup", "--without-keys", file], "part", when);
      if (existsSync(file)) ok(["backup", "verify", file]);
      for (const part of partsIn("part")) {
        const archive = join(base, part, "archive");
        if (existsSync(archive)) expectWholeOrRefused(archive);
      }
    }
    const { file } = ok(["--dir", dir, "backup", "--without-keys", join(base, "next.backup")]);
    expect(ok(["backup", "verify", file])).toMatchObject({ ok: true });
    expect(partsIn("part")).toEqual([]);
  });

  it("a backup that is killed while it removes its work leaves nothing that the next one does not remove", () => {
    for (const entry of ["files", "read", "store.ndjson"]) {
      const file = join(base, `removing-${entry}.backup`);
      const methods = "rmSync,unlinkSync,rmdirSync";
      const hook = `data:text/javascript,${encodeURIComponent(killBefore(methods, `/${entry}`))}`;
      spawnSync(process.execPath, ["--import", hook, main, "--dir", dir, "backup", "--without-keys", file]);
      ok(["backup", "verify", file]);
      expect(partsIn("part")).toHaveLength(1);
      ok(["--dir", dir, "backup", "--without-keys", `${file}.next`]);
      expect(partsIn("part")).toEqual([]);
    }
  });
});

describe("a restore that is killed", { timeout: 240_000 }, () => {
  it("a restore that is killed can be repeated, and the gateway then serves what was backed up", async () => {
    const { file } = ok(["--dir", dir, "backup", join(base, "restored.backup"), ...passphrase()]);
    for (const afterMs of KILLS_AFTER_MS) {
      const target = join(base, `target-${afterMs}`);
      await killed(["restore", file, "--data-dir", target, ...passphrase()], "restore", afterMs);
      ok(["restore", file, "--data-dir", target, "--replace", ...passphrase()]);
      expect(ok(["--dir", target, "audit", "verify"])).toMatchObject({ ok: true });
      const { url } = await start(target);
      expect(await call(url, "read")).toBe(200);
      await stop();
    }
    expect(partsIn("restore")).toEqual([]);
  });

  it.each([
    ["before the ledger has its records", "promises.cp", "/ledgers/0/tiles", 1],
    ["before the ledger is complete", "promises.cp", "/ledgers/0", 1],
    ["before the restore is on record", "chmodSync", "/ledger", 1],
    // It was read before, for its hash and for its rows.
    ["before the store is loaded", "createReadStream", "/store.ndjson", 3],
  ])("a restore of a ledger that had gone further is repeated after a kill %s", async (_, method, path, nth) => {
    const target = join(base, "further");
    const backup = join(base, "further.backup");
    rmSync(backup, { force: true });
    rmSync(target, { recursive: true, force: true });
    ok(["--dir", dir, "backup", backup, ...passphrase()]);
    ok(["restore", backup, "--data-dir", target, ...passphrase()]);
    const { url } = await start(target);
    for (let i = 0; i < 5; i++) expect(await call(url, "read")).toBe(200);
    await stop();
    rmSync(join(target, "ledger"), { recursive: true });
    const args = ["restore", backup, "--data-dir", target, "--replace", ...passphrase()];
    const hook = `data:text/javascript,${encodeURIComponent(killBefore(method, path, nth))}`;
    const { signal } = spawnSync(process.execPath, ["--import", hook, main, ...args], { encoding: "utf8" });
    expect(signal).toBe("SIGKILL");
    expect(ok(args).ledgers).toMatchObject([{ state: "restored" }]);
    const again = await start(target);
    expect(await call(again.url, "read")).toBe(200);
    await stop();
    expect(ok(["--dir", target, "audit", "verify"]).notes.join("\n")).toMatch(
      /restored from backup .* had been signed/,
    );
  });
});

describe("a backup that cannot be restored", { timeout: 120_000 }, () => {
  const refusal = (file: string): string => {
    const target = join(base, "never");
    const message = refused(["restore", file, "--data-dir", target]);
    expect(message).toContain(file);
    expect(refused(["backup", "verify", file])).toContain(file);
    expect(existsSync(target)).toBe(false);
    return message;
  };

  it("a backup that cannot be restored is refused with the name of the backup and of the entry that is missing or changed", async () => {
    let removed = "";
    const missing = await changedBackup("missing", (folder, { ledgers }) => {
      removed = ledgers[0].files[0].entry;
      rmSync(join(folder, removed));
    });
    expect(refusal(missing)).toContain(`${removed} is missing`);
    let changed = "";
    const other = await changedBackup("changed", (folder, { files }) => {
      changed = files[0].entry;
      writeFileSync(join(folder, changed), "permit (principal, action, resource);");
    });
    expect(refusal(other)).toContain(changed);
    const extra = await changedBackup("extra", (folder) => writeFileSync(join(folder, "files", "more"), "x"));
    expect(refusal(extra)).toContain("files/more is not in its manifest");
    const bytes = readFileSync(missing);
    writeFileSync(join(base, "cut.backup"), bytes.subarray(0, bytes.length / 2));
    expect(refusal(join(base, "cut.backup"))).toContain("use another backup");
    expect(refusal(join(base, "nowhere.backup"))).toContain("ENOENT");
  });

  it("a backup that cannot be restored is refused with the remedy when a newer version wrote it", async () => {
    const form = await changedBackup("newer-form", (_, manifest) => {
      manifest.portcullis_backup = 2;
      manifest.version = "99.0.0";
    });
    expect(refusal(form)).toMatch(/99\.0\.0[\s\S]*update portcullis/);
    const level = await changedBackup("newer-level", (folder, { store }) => {
      const path = join(folder, store.entry);
      const [header = "", ...rest] = readFileSync(path, "utf8").split("\n");
      const text = [JSON.stringify({ ...JSON.parse(header), level: store.level + 1 }), ...rest].join("\n");
      writeFileSync(path, text);
      store.level += 1;
      store.bytes = Buffer.byteLength(text);
      store.sha256 = createHash("sha256").update(text).digest("hex");
    });
    expect(refusal(level)).toMatch(/level \d+[\s\S]*update portcullis/);
  });
});

describe("approvals in a backup", { timeout: 120_000 }, () => {
  it("approvals in a backup run no call after the restore that was open, approved or run when the backup was made", async () => {
    const ask = async (
      path: string,
      body?: object,
    ): Promise<{ approvals: { id: string; arguments_preview: string }[] }> => {
      const { admin = "", dir: at } = running as Serving;
      const operator = readFileSync(join(at, "operator.token"), "utf8").trim();
      const response = await fetch(new URL(path, admin), {
        method: body ? "POST" : "GET",
        // Commands block this process, and the gateway closes an idle connection meanwhile.
        headers: { authorization: `Bearer ${operator}`, "content-type": "application/json", connection: "close" },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      return (await response.json()) as Awaited<ReturnType<typeof ask>>;
    };
    const { url } = await start(dir);
    const approve = async (text: string): Promise<void> => {
      const { approvals } = await ask("/v1/approvals");
      const id = approvals.find((each) => each.arguments_preview.includes(`"${text}"`))?.id;
      await ask(`/v1/approvals/${id}/approve`, { reason: "fine" });
    };
    for (const text of ["open", "approved", "spent"]) expect(await call(url, "write", text)).not.toBe(200);
    await approve("approved");
    await approve("spent");
    expect(await call(url, "write", "spent")).toBe(200);
    const { file } = ok(["--dir", dir, "backup", join(base, "approvals.backup"), ...passphrase()]);
    // What was open is approved and run once after the backup, before the store is lost.
    await approve("open");
    for (const text of ["open", "approved"]) expect(await call(url, "write", text)).toBe(200);
    const written = (): number => upstream.calls.filter((name) => name === "write").length;
    expect(written()).toBe(3);
    await stop();
    const other = join(base, "other");
    expect(ok(["restore", file, "--data-dir", other, ...passphrase()])).toMatchObject({ expiredApprovals: 2 });
    ok(["restore", file, "--data-dir", dir, "--replace", ...passphrase()]);
    for (const at of [other, dir]) {
      const again = await start(at);
      for (const text of ["open", "approved", "spent"]) expect(await call(again.url, "write", text)).not.toBe(200);
      // Each call waits for an approval of its own again.
      expect((await ask("/v1/approvals?state=pending")).approvals).toHaveLength(3);
      await stop();
    }
    expect(written()).toBe(3);
  });
});
