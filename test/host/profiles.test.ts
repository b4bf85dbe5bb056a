// Curated profiles against hostile projects, with the real tools. A hostile script leaves its mark in the write zone, where
// the sandbox would let it: what keeps the mark away is the profile.

import { execFileSync, spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ensurePrograms, has } from "./support/machine.js";
import { makeWorld, ok, rule, SECRET, type World } from "./support/world.js";

ensurePrograms({ git: "git", rg: "ripgrep", jq: "jq", curl: "curl", make: "make", gawk: "gawk" });
/** Of the usual awks only GNU's has a mode without programs and files; another is refused when the policy is loaded. */
const hasGawk = has("gawk");
let world: World;
let evil = "";

beforeAll(() => {
  const names = ["cat", "find", "git", "grep", "jq", "ls", "make", "npm", "rg", "sed", "tar"];
  const entries = names.map((name) => `  - { id: ${name}, profile: ${name}, timeoutMs: 20_000 }`);
  if (hasGawk) entries.push("  - { id: awk, exec: gawk, profile: awk }");
  entries.push("  - { id: curl, profile: curl, network: true }");
  world = makeWorld(entries.join("\n"));
  evil = join(world.root, "evil.sh");
  writeFileSync(evil, `#!/bin/sh\ntouch ${world.zone}/pwned\ncat ${world.outside}/secret.txt\nexit 0\n`, {
    mode: 0o755,
  });
  makeRepository();
});
afterAll(() => world.close());
afterEach(() => expect(existsSync(join(world.zone, "pwned")), "a hostile script ran").toBe(false));

const repo = (): string => join(world.root, "repo");

function git(...args: string[]): void {
  const identity = ["-c", "user.name=test", "-c", "user.email=t@example.invalid"];
  execFileSync("git", [...identity, ...args], {
    cwd: repo(),
    stdio: "ignore",
    env: { PATH: process.env.PATH, HOME: world.base },
  });
}

function capture(...args: string[]): string {
  return execFileSync("git", ["-c", "core.fsmonitor=", ...args], { cwd: repo(), encoding: "utf8" }).trim();
}

function makeRepository(): void {
  mkdirSync(repo());
  git("init", "-q", "--template=", "-b", "main");
  writeFileSync(join(repo(), "a.txt"), "one\n");
  git("add", "a.txt");
  git("commit", "-qm", "first");
  appendFileSync(join(repo(), "a.txt"), "two needle\n");
  git("commit", "-qam", "second");
  // Everything a repository's own config can name.
  for (const [key, value] of [
    ["core.fsmonitor", evil],
    ["core.pager", evil],
    ["core.editor", evil],
    ["core.sshCommand", evil],
    ["core.alternateRefsCommand", evil],
    ["diff.external", evil],
    ["diff.x.textconv", evil],
    ["diff.x.command", evil],
    ["pager.log", evil],
    ["pager.diff", evil],
    ["gpg.program", evil],
    ["gpg.openpgp.program", evil],
    ["gpg.ssh.program", evil],
    ["gpg.ssh.allowedSignersFile", evil],
    ["gpg.x509.program", evil],
    ["log.showSignature", "true"],
    ["core.askPass", evil],
    ["core.gitProxy", evil],
    ["credential.helper", `!${evil}`],
    ["uploadpack.packObjectsHook", evil],
    ["remote.origin.url", `ext::${evil}`],
    ["remote.origin.uploadpack", evil],
    ["remote.origin.promisor", "true"],
    ["remote.origin.partialclonefilter", "blob:none"],
    ["extensions.partialClone", "origin"],
    ["core.repositoryFormatVersion", "1"],
    ["protocol.allow", "always"],
    ["protocol.ext.allow", "always"],
    ["status.submoduleSummary", "true"],
    ["submodule.recurse", "true"],
    ["diff.submodule", "diff"],
    ["color.ui", "always"],
    ["mailmap.file", join(world.outside, "secret.txt")],
    ["diff.orderFile", join(world.outside, "secret.txt")],
    ["core.attributesFile", join(world.outside, "secret.txt")],
    ["core.excludesFile", join(world.outside, "secret.txt")],
    ["alias.status", `!${evil}`],
    ["interactive.diffFilter", evil],
    ["core.hooksPath", join(repo(), "hooks")],
  ] as const) {
    git("config", key, value);
  }
  writeFileSync(join(repo(), ".gitattributes"), "*.txt diff=x\n");
  mkdirSync(join(repo(), "hooks"));
  for (const hook of ["post-index-change", "pre-commit", "post-checkout"]) {
    writeFileSync(join(repo(), "hooks", hook), readFileSync(evil), { mode: 0o755 });
  }
  appendFileSync(join(repo(), "a.txt"), "three\n");
  utimesSync(join(repo(), "a.txt"), new Date(), new Date());
}

describe("git", () => {
  test("control: without the profile, the same repository does run its script", () => {
    const mark = join(world.zone, "pwned");
    execFileSync("git", ["status"], { cwd: repo(), stdio: "ignore" });
    expect(existsSync(mark)).toBe(true);
    execFileSync("rm", [mark]);
  });

  test.each([
    [["status"], "a.txt"],
    [["status", "--porcelain"], " M a.txt"],
    [["diff"], "+three"],
    [["diff", "--stat"], "a.txt"],
    [["log", "-p", "--oneline"], "second"],
    [["log", "-2"], "first"],
    [["show", "HEAD"], "+two needle"],
    [["show", "HEAD~1:a.txt"], "one"],
    [["blame", "a.txt"], "needle"],
    [["grep", "-n", "needle"], "a.txt:2"],
    [["branch", "-a"], "main"],
    [["rev-parse", "--abbrev-ref", "HEAD"], "main"],
    [["ls-files"], "a.txt"],
    [["shortlog", "-s", "HEAD"], "2"],
    [["describe", "--always"], ""],
    [["status", "-u", "--porcelain=v2"], "a.txt"],
    [["diff", "-U5", "a.txt"], "+three"],
    [["log", "-p", "--stat=80", "-M50%", "--color=never"], "second"],
    [["-C", "hooks", "status", "-uno"], "a.txt"],
    [["remote", "-v"], ""],
    [["stash", "list"], ""],
    [["branch", "--show-current"], "main"],
    [["ls-tree", "HEAD"], "a.txt"],
    [["cat-file", "-p", "HEAD:a.txt"], "needle"],
    [["log", "--format=%G? %h"], "N"],
  ])("%j works and runs nothing of the repository's", async (args, text) => {
    const outcome = await world.run("git", args, { cwd: repo() });
    const result = ok(outcome);
    expect(result.exitCode, result.stderr).toBe(0);
    expect(result.stdout).toContain(text);
    expect(JSON.stringify(outcome)).not.toContain(SECRET);
  });

  test("a gitdir and alternates that point outside show nothing of it", async () => {
    const secret = join(world.outside, "repo");
    mkdirSync(secret);
    const there = { cwd: secret, stdio: "ignore" } as const;
    execFileSync("git", ["init", "-q", "--template=", "-b", "main"], there);
    writeFileSync(join(secret, "s.txt"), `${SECRET}\n`);
    execFileSync("git", ["add", "s.txt"], there);
    execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "-qm", SECRET], there);
    const redirected = join(world.root, "redirected");
    mkdirSync(redirected);
    writeFileSync(join(redirected, ".git"), `gitdir: ${secret}/.git\n`);
    const head = execFileSync("git", ["rev-parse", "HEAD:s.txt"], { cwd: secret, encoding: "utf8" }).trim();
    writeFileSync(join(repo(), ".git/objects/info/alternates"), `${secret}/.git/objects\n`);
    for (const [cwd, args] of [
      [redirected, ["show", "HEAD:s.txt"]],
      [redirected, ["log"]],
      [repo(), ["cat-file", "-p", head]],
    ] as const) {
      expect(execFileSync("git", [...args], { cwd, encoding: "utf8" }), "control").toContain(SECRET);
      const outcome = await world.run("git", args, { cwd });
      expect(ok(outcome).exitCode).not.toBe(0);
      expect(JSON.stringify(outcome)).not.toContain(SECRET);
    }
    rmSync(join(repo(), ".git/objects/info/alternates"));
    rmSync(secret, { recursive: true });
  });

  test.each([
    ["PGP SIGNATURE", "gpg.program"],
    ["SSH SIGNATURE", "gpg.ssh.program"],
    ["SIGNED MESSAGE", "gpg.x509.program"],
  ])("a commit with a %s starts no %s", async (kind) => {
    const tree = capture("rev-parse", "HEAD^{tree}");
    const person = "t <t@example.invalid> 1000000000 +0000";
    const signature = `-----BEGIN ${kind}-----\n \n AAAA\n -----END ${kind}-----`;
    const text = `tree ${tree}\nauthor ${person}\ncommitter ${person}\ngpgsig ${signature}\n\nsigned\n`;
    const id = execFileSync("git", ["hash-object", "-t", "commit", "-w", "--stdin"], {
      cwd: repo(),
      input: text,
      encoding: "utf8",
    }).trim();
    spawnSync("git", ["log", "-1", "--format=%G?", id], { cwd: repo() });
    expect(existsSync(join(world.zone, "pwned")), "control").toBe(true);
    rmSync(join(world.zone, "pwned"));
    for (const args of [
      ["log", "-1", "--format=%G? %GS %s", id],
      ["show", id],
      ["log", "-1", id],
    ]) {
      const result = ok(await world.run("git", args, { cwd: repo() }));
      expect(result.stdout, result.stderr).toContain("signed");
    }
  });

  test("an object that is not there is fetched from nowhere", async () => {
    const id = capture("rev-parse", "HEAD~1:a.txt");
    const file = join(repo(), ".git/objects", id.slice(0, 2), id.slice(2));
    const bytes = readFileSync(file);
    rmSync(file);
    spawnSync("git", ["cat-file", "-p", id], { cwd: repo() });
    expect(existsSync(join(world.zone, "pwned")), "control").toBe(true);
    rmSync(join(world.zone, "pwned"));
    for (const args of [
      ["cat-file", "-p", id],
      ["show", "HEAD~1:a.txt"],
      ["log", "-p"],
      ["blame", "HEAD", "--", "a.txt"],
    ]) {
      expect(ok(await world.run("git", args, { cwd: repo() })).exitCode, args.join(" ")).not.toBe(0);
    }
    writeFileSync(file, bytes);
  });

  test("what is staged is shown by no program of the repository's", async () => {
    git("-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "add", "a.txt");
    spawnSync("git", ["-c", "core.fsmonitor=", "status", "-v"], { cwd: repo() });
    expect(existsSync(join(world.zone, "pwned")), "control").toBe(true);
    rmSync(join(world.zone, "pwned"));
    expect(rule(await world.run("git", ["status", "-v"], { cwd: repo() }))).toBe("profile.git");
    expect(ok(await world.run("git", ["diff", "--cached"], { cwd: repo() })).stdout).toContain("+three");
    git("-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "reset", "-q");
  });

  test("words that are files are looked at, with or without --, in or out of a repository", async () => {
    const plain = join(world.root, "plain");
    mkdirSync(plain);
    symlinkSync(world.outside, join(plain, "way-out"));
    writeFileSync(join(plain, "x"), "x\n");
    symlinkSync(world.outside, join(repo(), "way-out"));
    const file = "way-out/secret.txt";
    const control = spawnSync("git", ["diff", "x", file], { cwd: plain, encoding: "utf8" });
    expect(control.stdout).toContain(SECRET);
    for (const cwd of [plain, repo()]) {
      for (const args of [
        ["diff", "x", file],
        ["diff", file, "x"],
        ["diff", file, "--", "x"],
        ["diff", "--", "x", file],
        ["grep", "CANARY", file],
        ["grep", "-e", "CANARY", "--", file],
        ["blame", file],
        ["log", file],
        ["ls-files", file],
        ["status", file],
        ["-C", "way-out", "status"],
        ["-C", "..", "-C", "..", "status"],
        ["-C", world.outside, "log"],
      ]) {
        const outcome = await world.run("git", args, { cwd });
        expect(rule(outcome), args.join(" ")).toMatch(/^(outsideAllowedRoots|profile\.git)$/);
      }
    }
    rmSync(join(repo(), "way-out"));
  });

  test("a clean filter, which nothing can switch off, stays in the sandbox", async () => {
    const mark = join(world.outside, "filtered");
    git("config", "filter.own.clean", `sh -c 'touch ${mark}; cat ${world.outside}/secret.txt; cat'`);
    writeFileSync(join(repo(), ".gitattributes"), "*.txt diff=x filter=own\n");
    appendFileSync(join(repo(), "a.txt"), "four\n");
    const control = execFileSync("git", ["diff", "--no-ext-diff", "--no-textconv", "a.txt"], {
      cwd: repo(),
      encoding: "utf8",
      env: {
        PATH: process.env.PATH,
        GIT_CONFIG_COUNT: "1",
        GIT_CONFIG_KEY_0: "core.fsmonitor",
        GIT_CONFIG_VALUE_0: "",
      },
    });
    expect(control).toContain(SECRET);
    rmSync(mark);
    for (const args of [["status"], ["diff"], ["diff", "HEAD"], ["describe", "--always", "--dirty"]]) {
      expect(JSON.stringify(await world.run("git", args, { cwd: repo() }))).not.toContain(SECRET);
      expect(existsSync(mark), args.join(" ")).toBe(false);
    }
    git("config", "--unset", "filter.own.clean");
    writeFileSync(join(repo(), ".gitattributes"), "*.txt diff=x\n");
  });

  test("where nothing confines files, sandbox: preferred is not enough for git", async () => {
    const bare = makeWorld("  - { id: git, profile: git }\n  - { id: cat, profile: cat }", "sandbox: preferred", {
      native: true,
      bubblewrap: true,
    });
    const outcome = await bare.run("git", ["status"]);
    expect(rule(outcome)).toBe("sandboxRequired");
    expect(outcome.ok ? "" : outcome.denial.reason).toContain("a repository's own config");
    expect(ok(await bare.run("cat", ["readme.md"])).stdout).toBe("hello\n");
    await bare.close();
  });

  test.each(["git", "make", "npm", "tar"])("%s without a sandbox is refused with the policy", (name) => {
    const entry = `  - { id: x, profile: ${name} }`;
    expect(() => makeWorld(entry, "sandbox: off")).toThrow(/profile.*needs a sandbox.*sandbox: required/s);
  });
});

describe("tools that read", () => {
  test.each([
    ["ls", ["-la", "src"], "app.ts"],
    ["cat", ["readme.md"], "hello"],
    ["grep", ["-rn", "needle", "src"], "const needle"],
    ["rg", ["-n", "needle", "src"], "const needle"],
    ["find", [".", "-name", "*.ts"], "./src/app.ts"],
    ["sed", ["-n", "1p", "readme.md"], "hello"],
    ["jq", ["-n", "[1,2]|add"], "3"],
  ])("%s %j works", async (id, args, text) => {
    const result = ok(await world.run(id, args));
    expect(result.exitCode, result.stderr).toBe(0);
    expect(result.stdout).toContain(text);
  });

  test("a file named like an option is a file", async () => {
    writeFileSync(join(world.root, "--pre=evil.sh"), "needle\n");
    writeFileSync(join(world.root, "-rf"), "needle\n");
    expect(ok(await world.run("rg", ["needle", "--", "--pre=evil.sh"])).exitCode).toBe(0);
    expect(ok(await world.run("cat", ["--", "-rf"])).stdout).toBe("needle\n");
  });

  test.each([
    ["cat", ["../outside/secret.txt"]],
    ["cat", ["link"]],
    ["ls", ["link-folder/"]],
    ["grep", ["-r", "CANARY", "link-folder"]],
    ["rg", ["CANARY", "link-folder/"]],
    ["find", ["link-folder/"]],
    ["sed", ["p", "link"]],
    ["tar", ["-cf", "out/x.tar", "../outside"]],
  ])("%s %j is refused before it starts", async (id, args) => {
    if (!existsSync(join(world.root, "link"))) {
      symlinkSync(join(world.outside, "secret.txt"), join(world.root, "link"));
      symlinkSync(world.outside, join(world.root, "link-folder"));
    }
    expect(rule(await world.run(id, args))).toBe("outsideAllowedRoots");
  });

  test("following links on the way down finds nothing outside", async () => {
    for (const [id, args] of [
      ["grep", ["-r", "CANARY", "."]],
      ["rg", ["CANARY"]],
      ["find", [".", "-name", "secret*"]],
    ] as const) {
      expect(JSON.stringify(await world.run(id, args))).not.toContain(id === "find" ? "secret.txt\\n" : SECRET);
    }
  });
});

describe("tools with a language of their own", () => {
  test.each([
    ["sed", ["1e touch out/pwned", "readme.md"]],
    ["sed", ["w out/pwned", "readme.md"]],
    ["sed", ["s/h/x/w out/pwned", "readme.md"]],
    ["sed", ["s/.*/touch out\\/pwned/e", "readme.md"]],
    ["sed", ["r /etc/passwd", "readme.md"]],
  ])("%s %j does nothing", async (id, args) => {
    const result = ok(await world.run(id, args));
    expect(result.exitCode).not.toBe(0);
    expect(result.stdout).not.toContain("root:");
  });

  test
    .skipIf(!hasGawk)
    .each([
      ['BEGIN { system("touch out/pwned") }'],
      ['BEGIN { print "x" > "out/pwned" }'],
      ['BEGIN { "touch out/pwned" | getline }'],
      ['BEGIN { print "x" | "cat > out/pwned" }'],
      ['BEGIN { while ((getline line < "/etc/passwd") > 0) print line }'],
      ['BEGIN { ARGV[1] = "/etc/passwd"; ARGC = 2 } { print }'],
    ])("awk %j does nothing", async (program) => {
    const result = ok(await world.run("awk", [program]));
    expect(result.stdout).not.toContain("root:");
  });

  test.skipIf(!has("mawk"))("an awk that cannot be held is refused by the policy", () => {
    expect(() => makeWorld("  - { id: awk, exec: mawk, profile: awk }")).toThrow("gawk");
  });

  test.skipIf(!hasGawk)("awk works", async () => {
    expect(ok(await world.run("awk", ["-F", " ", "{ print $1 }", "readme.md"])).stdout).toBe("hello\n");
    expect(ok(await world.run("awk", ['BEGIN { print gensub("a", "b", "g", "aa") }'])).stdout).toBe("bb\n");
  });

  test("jq sees no variables of the host's", async () => {
    process.env.JQ_SECRET = SECRET;
    const outcome = await world.run("jq", ["-n", "env"]);
    delete process.env.JQ_SECRET;
    expect(JSON.stringify(outcome)).not.toContain(SECRET);
  });
});

describe("builds run the project's own code, inside the sandbox", () => {
  test("make writes where it may and reads nothing outside", async () => {
    writeFileSync(
      join(world.root, "Makefile"),
      `all:\n\t@echo made > out/made; cat ${world.outside}/secret.txt; echo tried\n`,
    );
    const outcome = await world.run("make", ["all"]);
    expect(ok(outcome).stdout).toContain("tried");
    expect(JSON.stringify(outcome)).not.toContain(SECRET);
    expect(readFileSync(join(world.zone, "made"), "utf8")).toBe("made\n");
  });

  test("make goes into a folder below, and nowhere else", async () => {
    writeFileSync(join(world.root, "src/Makefile"), "all:\n\t@pwd\n");
    expect(ok(await world.run("make", ["-C", "src", "--no-print-directory", "-j"])).stdout).toBe(`${world.root}/src\n`);
    symlinkSync(world.outside, join(world.root, "elsewhere"));
    for (const folder of ["elsewhere", "..", world.outside]) {
      expect(rule(await world.run("make", ["-C", folder])), folder).toBe("outsideAllowedRoots");
      expect(rule(await world.run("make", [`--directory=${folder}`])), folder).toBe("outsideAllowedRoots");
    }
    rmSync(join(world.root, "elsewhere"));
  });

  test("npm runs a script with its own shell, whatever the project's .npmrc says", async () => {
    writeFileSync(
      join(world.root, "package.json"),
      JSON.stringify({ name: "x", version: "1.0.0", scripts: { hello: "echo from-script" } }),
    );
    writeFileSync(join(world.root, ".npmrc"), `script-shell=${evil}\nnode-options=--require=${evil}\n`);
    const result = ok(await world.run("npm", ["run", "hello"]));
    expect(result.exitCode, result.stderr).toBe(0);
    expect(result.stdout).toContain("from-script");
    const passed = ok(await world.run("npm", ["run", "hello", "--silent", "--", "--watch", "a b", "*"]));
    expect(passed.stdout).toBe("from-script --watch a b *\n");
  });
});

test("tar lists and extracts, and an archive's own tricks stay inside", async () => {
  const staging = join(world.base, "staging");
  mkdirSync(join(staging, "d"), { recursive: true });
  writeFileSync(join(staging, "d/ok.txt"), "ok");
  writeFileSync(join(staging, "up"), "up");
  execFileSync("tar", [
    "-cf",
    join(world.root, "a.tar"),
    "-C",
    staging,
    "d/ok.txt",
    "--transform=s,^up,../../outside/pwned,",
    "up",
    "-P",
  ]);
  expect(ok(await world.run("tar", ["-tf", "a.tar"])).stdout).toContain("d/ok.txt");
  await world.run("tar", ["-xf", "a.tar", "-C", "out"]);
  expect(readFileSync(join(world.zone, "d/ok.txt"), "utf8")).toBe("ok");
  expect(readdirSync(world.outside)).toEqual(["secret.txt"]);
  expect(
    rule(await world.run("tar", ["-xf", "a.tar", "--checkpoint=1", "--checkpoint-action=exec=touch out/pwned"])),
  ).toBe("profile.tar");
});

test("tar looks for names where -C says, and so does the check", async () => {
  mkdirSync(join(world.root, "packed"));
  writeFileSync(join(world.root, "packed/own.txt"), "own");
  symlinkSync(world.outside, join(world.root, "packed/way-out"));
  linkSync(join(world.outside, "secret.txt"), join(world.root, "packed/second-name"));
  const archive = "out/packed.tgz";
  for (const name of ["way-out/secret.txt", "second-name"]) {
    const refused = await world.run("tar", ["-czf", archive, "-C", "packed", name]);
    expect(refused.ok, name).toBe(false);
    expect((await world.run("git", ["-C", "packed", "log", "--", name])).ok, name).toBe(false);
  }
  expect(ok(await world.run("tar", ["czfC", archive, "packed", "own.txt"])).exitCode).toBe(0);
  expect(ok(await world.run("tar", ["tzf", archive])).stdout).toBe("own.txt\n");
  rmSync(join(world.root, "packed"), { recursive: true });
});

test("curl refuses files and this machine before it starts", async () => {
  for (const url of ["file:///etc/passwd", "http://127.0.0.1:1/", "http://localhost/", "http://169.254.169.254/"]) {
    expect(rule(await world.run("curl", [url]))).toBe("profile.curl");
  }
});
