// git against a hostile repository, with the real program: its config names a program for everything that has one. The script
// leaves its mark in the writable root, where the sandbox would let it: what keeps the mark away is the profile.

import { execFileSync, spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { missingPrograms } from "../setup/programs.js";
import { makeWorld, ok, rule, SECRET, type World } from "./support/world.js";

const missing = missingPrograms("git");
let world: World;
let evil = "";

beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});
beforeAll(() => {
  if (missing !== undefined) return;
  world = makeWorld("  - { id: git, profile: git, timeoutMs: 20_000 }");
  evil = join(world.root, "evil.sh");
  writeFileSync(evil, `#!/bin/sh\ntouch ${world.writableRoot}/pwned\ncat ${world.outside}/secret.txt\nexit 0\n`, {
    mode: 0o755,
  });
  makeRepository();
});
afterAll(() => world?.close());
afterEach(() => {
  if (missing === undefined) expect(existsSync(join(world.writableRoot, "pwned")), "a hostile script ran").toBe(false);
});

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
  test("without the profile, the hostile repository runs its script", () => {
    const mark = join(world.writableRoot, "pwned");
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
  ])("git %j works and runs nothing of the repository", async (args, text) => {
    const outcome = await world.run("git", args, { cwd: repo() });
    const result = ok(outcome);
    expect(result.exitCode, result.stderr).toBe(0);
    expect(result.stdout).toContain(text);
    expect(result.stdout).not.toContain("\u001b");
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
    expect(existsSync(join(world.writableRoot, "pwned")), "control").toBe(true);
    rmSync(join(world.writableRoot, "pwned"));
    for (const args of [
      ["log", "-1", "--format=%G? %GS %s", id],
      ["show", id],
      ["log", "-1", id],
    ]) {
      const result = ok(await world.run("git", args, { cwd: repo() }));
      expect(result.stdout, result.stderr).toContain("signed");
    }
  });

  test("a work tree outside, or settings read from there, show nothing of it", async () => {
    const other = join(world.root, "other");
    mkdirSync(other);
    const inOther = (...args: string[]): string => execFileSync("git", args, { cwd: other, encoding: "utf8" });
    inOther("init", "-q", "--template=");
    inOther("config", "core.worktree", world.outside);
    const looks = [
      ["ls-files", "-o"],
      ["status", "--short", "-uall"],
      ["diff", "--stat"],
      ["grep", "-e", "CANARY"],
    ];
    expect(inOther("ls-files", "-o"), "control").toContain("secret.txt");
    for (const args of looks) {
      expect(JSON.stringify(await world.run("git", args, { cwd: other }))).not.toMatch(/secret\.txt|CANARY/);
    }
    inOther("config", "--unset", "core.worktree");
    for (const key of ["include.path", "includeIf.gitdir:**.path"]) {
      inOther("config", key, join(world.outside, "secret.txt"));
      expect(JSON.stringify(await world.run("git", ["status"], { cwd: other }))).not.toContain(SECRET);
      writeFileSync(join(other, ".git/config"), "[core]\n\trepositoryformatversion = 0\n");
    }
    rmSync(other, { recursive: true });
  });

  test("git does not use a repository inside the repository", async () => {
    const inner = join(repo(), "inner");
    mkdirSync(inner);
    const inInner = (...args: string[]): void => {
      const identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
      execFileSync("git", [...identity, ...args], { cwd: inner, stdio: "ignore" });
    };
    inInner("init", "-q", "--template=");
    writeFileSync(join(inner, "i.txt"), "i\n");
    inInner("add", "i.txt");
    inInner("commit", "-qm", "inner");
    inInner("config", "core.fsmonitor", evil);
    inInner("config", "diff.external", evil);
    const id = execFileSync("git", ["rev-parse", "HEAD"], { cwd: inner, encoding: "utf8" }).trim();
    const quiet = ["-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null"];
    git(...quiet, "update-index", "--add", "--cacheinfo", `160000,${id},inner`);
    writeFileSync(join(repo(), ".gitmodules"), '[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n');
    appendFileSync(join(inner, "i.txt"), "changed\n");
    spawnSync("git", ["status"], { cwd: inner });
    expect(existsSync(join(world.writableRoot, "pwned")), "control").toBe(true);
    rmSync(join(world.writableRoot, "pwned"));
    for (const args of [
      ["status"],
      ["diff"],
      ["diff", "HEAD"],
      ["log", "-p"],
      ["describe", "--always", "--dirty"],
      ["grep", "i"],
    ]) {
      expect((await world.run("git", args, { cwd: repo() })).ok, args.join(" ")).toBe(true);
    }
    git(...quiet, "update-index", "--force-remove", "inner");
    rmSync(inner, { recursive: true });
    rmSync(join(repo(), ".gitmodules"));
  });

  test("git fetches no missing object", async () => {
    const id = capture("rev-parse", "HEAD~1:a.txt");
    const file = join(repo(), ".git/objects", id.slice(0, 2), id.slice(2));
    const bytes = readFileSync(file);
    rmSync(file);
    spawnSync("git", ["cat-file", "-p", id], { cwd: repo() });
    expect(existsSync(join(world.writableRoot, "pwned")), "control").toBe(true);
    rmSync(join(world.writableRoot, "pwned"));
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

  test("git shows staged changes without a program of the repository", async () => {
    git("-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "add", "a.txt");
    spawnSync("git", ["-c", "core.fsmonitor=", "status", "-v"], { cwd: repo() });
    expect(existsSync(join(world.writableRoot, "pwned")), "control").toBe(true);
    rmSync(join(world.writableRoot, "pwned"));
    expect(rule(await world.run("git", ["status", "-v"], { cwd: repo() }))).toBe("profile.git");
    expect(ok(await world.run("git", ["diff", "--cached"], { cwd: repo() })).stdout).toContain("+three");
    git("-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "reset", "-q");
  });

  test("git arguments that are files are checked, with or without --, inside and outside a repository [M4]", async () => {
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

  test("git runs no clean filter of the repository", async () => {
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

  test("sandbox: preferred is refused for git where nothing confines files", async () => {
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
});
