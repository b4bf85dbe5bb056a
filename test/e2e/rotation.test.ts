// Keys are replaced while gateways run, the seal key is lost, and the store is led back by one level.

import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createSealer, openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Replicas, startReplicas } from "./replicas.js";
import { portcullis, type Serving, serve } from "./serving.js";

const POLICY = "permit (principal, action, resource);";
let base: string;
let upstream: Counting;
let replicas: Replicas | undefined;
let serving: Serving | undefined;

beforeEach(async () => {
  base = mkdtempSync(join(tmpdir(), "portcullis-rotation-"));
  upstream = await counting("one");
});
afterEach(async () => {
  await serving?.stop();
  serving = undefined;
  await replicas?.close();
  replicas = undefined;
  await upstream.close();
  rmSync(base, { recursive: true, force: true });
});

// biome-ignore lint/suspicious/noExplicitAny: answers of commands
function ok(args: readonly string[], input?: string): any {
  const { code, stdout, stderr } = portcullis(["--json", ...args], input === undefined ? {} : { input });
  expect(code, `${args.join(" ")}: ${stderr}`).toBe(0);
  return JSON.parse(stdout);
}

async function statusOf(url: string, token: string, body?: object): Promise<number> {
  const response = await fetch(url, {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${token}`, ...(body ? { "content-type": "application/json" } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  await response.text();
  return response.status;
}
const call = (url: string, token: string): Promise<number> =>
  statusOf(new URL("/tools/read", url).href, token, { text: "x" });

const document = () => ({
  servers: { up: { url: upstream.url, noGuardrail: ["*"], headers: { "x-api-key": "${secret:k}" } } },
});

describe("a key of two running replicas", { timeout: 240_000 }, () => {
  it("each key of two running replicas is replaced by its command, and the old one stops working", async () => {
    replicas = await startReplicas(2, POLICY);
    const { dir, storage, all } = replicas;
    const at = (...args: string[]): string[] => ["--dir", dir, ...args, "--storage", storage];
    const store = await openStorage(storage, { sweepMs: 0 });
    try {
      await store.applications.put("blog", {}, "test");
      ok(at("secret", "set", "blog", "k"), "hunter2");
      await store.applications.put("blog", document(), "test");
      const calls = (token: string): Promise<number[]> => Promise.all(all.map(({ url }) => call(url, token)));
      const within = { timeout: 30_000 };

      // API keys, those of approvers included.
      const one = ok(at("key", "add", "blog", "--name", "agent", "--allow", "invoke(*)", "list"));
      await expect.poll(() => calls(one.token), within).toEqual([200, 200]);
      const two = ok(at("key", "rotate", one.key.id));
      expect(two.key).toMatchObject({ agent: "agent", permissions: one.key.permissions });
      await expect.poll(() => calls(one.token), within).toEqual([401, 401]);
      await expect.poll(() => calls(two.token), within).toEqual([200, 200]);
      const three = ok(at("key", "rotate", two.key.id, "--keep", "1h"));
      await expect.poll(() => calls(three.token), within).toEqual([200, 200]);
      expect(await calls(two.token)).toEqual([200, 200]);
      expect((await store.keys.get(two.key.id))?.expiresAt).toBeGreaterThan(Date.now());

      // Tokens of the admin port.
      for (const [command, file, path] of [
        ["operator-token", "operator.token", "/v1/approvals"],
        ["metrics-token", "metrics.token", "/metrics"],
      ] as const) {
        const read = (): string => readFileSync(join(dir, file), "utf8").trim();
        const admin = (token: string): Promise<number[]> =>
          Promise.all(all.map((replica) => statusOf(new URL(path, replica.admin).href, token)));
        const old = read();
        expect(await admin(old)).toEqual([200, 200]);
        ok(["--dir", dir, "rotate", command]);
        expect(await admin(old)).toEqual([401, 401]);
        expect(await admin(read())).toEqual([200, 200]);
      }

      // The seal key, with the key of request states.
      const sealFile = join(dir, "seal.key");
      const old = createSealer([Buffer.from(readFileSync(sealFile, "utf8").trim(), "base64")]);
      const shared = { app: "~gateway", server: "portcullis", user: "request-state" };
      const before = await store.tokens.get(shared);
      const added = ok(at("rotate", "seal-key", "--add"));
      expect(await calls(three.token)).toEqual([200, 200]);
      expect(ok(at("rotate", "seal-key", "--use", added.added))).toMatchObject({ key: added.added, resealed: 1 });
      expect(readFileSync(sealFile, "utf8").trim().split("\n")).toHaveLength(1);
      for (const sealed of [(await store.secrets.get("blog", "k"))?.sealed, (await store.tokens.get(shared))?.sealed]) {
        expect(old.knows(sealed as Uint8Array)).toBe(false);
      }
      // A change makes the gateways open the secret again.
      ok(at("secret", "set", "blog", "k"), "hunter3");
      await store.applications.put("blog", { ...document(), description: "again" }, "test");
      await expect.poll(() => calls(three.token), within).toEqual([200, 200]);
      ok(at("rotate", "request-state-key"));
      expect((await store.tokens.get(shared))?.version).toBeGreaterThan((before?.version ?? 0) + 1);

      // Signing keys of ledgers that are being written.
      for (const { ledgerDir } of all) {
        const signed = readFileSync(join(ledgerDir, "signing.key"), "utf8");
        const rotated = ok(at("audit", "rotate-key", ledgerDir));
        expect(rotated.old).not.toBe(rotated.new);
        expect(readFileSync(join(ledgerDir, "signing.key"), "utf8")).not.toBe(signed);
        expect(ok(at("audit", "verify", ...all.map((each) => each.ledgerDir))).ok).toBe(true);
      }
      expect(await calls(three.token)).toEqual([200, 200]);
    } finally {
      await store.close();
    }
  });

  it("the key that signs delegations is replaced in its file", () => {
    const first = ok(["--dir", base, "rotate", "delegation-keys"]);
    expect(ok(["--dir", base, "rotate", "delegation-keys"]).gateway).not.toBe(first.gateway);
  });
});

describe("a lost seal key", { timeout: 120_000 }, () => {
  it("a lost seal key is explained at the start, and a reset keeps everything that was not encrypted", async () => {
    const dir = join(base, "data");
    mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
    writeFileSync(join(dir, "policy", "all.cedar"), POLICY);
    const address = `sqlite:${join(dir, "portcullis.db")}`;
    const store = await openStorage(address, { sweepMs: 0 });
    try {
      await store.applications.put("blog", {}, "test");
      ok(["--dir", dir, "secret", "set", "blog", "k"], "hunter2");
      await store.applications.put("blog", { servers: { up: { url: upstream.url, noGuardrail: ["*"] } } }, "test");
      const key = ok(["--dir", dir, "key", "add", "blog", "--name", "agent", "--allow", "invoke(*)", "list"]);
      serving = await serve(["--log-level", "error"], { dir });
      expect(await call(serving.url, key.token)).toBe(200);
      await serving.stop();
      serving = undefined;
      const pins = await store.pins.states("blog", "up");
      expect(pins.length).toBeGreaterThan(0);

      const file = join(dir, "seal.key");
      rmSync(file);
      await expect(serve([], { dir })).rejects.toThrow(/there is no sealing key at .*portcullis secret reset-seal/s);
      expect(portcullis(["--dir", dir, "secret", "set", "blog", "k"], { input: "x" }).stderr).toContain("reset-seal");
      expect(existsSync(file)).toBe(false);
      writeFileSync(file, `${Buffer.alloc(32, 9).toString("base64")}\n`, { mode: 0o600 });
      await expect(serve([], { dir })).rejects.toThrow(/is not the one that sealed .*portcullis secret reset-seal/s);
      rmSync(file);

      expect(portcullis(["--dir", dir, "secret", "reset-seal"]).code).toBe(64);
      expect(ok(["--dir", dir, "secret", "reset-seal", "--yes"])).toEqual({ lost: ["secret blog/k"] });
      expect(ok(["--dir", dir, "secret", "reset-seal", "--yes"])).toEqual({ lost: [] });
      ok(["--dir", dir, "secret", "set", "blog", "k"], "hunter3");
      serving = await serve(["--log-level", "error"], { dir });
      expect(await call(serving.url, key.token)).toBe(200);
      expect(await store.pins.states("blog", "up")).toEqual(pins);
      await expect
        .poll(() => portcullis(["--dir", dir, "audit", "tail", "--all", "-n", "1000", "--json"]).stdout)
        .toContain("store.reset");
      await serving.stop();
      serving = undefined;
      expect(ok(["--dir", dir, "audit", "verify"]).ok).toBe(true);
    } finally {
      await store.close();
    }
  });
});

describe("the way back by one version", { timeout: 120_000 }, () => {
  it("a downgrade by one version migrates the tables back after a copy, and the copy of an upgrade can be restored", async () => {
    const dir = join(base, "data");
    const open = () => openStorage(`sqlite:${join(dir, "portcullis.db")}`, { sweepMs: 0 });
    const store = await open();
    await store.applications.put("blog", {}, "test");
    const { level } = store.dumps;
    await store.close();
    const back = ok(["--dir", dir, "store", "downgrade", "--yes"]);
    expect(back).toMatchObject({ level: level - 1 });
    expect(ok(["backup", "verify", back.backup])).toMatchObject({ ok: true, store: { level } });
    // The next command is of the newer version again: it backs the store up and leads it forward.
    expect(ok(["--dir", dir, "store", "level"])).toMatchObject({ level });
    const before = readdirSync(join(dir, "backups")).find((name) => name.startsWith(`store-level-${level - 1}-`));
    const copy = join(dir, "backups", before as string);
    expect(ok(["backup", "verify", copy])).toMatchObject({ store: { level: level - 1 } });
    expect(ok(["restore", copy, "--data-dir", join(base, "other")]).applicationsBack).toEqual(["blog"]);
    const again = await open();
    expect((await again.applications.get("blog"))?.revision).toBe(1);
    await again.close();
  });
});

describe("portcullis secret reseal", () => {
  it("portcullis secret reseal encrypts secrets with the first key, so that the older key is not needed any more", async () => {
    const at = (...args: string[]): string[] => ["--dir", base, ...args];
    ok(at("app", "add", "blog"));
    ok(at("secret", "set", "blog", "db"), "hunter2");
    const file = join(base, "seal.key");
    const old = readFileSync(file, "utf8").trim();
    const fresh = randomBytes(32).toString("base64");
    writeFileSync(file, `${fresh}\n${old}\n`, { mode: 0o600 });
    expect(ok(at("secret", "reseal", "blog")).resealed).toHaveLength(1);
    expect(ok(at("secret", "reseal", "blog")).resealed).toEqual([]);
    const store = await openStorage(`sqlite:${join(base, "portcullis.db")}`, { sweepMs: 0 });
    try {
      const found = await store.secrets.get("blog", "db");
      const sealer = createSealer([Buffer.from(fresh, "base64")]);
      expect(found && sealer.open({ kind: "secret", app: "blog", name: "db" }, found.sealed)).toBe("hunter2");
    } finally {
      await store.close();
    }
  });
});
