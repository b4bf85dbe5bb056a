// The response to a leaked credential, as docs/guides/leaked-keys.md gives it: each test runs the commands of its section
// with the real command and shows that the old credential is worthless.

import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { makeKey, publicKeyText } from "../../scripts/release/signing.mjs";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Releases, startReleases, stub } from "./releases.js";
import { portcullis, root, type Serving, serve } from "./serving.js";

const guide = readFileSync(join(root, "docs", "guides", "leaked-keys.md"), "utf8");

let base: string;
let dir: string;
let upstream: Counting;
let releases: Releases | undefined;
let ran: Set<string>;
const running: Serving[] = [];

beforeEach(async () => {
  base = mkdtempSync(join(tmpdir(), "portcullis-leaked-"));
  dir = join(base, ".portcullis");
  ran = new Set();
  mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  upstream = await counting("leaked");
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  await storage.applications.put("blog", { servers: { up: { url: upstream.url, noGuardrail: ["*"] } } }, "test");
  const auth = { type: "oauth" } as const;
  await storage.applications.put("docs", { servers: { wiki: { url: "https://mcp.example.com/", auth } } }, "test");
  await storage.close();
});
afterEach(async () => {
  await stop();
  await releases?.stop();
  releases = undefined;
  await upstream.close();
  rmSync(base, { recursive: true, force: true });
});

/** The commands of a section that start with `word`, as they are written there. */
function commandsOf(section: string, word: string): string[] {
  const text = guide.split(/^## /m).find((part) => part.startsWith(`${section}\n`)) ?? "";
  const blocks = [...text.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map((block) => block[1] as string);
  return blocks.flatMap((block) => block.split("\n")).filter((line) => line.startsWith(`${word} `));
}

/** Runs a command of the guide, its placeholders filled in. */
function run(template: string, values: Record<string, string> = {}, input?: string): string {
  ran.add(template);
  const words = template.split(" ").slice(1);
  const args = words.map((word) => values[word] ?? word);
  const done = portcullis(["--json", "--dir", dir, ...args], { cwd: base, ...(input === undefined ? {} : { input }) });
  expect(done.code, `${template}: ${done.stderr}`).toBe(0);
  return done.stdout;
}

async function start(): Promise<Serving> {
  ran.add("portcullis serve");
  const serving = await serve(["--log-level", "error"], { dir });
  running.push(serving);
  return serving;
}
async function stop(): Promise<void> {
  for (const each of running.splice(0)) await each.stop();
}

async function statusOf(url: string, token: string, body?: object): Promise<number> {
  const response = await fetch(url, {
    method: body === undefined ? "GET" : "POST",
    headers: {
      authorization: `Bearer ${token}`,
      // Commands block this process, and the gateway closes an idle connection meanwhile.
      connection: "close",
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  await response.text();
  return response.status;
}
const call = (serving: Serving, token: string): Promise<number> =>
  statusOf(new URL("/tools/read", serving.url).href, token, { text: "x" });
const adminStatus = (serving: Serving, path: string, token: string): Promise<number> =>
  statusOf(new URL(path, serving.admin).href, token);

function newKey(): { token: string; key: { id: string } } {
  const template = "portcullis key add APP --name NAME --allow PERMISSION";
  return JSON.parse(run(template, { APP: "blog", NAME: "agent", PERMISSION: "invoke(*)" }));
}

describe("the response to a leaked key", { timeout: 120_000 }, () => {
  it("a revoked API key is refused by the running gateway and reaches no server [H5]", async () => {
    const leaked = newKey();
    const serving = await start();
    expect([await call(serving, leaked.token), upstream.calls]).toEqual([200, ["read"]]);
    run("portcullis key revoke KEY_ID", { KEY_ID: leaked.key.id });
    await expect.poll(() => call(serving, leaked.token), { timeout: 30_000 }).toBe(401);
    upstream.calls.length = 0;
    expect([await call(serving, leaked.token), upstream.calls]).toEqual([401, []]);
    expect(await call(serving, newKey().token)).toBe(200);
    const keys = JSON.parse(run("portcullis key ls APP", { APP: "blog" })) as {
      id: string;
      revoked_at: string | null;
    }[];
    expect(keys.find(({ id }) => id === leaked.key.id)?.revoked_at).toMatch(/^\d{4}-/);
    expect(run("portcullis audit tail --lines 1000")).toContain("blog/agent");
    for (const command of commandsOf("API key", "portcullis")) expect(ran).toContain(command);
  });

  it("the running gateway refuses the old operator token and the old metrics token after their rotation", async () => {
    const serving = await start();
    for (const [section, command, file, path] of [
      ["Operator token", "portcullis rotate operator-token", "operator.token", "/v1/approvals"],
      ["Metrics token", "portcullis rotate metrics-token", "metrics.token", "/metrics"],
    ] as const) {
      const leaked = readFileSync(join(dir, file), "utf8").trim();
      expect(await adminStatus(serving, path, leaked)).toBe(200);
      run(command);
      const fresh = readFileSync(join(dir, file), "utf8").trim();
      expect(fresh).not.toBe(leaked);
      expect([await adminStatus(serving, path, leaked), await adminStatus(serving, path, fresh)]).toEqual([401, 200]);
      if (section === "Operator token") run("portcullis audit tail --lines 1000 --all");
      for (const each of commandsOf(section, "portcullis")) expect(ran).toContain(each);
    }
  });

  it("a gateway runs and starts without the old seal key after it was rotated [H5]", async () => {
    const file = join(dir, "seal.key");
    const { token } = newKey();
    run("portcullis secret set APP NAME", { APP: "blog", NAME: "db" }, "hunter2");
    const serving = await start();
    const requestStateKey = await storedRequestStateKey();
    const leaked = readFileSync(file, "utf8").trim();
    expect(JSON.parse(run("portcullis rotate seal-key"))).toMatchObject({ file });
    run("portcullis rotate request-state-key --at-once");
    expect(readFileSync(file, "utf8")).not.toContain(leaked);
    expect(await storedRequestStateKey()).not.toEqual(requestStateKey);
    expect(await call(serving, token)).toBe(200);
    await stop();
    expect(await call(await start(), token)).toBe(200);
    run("portcullis secret set APP NAME", { APP: "blog", NAME: "db" }, "hunter3");
    run("portcullis app logout APP SERVER", { APP: "docs", SERVER: "wiki" });
    // A login needs a browser and an authorization server; test/e2e/oauth-downstream.test.ts has both.
    expect(portcullis(["app", "login", "--help"]).stdout).toContain("<app> <server>");
    ran.add("portcullis app login APP SERVER");
    for (const command of commandsOf("Seal key", "portcullis")) expect(ran).toContain(command);
  });

  it("a ledger that only the old signing key signed is not accepted under the new one [U9]", async () => {
    const { token } = newKey();
    const serving = await start();
    expect(await call(serving, token)).toBe(200);
    const ledger = join(dir, "ledger");
    await expect.poll(() => existsSync(join(ledger, "checkpoint")), { timeout: 30_000 }).toBe(true);
    const kept = join(base, "kept.checkpoint");
    cpSync(join(ledger, "checkpoint"), kept);
    const before = join(base, "before");
    cpSync(ledger, before, { recursive: true });
    run("portcullis audit verify --checkpoint CHECKPOINT_FILE", { CHECKPOINT_FILE: kept });
    const leaked = readFileSync(join(ledger, "signing.key"), "utf8");
    const changed = JSON.parse(run("portcullis audit rotate-key")) as { old: string; new: string };
    expect(readFileSync(join(ledger, "signing.key"), "utf8")).not.toBe(leaked);
    expect(existsSync(join(ledger, "signing.key.rotate"))).toBe(false);
    run("portcullis audit verify --key NEW_PUBLIC_KEY", { NEW_PUBLIC_KEY: changed.new });
    expect(portcullis(["audit", "verify", before, "--key", changed.old]).code).toBe(0);
    expect(portcullis(["audit", "verify", before, "--key", changed.new]).code).toBe(1);
    expect(await call(serving, token)).toBe(200);
    await stop();
    run("portcullis audit verify --checkpoint CHECKPOINT_FILE", { CHECKPOINT_FILE: kept });
    for (const command of commandsOf("Ledger signing key", "portcullis")) expect(ran).toContain(command);
  });

  it("an update that names the new release key refuses what the old one signed [M9]", async () => {
    releases = await startReleases(base);
    const { url, keyFile } = releases;
    const home = join(base, "home");
    const bring = (verb: string, key: string): Promise<number | null> => {
      const args = [verb, "--dest", home, "--from", url, "--key", key];
      const child = spawn(process.execPath, [join(root, "dist", "cli", "main.js"), ...args], { stdio: "ignore" });
      return new Promise((resolve) => child.on("close", resolve));
    };
    const current = (): string => readFileSync(join(home, "current"), "utf8").trim();
    releases.small("1.0.0", stub("1.0.0"));
    expect(await bring("install", keyFile)).toBe(0);
    const fresh = makeKey();
    const freshFile = join(base, "new-release.pub");
    writeFileSync(freshFile, publicKeyText(fresh));
    // Signed by the leaked key: not accepted by an installation that was given the new one.
    releases.small("1.1.0", stub("1.1.0"));
    expect([await bring("update", freshFile), current()]).toEqual([1, "1.0.0"]);
    releases.small("1.1.1", stub("1.1.1"), { key: fresh });
    expect([await bring("update", keyFile), current()]).toEqual([1, "1.0.0"]);
    expect([await bring("update", freshFile), current()]).toEqual([0, "1.1.1"]);
    expect(commandsOf("Release signing key", "portcullis")).toEqual(["portcullis update --key PUBLIC_KEY_FILE"]);
  });
});

async function storedRequestStateKey(): Promise<string> {
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  const stored = await storage.tokens.get({ app: "~gateway", server: "portcullis", user: "request-state" });
  await storage.close();
  return Buffer.from(stored?.sealed ?? []).toString("hex");
}
