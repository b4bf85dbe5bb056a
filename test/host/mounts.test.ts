// Real mounts: FUSE (bindfs, and sshfs over loopback), a hung FUSE daemon, bind mounts.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { executeCmdRun, executeFsRead, parsePolicy } from "../../src/host/index.js";
import { carryOut, type Undo } from "./support/attack-setup.js";
import { canMountFuse, canServeSftp, isRoot, SFTP_SERVER } from "./support/machine.js";
import { makeWorld, ok, rule, SECRET, type World } from "./support/world.js";

const undo: Undo[] = [];
afterEach(async () => {
  for (const back of undo.splice(0).reverse()) await back();
});

const CATALOG = `
  - { id: cat, exec: cat, args: { patterns: [{ value: "[\\\\w./]+" }] }, timeoutMs: 5000 }
  - { id: ls, exec: ls, args: { patterns: [{ value: "[\\\\w./]+" }] }, timeoutMs: 5000 }
`;

function newWorld(): World {
  const world = makeWorld(CATALOG);
  undo.push(() => world.close());
  return world;
}

async function mountFuse(source: string, path: string): Promise<void> {
  const back = await carryOut({ op: "fuse_bindfs", source, path });
  if (back !== undefined) undo.push(back);
}

const noFuse = isRoot ? "bindfs and /dev/fuse" : "root";

describe.skipIf(!canMountFuse())(`FUSE inside a root${canMountFuse() ? "" : ` [not run: needs ${noFuse}]`}`, () => {
  test("a FUSE mount is a network file system for fs.read, fs.write and links that lead there [M2]", async () => {
    const world = newWorld();
    await mountFuse(world.outside, join(world.root, "mnt"));
    await mountFuse(world.outside, join(world.writableRoot, "mnt"));
    symlinkSync("mnt/secret.txt", join(world.root, "relative"));
    symlinkSync(join(world.root, "mnt/secret.txt"), join(world.root, "absolute"));
    for (const path of ["mnt/secret.txt", "relative", "absolute", "src/../mnt/secret.txt"]) {
      expect(rule(await world.read({ path: `${world.root}/${path}` })), path).toBe("denyNetworkFS");
    }
    expect(rule(await world.write({ path: join(world.writableRoot, "mnt/new.txt"), data: "x" }))).toBe("denyNetworkFS");
    expect(rule(await world.write({ path: join(world.writableRoot, "mnt/sub/new.txt"), data: "x" }))).toBe(
      "denyNetworkFS",
    );
    expect(existsSync(join(world.outside, "new.txt"))).toBe(false);
  });

  test("a FUSE mount is not visible to commands", async () => {
    const world = newWorld();
    await mountFuse(world.outside, join(world.root, "mnt"));
    const outcome = await world.run("cat", ["mnt/secret.txt"]);
    expect(ok(outcome).exitCode).toBe(1);
    expect(JSON.stringify(outcome)).not.toContain(SECRET);
    expect(ok(await world.run("ls", ["mnt"])).stdout).toBe("");
  });

  test("no command runs where a FUSE mount cannot be hidden, and the error says why", async () => {
    const world = makeWorld(CATALOG, "", { view: true });
    undo.push(() => world.close());
    expect(ok(await world.run("cat", ["readme.md"])).protections).toMatchObject({ files: "landlock", openMounts: [] });
    const mount = join(world.root, "mnt");
    await mountFuse(world.outside, mount);
    const outcome = await world.run("cat", ["mnt/secret.txt"]);
    expect(rule(outcome)).toBe("sandboxRequired");
    expect(outcome.ok ? "" : outcome.denial.reason).toContain(mount);
    const preferred = makeWorld(CATALOG, "sandbox: preferred", { view: true });
    undo.push(() => preferred.close());
    const other = join(preferred.root, "mnt");
    await mountFuse(preferred.outside, other);
    expect(ok(await preferred.run("cat", ["readme.md"])).protections.openMounts).toEqual([other]);
  });

  test("a FUSE mount that hangs blocks no reader and no command", async () => {
    const world = newWorld();
    const mount = join(world.root, "mnt");
    await mountFuse(world.outside, mount);
    symlinkSync(join(mount, "secret.txt"), join(world.root, "link"));
    const back = await carryOut({ op: "sigstop_fuse", path: mount });
    if (back !== undefined) undo.push(back);
    const paths = Array.from({ length: 10 }, (_, i) =>
      i % 2 === 0 ? join(mount, "secret.txt") : join(world.root, "link"),
    );
    const outcomes = await Promise.all(paths.map((path) => world.read({ path })));
    expect(new Set(outcomes.map(rule))).toEqual(new Set(["denyNetworkFS"]));
    expect(ok(await world.read({ path: join(world.root, "readme.md") })).data).toBe("hello\n");
    expect(ok(await world.run("cat", ["readme.md"])).stdout).toBe("hello\n");
    expect(ok(await world.run("cat", ["mnt/secret.txt"])).exitCode).toBe(1);
  });

  test("a FUSE mount as a root is refused at load, unless the operator allows it", async () => {
    const world = newWorld();
    const mount = join(world.base, "mounted");
    await mountFuse(world.root, mount);
    const refused = parsePolicy(`version: 1\nallowedRoots: ["${mount}"]\n`, "policy.yaml");
    expect(refused.ok ? "" : refused.problems[0]?.message).toContain("lies on fuse");
    const allowed = parsePolicy(`version: 1\ndenyNetworkFS: false\nallowedRoots: ["${mount}"]\n`, "policy.yaml");
    if (!allowed.ok) throw new Error(JSON.stringify(allowed.problems));
    expect(ok(await executeFsRead(allowed.policy, { path: join(mount, "readme.md") })).data).toBe("hello\n");
  });

  test("a FUSE mount over a root after the policy was loaded is detected", async () => {
    const world = newWorld();
    execFileSync("bindfs", ["-o", "nonempty", world.outside, world.root]);
    undo.push(() => void execFileSync("fusermount3", ["-uz", world.root]));
    expect(rule(await world.read({ path: join(world.root, "secret.txt") }))).toBe("denyNetworkFS");
    expect(JSON.stringify(await world.run("cat", ["secret.txt"]))).not.toContain(SECRET);
  });

  test("a FUSE mount over another root than the working directory's is not visible to commands", async () => {
    const world = newWorld();
    const second = join(world.base, "second");
    mkdirSync(second);
    const text = `version: 1\nallowedRoots: ["${world.root}", "${second}"]\ncommands:${CATALOG}`;
    const loaded = parsePolicy(text, join(world.base, "policy.yaml"));
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    const read = () =>
      executeCmdRun(
        loaded.policy,
        { commandId: "cat", args: ["../second/secret.txt"], cwd: world.root },
        { sandbox: world.sandbox },
      );
    writeFileSync(join(second, "secret.txt"), "local\n");
    expect(ok(await read()).stdout).toBe("local\n");
    execFileSync("bindfs", ["-o", "nonempty", world.outside, second]);
    undo.push(() => void execFileSync("fusermount3", ["-uz", second]));
    expect(JSON.stringify(await read())).not.toContain(SECRET);
    const hung = await carryOut({ op: "sigstop_fuse", path: second });
    if (hung !== undefined) undo.push(hung);
    expect(ok(await world.run("cat", ["readme.md"])).stdout).toBe("hello\n");
    expect(ok(await read()).exitCode).toBe(1);
  });
});

const canSshfs = canMountFuse() && canServeSftp();

test.skipIf(!canSshfs)(
  `sshfs is a network file system${canSshfs ? "" : " [not run: needs sshfs, socat and sftp-server]"}`,
  async () => {
    const world = newWorld();
    const port = await freePort();
    const server = spawn("socat", [`TCP-LISTEN:${port},bind=127.0.0.1,reuseaddr,fork`, `EXEC:${SFTP_SERVER}`], {
      stdio: "ignore",
    });
    undo.push(() => void server.kill());
    const mount = join(world.root, "remote");
    mkdirSync(mount);
    for (let i = 0; ; i++) {
      await sleep(100);
      try {
        execFileSync("sshfs", ["-o", `directport=${port}`, `127.0.0.1:${world.outside}`, mount], {
          stdio: "ignore",
          timeout: 5000,
        });
        break;
      } catch (error) {
        if (i === 20) throw error;
      }
    }
    undo.push(() => void execFileSync("fusermount3", ["-uz", mount]));
    expect(readFileSync(join(mount, "secret.txt"), "utf8")).toContain(SECRET);
    const outcome = await world.read({ path: join(mount, "secret.txt") });
    expect(outcome.ok ? "" : outcome.denial.reason).toContain("(fuse.sshfs)");
    expect(rule(outcome)).toBe("denyNetworkFS");
  },
);

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const { port } = server.address() as { port: number };
  await new Promise((done) => server.close(done));
  return port;
}

describe.skipIf(!isRoot)(`bind mounts${isRoot ? "" : " [not run: need root]"}`, () => {
  function bind(source: string, path: string): void {
    mkdirSync(path, { recursive: true });
    execFileSync("mount", ["--bind", source, path]);
    undo.push(() => void execFileSync("umount", ["-l", path]));
  }

  test("a root ends where a bind mount of another file system begins", async () => {
    const world = newWorld();
    bind(world.outside, join(world.root, "bound"));
    bind(world.outside, join(world.writableRoot, "bound"));
    const path = join(world.root, "bound/secret.txt");
    expect(readFileSync(path, "utf8")).toContain(SECRET);
    expect(rule(await world.read({ path }))).toBe("crossesMount");
    expect(rule(await world.write({ path: join(world.writableRoot, "bound/x"), data: "x" }))).toBe("crossesMount");
    expect(ok(await world.run("cat", ["bound/secret.txt"])).stdout).toBe("");
  });

  test("a bind mount that the policy lists itself is a root like any other", async () => {
    const world = newWorld();
    const mount = join(world.root, "bound");
    bind(world.outside, mount);
    const loaded = parsePolicy(`version: 1\nallowedRoots: ["${world.root}", "${mount}"]\n`, "policy.yaml");
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    expect(ok(await executeFsRead(loaded.policy, { path: join(mount, "secret.txt") })).data).toContain(SECRET);
  });

  test("a file mounted over a file is refused", async () => {
    const world = newWorld();
    const target = join(world.root, "innocent.txt");
    writeFileSync(target, "innocent");
    execFileSync("mount", ["--bind", join(world.outside, "secret.txt"), target]);
    undo.push(() => void execFileSync("umount", ["-l", target]));
    expect(rule(await world.read({ path: target }))).toBe("crossesMount");
    expect(ok(await world.run("cat", ["innocent.txt"])).stdout).toBe("innocent");
  });
});
