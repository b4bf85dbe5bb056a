// Applications, keys and secrets as an operator handles them: the built command, a store in a folder, and a gateway's
// part of the store in another process.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ApiKeyCache } from "../../src/auth/index.js";
import { createSealer, loadSealKeys, openStorage, type Storage, type StoreChange } from "../../src/storage/index.js";
import { portcullis, type Ran, root } from "./serving.js";

const SECRET = "correct-horse-battery-staple";

describe("the registry", () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-registry-"));
  const said: string[] = [];
  let storage: Storage;
  const run = (args: readonly string[], input?: string): Ran => {
    const ran = portcullis(["--dir", dir, ...args], input === undefined ? {} : { input });
    said.push(ran.stdout, ran.stderr);
    return ran;
  };
  const data = (args: readonly string[], input?: string): unknown => JSON.parse(run(["--json", ...args], input).stdout);
  const within = async (ms: number, check: () => boolean): Promise<void> => {
    for (const end = performance.now() + ms; !check(); ) {
      if (performance.now() > end) throw new Error(`not within ${ms} ms`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  beforeAll(async () => {
    storage = await openStorage(`sqlite:${dir}/portcullis.db`);
  });
  afterAll(async () => {
    await storage.close();
    rmSync(dir, { recursive: true, force: true });
  });

  it("the registry holds applications that are changed field by field, and other processes are notified with actor and change [H5]", async () => {
    const heard: StoreChange[] = [];
    const stop = await storage.feed.watch({ change: (change) => heard.push(change), resync: () => {} });
    expect(run(["app", "add", "blog", "--description", "the blog"]).code).toBe(0);
    run(["app", "set", "blog", "/servers/s3", '{"command":"npx"}']);
    expect(run(["app", "set", "blog", "limits.app.perMinute", "many"])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("limits.app.perMinute: must be a whole number"),
    });
    expect(data(["app", "show", "blog"])).toMatchObject({
      revision: 2,
      document: { servers: { s3: { command: "npx" } } },
    });
    await within(2_000, () => heard.length === 2);
    expect(heard[0]).toMatchObject({ topic: "application", action: "put", app: "blog" });
    expect(heard[0]?.by).toMatch(/^cli:./);
    stop();
  });

  it("the registry stores no rules that a gateway could not load [H5]", async () => {
    const { revision } = (await storage.applications.get("blog")) as { revision: number };
    const rules = JSON.stringify({ "all.cedar": "permit(principal,action,resource) when { nonsense };" });
    const refused = run(["app", "set", "blog", "policies", rules]);
    expect(refused).toMatchObject({ code: 3, stdout: "", stderr: expect.stringContaining("all.cedar:1:42: invalid") });
    const file = join(dir, "bad.yaml");
    writeFileSync(join(dir, "bad.cedar"), "permit(principal, action, resource;\n");
    writeFileSync(file, "applications:\n  blog: { policies: [bad.cedar] }\n");
    const applied = run(["app", "apply", file, "--yes"]);
    expect(applied).toMatchObject({ code: 3, stderr: expect.stringContaining("bad.cedar:1:35: ") });
    expect((await storage.applications.get("blog"))?.revision).toBe(revision);
    expect(run(["app", "set", "blog", "filesystem", '{"allowedRoots":["/nonexistent"]}'])).toMatchObject({
      code: 0,
      stderr: expect.stringContaining("on this machine core.filesystem and core.linux cannot be used"),
    });
    expect(run(["app", "set", "blog", "filesystem", "--unset"]).code).toBe(0);
  });

  it("the registry shows and exports no credential that stands in arguments, and takes no address with one [H5]", () => {
    const literal = "stands-there-in-clear";
    const args = ["run", "-e", `DB_PASSWORD=${literal}`, "--api-key", literal, "node:20"];
    run(["app", "add", "clear"]);
    const set = run(["app", "set", "clear", "/servers/x", JSON.stringify({ command: "docker", args })]);
    expect(set.stderr).toContain("servers.x.args holds what looks like a credential");
    expect(run(["app", "show", "clear"]).stdout).toContain("DB_PASSWORD=[hidden]");
    expect(run(["export", "--app", "clear"]).stdout).toContain("DB_PASSWORD=${secret:x.DB_PASSWORD}");
    const url = JSON.stringify({ url: `https://u:${literal}@host/?api_key=${literal}` });
    expect(run(["app", "set", "clear", "/servers/y", url])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("servers.y.url: holds a credential in clear"),
    });
    expect(run(["app", "rm", "clear", "--yes"]).code).toBe(0);
    expect(said.join("").includes(literal)).toBe(false);
  });

  it("the registry takes a secret from a pipe, and never prints it [H5]", async () => {
    expect(run(["secret", "set", "blog", "TOKEN"], `${SECRET}\n`)).toMatchObject({ code: 0 });
    expect(data(["secret", "ls", "blog"])).toEqual([{ name: "TOKEN", updated_at: expect.any(String) }]);
    const sealed = (await storage.secrets.get("blog", "TOKEN"))?.sealed as Uint8Array;
    const sealer = createSealer(loadSealKeys({ defaultFile: join(dir, "seal.key"), env: {} }));
    expect(sealer.open({ kind: "secret", app: "blog", name: "TOKEN" }, sealed)).toBe(SECRET);
    // By another process: opening and closing the store's file in this one would drop SQLite's locks on it.
    const script = `for (const file of process.argv.slice(2)) if (require("fs").readFileSync(file).includes(process.argv[1])) process.exit(7)`;
    const files = readdirSync(dir).filter((name) => name.startsWith("portcullis.db"));
    const search = [SECRET, ...files.map((name) => join(dir, name))];
    expect(spawnSync(process.execPath, ["-e", script, ...search]).status).toBe(0);
    expect(files).toContain("portcullis.db-wal");
    expect(said.join("").includes(SECRET)).toBe(false);
  });

  it("the registry shows a key once, stores only its hash, and ends it at once in every process [G6]", async () => {
    const ring = await ApiKeyCache.open({ storage });
    const made = data([
      "key",
      "add",
      "blog",
      "--name",
      "ci",
      "--allow",
      "invoke(s3.*)",
      "list",
      "--expires",
      "90d",
    ]) as {
      token: string;
      key: { id: string };
    };
    await within(1_000, () => ring.size === 1);
    expect(await ring.find(made.token)).toMatchObject({ principal: { app: "blog", agent: "ci" } });
    const listed = JSON.stringify(data(["key", "ls", "blog"]));
    expect(listed).toContain(made.key.id);
    expect(listed).not.toContain(made.token);
    expect(JSON.stringify(await storage.keys.get(made.key.id))).not.toContain(made.token);
    expect(run(["key", "revoke", made.key.id]).code).toBe(0);
    await within(1_000, () => ring.size === 0);
    expect(await ring.find(made.token)).toBeUndefined();
    await ring.close();
  });

  it("the registry creates no key that both calls and approves", () => {
    const ran = run(["key", "add", "blog", "--name", "both", "--allow", "approve(operators)", "invoke(*)"]);
    expect(ran).toMatchObject({ code: 1, stdout: "", stderr: expect.stringContaining("can do nothing else") });
  });

  it("apply shows the difference to portcullis.yaml first, changes nothing without confirmation, and everything with it [H5]", async () => {
    const file = join(dir, "portcullis.yaml");
    const text = readFileSync(join(root, "examples", "portcullis.yaml"), "utf8")
      .replace("storage: ${env:DATABASE_URL}\n", "")
      .replace("./policies", join(root, "examples", "policies"));
    writeFileSync(file, text);
    const before = run(["app", "apply", file]);
    expect(before).toMatchObject({ code: 64, stderr: expect.stringContaining("--yes") });
    expect((await storage.applications.get("blog"))?.revision).toBe(4);
    const applied = run(["app", "apply", file, "--yes"]);
    expect(applied.stderr).toContain("portcullis secret set blog AWS_ACCESS_KEY_ID");
    expect((await storage.applications.get("blog"))?.document.policies).toMatchObject({
      "policies/policies/blog.cedar": expect.stringContaining("deleteObject"),
    });
    writeFileSync(file, text.replace("perMinute: 600", "perMinute: lots"));
    expect(run(["app", "apply", file, "--yes"])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/portcullis\.yaml:\d+:\d+: applications\.blog\.limits\.app\.perMinute: must be/),
    });
  });

  it("removing an application removes everything of it", async () => {
    expect(run(["app", "rm", "blog", "--yes"])).toMatchObject({ code: 0 });
    expect([await storage.secrets.get("blog", "TOKEN"), (await storage.keys.list()).items]).toEqual([undefined, []]);
    expect(existsSync(join(dir, "portcullis.db"))).toBe(true);
  });
});
