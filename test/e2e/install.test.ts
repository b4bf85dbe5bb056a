// Install → update → broken update → rollback by itself → forgeries refused: real archives, real signatures, a release
// server on this machine, and the installed command started by its shim. Policy and ledger lie beside it, untouched.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { makeKey, releaseComment } from "../../scripts/release/signing.mjs";
import { homeAt } from "../../src/integrations/install/home.js";
import { withLock } from "../../src/integrations/install/lock.js";
import { bringIn, look } from "../../src/integrations/install/operations.js";
import { parsePublicKey } from "../../src/integrations/install/release.js";
import { type Releases, startReleases, stub } from "./releases.js";
import { root } from "./serving.js";

const main = join(root, "dist", "cli", "main.js");
const base = mkdtempSync(join(tmpdir(), "portcullis-install-"));
const user = join(base, "user");
const home = join(user, ".local", "share", "portcullis");
const shim = join(home, "bin", "portcullis");
let releases: Releases;

interface Ran {
  code: number | null;
  out: string;
  err: string;
}

function options(): string[] {
  return ["--from", releases.url, "--key", releases.keyFile, "--health-timeout", "20000"];
}

/** A user with nothing of ours in the environment; the release server runs in this process, so it may not be blocked. */
function start(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): { child: ChildProcess; ended: Promise<Ran> } {
  const child = spawn(command, args, { cwd: user, env: { PATH: process.env.PATH, HOME: user, NO_COLOR: "1", ...env } });
  let out = "";
  let err = "";
  child.stdout?.on("data", (chunk: Buffer) => {
    out += chunk.toString("utf8");
  });
  child.stderr?.on("data", (chunk: Buffer) => {
    err += chunk.toString("utf8");
  });
  return { child, ended: new Promise((resolve) => child.on("close", (code) => resolve({ code, out, err }))) };
}

const install = (...args: string[]): Promise<Ran> =>
  start(process.execPath, [main, "install", "--dest", home, ...options(), ...args]).ended;
const update = (...args: string[]): Promise<Ran> => start(shim, ["update", ...options(), ...args]).ended;
/** What both commands do, in this process: starting Node for every forgery would only take time. */
async function attempt(healthTimeoutMs = 20_000): Promise<string> {
  const key = parsePublicKey(readFileSync(releases.keyFile, "utf8"));
  const source = { url: releases.url, key, channel: "stable", allowDowngrade: false, healthTimeoutMs } as const;
  try {
    const offer = await look(source);
    await withLock(home, () => bringIn(homeAt(home), source, offer));
    return "taken";
  } catch (error) {
    return (error as Error).message;
  }
}
/** What the shim would start; starting the real one takes its time. */
const chosen = (): string => readFileSync(join(home, "current"), "utf8").trim();
const version = (): string => spawnSync(shim, ["--version"], { encoding: "utf8" }).stdout.trim();

/** Every file below a folder, and what shows that it is still the same one. Dependencies would only take time. */
function contents(folder: string, leave: (name: string) => boolean = () => false, below = ""): Record<string, string> {
  const found: Record<string, string> = {};
  for (const entry of readdirSync(join(folder, below), { withFileTypes: true })) {
    const name = join(below, entry.name);
    if (leave(name) || entry.name === "node_modules") continue;
    if (entry.isDirectory()) Object.assign(found, contents(folder, leave, name));
    else found[name] = identity(join(folder, name));
  }
  return found;
}
function identity(path: string): string {
  const { ino, size, mtimeMs } = lstatSync(path);
  // What is replaced as a whole is told by its contents, everything else by being the same file.
  return size < 1000 ? readFileSync(path, "base64") : `${ino} ${size} ${mtimeMs}`;
}
/** The number of a lock counts runs; nothing else may change. */
const installation = (): Record<string, string> => contents(home, (name) => /^lock\.\d+$/.test(name));
const belongings = (): Record<string, string> => contents(user, (name) => name === ".local/share/portcullis");

let mine: Record<string, string>;
beforeAll(async () => {
  for (const [folder, file] of [
    [".config/portcullis", "policy.yaml"],
    [".local/state/portcullis/ledger", "000.ndjson"],
  ] as const) {
    mkdirSync(join(user, folder), { recursive: true });
    writeFileSync(join(user, folder, file), "mine");
  }
  mine = belongings();
  releases = await startReleases(base);
  releases.real("1.0.0");
}, 120_000);
afterEach(() => {
  releases.onRequest = () => {};
  releases.tamper = (_, bytes) => bytes;
});
afterAll(async () => {
  await releases?.stop();
  rmSync(base, { recursive: true, force: true });
});

describe.sequential("install and update", () => {
  it("install refuses to run without a key, and in a container", async () => {
    const bare = async (args: string[], env: NodeJS.ProcessEnv = {}) =>
      (await start(process.execPath, [main, ...args], env).ended).err;
    const dest = ["--dest", home];
    expect(await bare(["install", ...dest], { PORTCULLIS_RELEASES: releases.url })).toContain("carries no release key");
    expect(await bare(["install", ...options()], { container: "podman" })).toContain("docker pull");
    expect(existsSync(home)).toBe(false);
  });

  it("install installs a release made from this repository, and the shim starts it [M9]", async () => {
    const ran = await install();
    expect(ran, ran.err).toMatchObject({ code: 0, out: `installed 1.0.0 in ${home}\n` });
    expect(version()).toBe("1.0.0");
    expect(readdirSync(home).sort()).toEqual(["bin", "current", "installed.json", "lock.1", "versions"]);
    expect((await install()).out).toContain("already installed");
  }, 120_000);

  it("install creates a default policy that opens no directory, and never overwrites one [M9]", async () => {
    // The user of the other tests has a policy of their own, which `belongings` holds to the byte.
    expect(belongings()).toEqual(mine);
    const config = join(base, "new-user");
    const file = join(config, "portcullis", "policy.yaml");
    const env = { XDG_CONFIG_HOME: config };
    const again = (): Promise<Ran> =>
      start(process.execPath, [main, "--json", "install", "--dest", home, ...options()], env).ended;
    const first = await again();
    expect(first, first.err).toMatchObject({ code: 0 });
    expect(JSON.parse(first.out)).toMatchObject({ policy: { file, created: true } });
    expect(lstatSync(file).mode & 0o777).toBe(0o600);
    const text = readFileSync(file, "utf8");
    expect(text).toMatch(/^allowedRoots: \[\]$/m);
    expect(text).toMatch(/^writeRules: \[\]$/m);
    const validated = await start(shim, ["policy", "validate", "--config", file], env).ended;
    expect(validated, validated.err).toMatchObject({ code: 0 });
    // The host starts with it and denies every path.
    const reading = { jsonrpc: "2.0", id: 1, method: "fs.read", params: { path: "/etc/hostname" } };
    const host = start(shim, ["host", "--state", join(base, "state")], env);
    host.child.stdin?.end(`${JSON.stringify(reading)}\n`);
    expect(JSON.parse((await host.ended).out)).toMatchObject({ id: 1, error: { data: { code: "POLICY_DENY" } } });
    writeFileSync(file, `${text}# mine\n`);
    expect(JSON.parse((await again()).out)).toMatchObject({ policy: { file, created: false } });
    expect(readFileSync(file, "utf8")).toBe(`${text}# mine\n`);
    // A directory that cannot be written to costs the policy, not the installation.
    writeFileSync(join(base, "not-a-directory"), "");
    const closed = await start(process.execPath, [main, "--json", "install", "--dest", home, ...options()], {
      XDG_CONFIG_HOME: join(base, "not-a-directory"),
    }).ended;
    expect(closed).toMatchObject({ code: 0 });
    expect(JSON.parse(closed.out)).toMatchObject({ policy: { created: false, problem: expect.any(String) } });
  }, 120_000);

  it("update installs a new version with the installed key, after a check that changes nothing", async () => {
    releases.small("1.1.0", stub("1.1.0"));
    const before = installation();
    const looked = await start(shim, ["update", "--check", "--json", "--from", releases.url]).ended;
    expect(JSON.parse(looked.out)).toMatchObject({ current: "1.0.0", available: "1.1.0", newer: true });
    expect(installation()).toEqual(before);
    const ran = await start(shim, ["update", "--from", releases.url]).ended;
    expect(ran, ran.err).toMatchObject({ code: 0, out: "updated 1.0.0 to 1.1.0\n" });
    expect(version()).toBe("1.1.0");
    // The small release cannot update; the real one goes on from here.
    const real = await start(process.execPath, [join(home, "versions/1.0.0/dist/cli/main.js"), "update", "--rollback"])
      .ended;
    expect(real, real.err).toMatchObject({ code: 0, out: "rolled back from 1.1.0 to 1.0.0\n" });
    expect(chosen()).toBe("1.0.0");
  }, 120_000);

  it.each([
    ["ends at once", "process.exit(3)", 20_000, "ended with 3"],
    ["cannot be parsed", "{{", 20_000, "SyntaxError"],
    ["never answers", "setInterval(() => {}, 1000)", 500, "no answer within 500 ms"],
    ["talks nonsense", "console.log('hello'); setInterval(() => {}, 1000)", 20_000, "instead of an answer"],
    ["allows everything", stub("1.2.0", false), 20_000, "does not refuse"],
    ["is another version", stub("6.6.6"), 20_000, "reports version 6.6.6"],
  ])(
    "update rolls back a version that %s [M9]",
    async (_, script, healthTimeoutMs, why) => {
      releases.small("1.2.0", script);
      const before = installation();
      const said = await attempt(healthTimeoutMs);
      expect(said).toContain("1.0.0 is back in place");
      expect(said).toContain(why);
      expect(installation()).toEqual(before);
    },
    60_000,
  );

  const at = (path: string, change: (bytes: Buffer) => Buffer) => (): void => {
    releases.tamper = (asked, bytes) => (asked.includes(path) ? change(Buffer.from(bytes)) : bytes);
  };
  const flip =
    (where: number) =>
    (bytes: Buffer): Buffer => {
      const index = where < 0 ? bytes.length + where : where;
      bytes[index] = (bytes[index] as number) ^ 1;
      return bytes;
    };
  // Another letter of base64: a flipped bit may leave the alphabet, and then the form is refused before the signature.
  const otherLetter =
    (where: number) =>
    (bytes: Buffer): Buffer => {
      bytes.write(bytes[where] === "A".charCodeAt(0) ? "B" : "A", where);
      return bytes;
    };
  const good = stub("1.3.0");
  it.each<[string, () => void, string]>([
    ["a changed archive", at(".tar.gz", flip(200)), "is not what was signed"],
    ["an archive whose last byte changed", at(".tar.gz", flip(-1)), "is not what was signed"],
    ["an archive that is cut off", at(".tar.gz", (bytes) => bytes.subarray(0, 300)), "cannot fetch"],
    [
      "changed sums",
      at("SUMS", (bytes) => (bytes.includes("comment") ? bytes : flip(3)(bytes))),
      "does not fit the file",
    ],
    ["a changed signature", at("minisig", otherLetter(90)), "does not fit"],
    [
      "a changed comment",
      at("minisig", (bytes) => Buffer.from(bytes.toString().replace("version:1.3.0", "version:1.4.0"))),
      "trusted comment",
    ],
    ["no signature", () => rmSync(releases.file("1.3.0", "SHA256SUMS.minisig")), "answers 404"],
    ["another key", () => releases.small("1.3.0", good, { key: makeKey() }), "is trusted"],
    [
      "another key with the same id",
      () => releases.small("1.3.0", good, { key: { ...makeKey(), id: releases.key.id } }),
      "does not fit",
    ],
    [
      "no version in what is signed",
      () => releases.small("1.3.0", good, { comment: "timestamp:1\tfile:SHA256SUMS" }),
      "names no version",
    ],
    [
      "another program's release",
      () =>
        releases.small("1.3.0", good, { comment: releaseComment("1.3.0", "stable", 1).replace("portcullis", "other") }),
      "not of a Portcullis release",
    ],
    [
      "an old release under a new number",
      () => releases.offer("9.9.9", "stable", "1.0.0/"),
      "what is signed there is 1.0.0",
    ],
    [
      "an old archive under a new name",
      () => {
        const name = readdirSync(releases.file("1.3.0")).find((file) => file.endsWith(".tar.gz")) as string;
        copyFileSync(releases.file("1.0.0", name.replace("1.3.0", "1.0.0")), releases.file("1.3.0", name));
      },
      "is not what was signed",
    ],
    ["an old version inside", () => releases.small("1.3.0", good, { inside: "1.0.0" }), "does not hold version 1.3.0"],
    ["a release for testers", () => releases.small("1.3.0", good, { channel: "beta" }), "signed for beta"],
    ["an older release", () => releases.small("0.9.0", stub("0.9.0")), "older than 1.1.0: refused"],
    [
      "an entry that goes up",
      () =>
        releases.small("1.3.0", good, {
          entries: [{ name: "portcullis-1.3.0/../../../../evil", bytes: Buffer.from("x") }],
        }),
      "archive is refused",
    ],
    [
      "an entry by its full name",
      () => releases.small("1.3.0", good, { entries: [{ name: join(user, "evil"), bytes: Buffer.from("x") }] }),
      "archive is refused",
    ],
    [
      "a link out",
      () => releases.small("1.3.0", good, { entries: [{ name: "portcullis-1.3.0/x", type: "2", link: user }] }),
      "archive is refused",
    ],
    [
      "an index that is none",
      () => writeFileSync(releases.file("stable.json"), '{"version":"../1.3.0"}'),
      "is not a release index",
    ],
    ["a server without encryption", () => releases.offer("1.3.0", "stable", "http://example.com/"), "by https"],
  ])("update refuses %s and changes nothing [M9]", async (_, forge, why) => {
    releases.small("1.3.0", good);
    forge();
    const before = installation();
    expect(await attempt()).toContain(why);
    expect(installation()).toEqual(before);
    expect(belongings()).toEqual(mine);
  });

  it("update reports a version that does not work, and a forged one, on the command line", async () => {
    releases.small("1.2.0", "process.exit(3)");
    const broken = await update();
    expect(broken).toMatchObject({ code: 1, out: "" });
    expect(broken.err).toContain("version 1.2.0 does not work, and 1.0.0 is back in place: ended with 3");
    expect(chosen()).toBe("1.0.0");
    releases.small("1.3.0", good);
    at(".tar.gz", flip(200))();
    const forged = await update();
    expect(forged).toMatchObject({ code: 1, out: "" });
    expect(forged.err).toContain("is not what was signed");
    expect(chosen()).toBe("1.0.0");
  }, 60_000);

  it("update installs an older release, or a prerelease, only when asked", async () => {
    releases.small("0.9.0", stub("0.9.0"));
    expect(await update("--allow-downgrade")).toMatchObject({ code: 0 });
    expect(version()).toBe("0.9.0");
    releases.small("1.3.0-beta.1", stub("1.3.0-beta.1"), { channel: "beta" });
    releases.offer("1.3.0-beta.1", "beta");
    expect(await install("--channel", "beta")).toMatchObject({ code: 0 });
    expect(version()).toBe("1.3.0-beta.1");
    expect(JSON.parse(readFileSync(join(home, "installed.json"), "utf8"))).toMatchObject({ channel: "beta" });
  });

  it("updates run one at a time, and the lock of a dead process is ignored", async () => {
    releases.small("1.4.0", stub("1.4.0"));
    let second: string | undefined;
    releases.onRequest = async (path) => {
      // The first one holds the lock while it fetches its archive.
      if (path.endsWith(".tar.gz") && second === undefined) second = (await install("--channel", "stable")).err;
    };
    expect(await attempt()).toBe("taken");
    expect(second).toContain(`process ${process.pid} on ${hostname()} is installing or updating`);
    const dead = spawnSync(process.execPath, ["-e", ""]).pid;
    writeFileSync(join(home, "lock.900"), JSON.stringify({ pid: dead, host: hostname() }));
    expect(await attempt()).toBe("taken");
  });

  it("an update killed during its download leaves the old version, and the next run removes its files", async () => {
    releases.small("1.5.0", stub("1.5.0"));
    const { child, ended } = start(process.execPath, [main, "install", "--dest", home, ...options()]);
    releases.onRequest = (path) => {
      if (path.endsWith(".tar.gz")) child.kill("SIGKILL");
    };
    await ended;
    expect(version()).toBe("1.4.0");
    expect(readdirSync(home)).toContain("staging");
    releases.onRequest = () => {};
    expect(await attempt()).toBe("taken");
    expect(version()).toBe("1.5.0");
    expect(readdirSync(home)).not.toContain("staging");
  });

  it("the run after an update killed behind a switch to a broken version rolls back first", async () => {
    mkdirSync(join(home, "versions/1.6.0/dist/cli"), { recursive: true });
    writeFileSync(join(home, "versions/1.6.0/dist/cli/main.js"), "process.exit(1)");
    const installed = JSON.parse(readFileSync(join(home, "installed.json"), "utf8"));
    writeFileSync(join(home, "installed.json"), JSON.stringify({ ...installed, previous: "1.5.0", unproven: "1.6.0" }));
    writeFileSync(join(home, "current"), "1.6.0\n");
    expect(await attempt()).toBe("taken");
    expect(version()).toBe("1.5.0");
    expect(existsSync(join(home, "versions/1.6.0"))).toBe(false);
    expect(readdirSync(join(home, "versions")).length).toBeLessThanOrEqual(3);
    expect(belongings()).toEqual(mine);
  });
});
