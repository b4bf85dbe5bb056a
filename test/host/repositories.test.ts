// Repositories in a writable directory, attacked with real programs: their hooks and settings run outside any sandbox, so neither git
// nor a command may plant one, whether by writing it or by putting another repository in the place of theirs.

import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { MAX_REPOSITORIES } from "../../src/host/paths/repositories.js";
import type { Without } from "../../src/host/sandbox/confinement.js";
import { has, missingPrograms } from "../setup/programs.js";
import { makeWorld, ok, rule, type World } from "./support/world.js";

const missing = missingPrograms("git");

const COMMANDS = `  - { id: git, profile: git, timeoutMs: 20_000 }
  - { id: plain-git, exec: git, args: { allow: [status, add, commit, -m, x, a.txt] } }
  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] } }`;

const WAYS: [string, Without][] = [
  ["a view", {}],
  ["a view without owner mapping", { ownerMapping: true }],
  ["Landlock alone", { view: true, userNamespace: true }],
  ...(has("bwrap") ? [["bubblewrap", { view: true, landlock: true, userNamespace: true }] as [string, Without]] : []),
];

let world: World;
beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});
afterEach(async () => {
  await world?.close();
});

function git(cwd: string, ...args: string[]): string {
  const identity = ["-c", "user.name=test", "-c", "user.email=t@example.invalid"];
  return execFileSync("git", [...identity, ...args], {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env.PATH, HOME: world.base, GIT_CONFIG_NOSYSTEM: "1" },
  });
}

/** A repository of the user's, with one commit. */
function makeProject(path: string): string {
  mkdirSync(path, { recursive: true });
  git(path, "init", "-q", "-b", "main");
  writeFileSync(join(path, "a.txt"), "one\n");
  git(path, "add", "a.txt");
  git(path, "commit", "-qm", "first");
  return path;
}

const hookOf = (project: string): string => join(project, ".git/hooks/post-checkout");

/** Files of a bare repository, its own work tree, whose filter writes a hook into the project, in an order in which each can be written. */
function bareFiles(project: string, bare: string, filter: string): [name: string, data: Buffer][] {
  const hook = hookOf(project);
  const script = `sh -c 'mkdir -p ${join(hook, "..")}; echo "#!/bin/sh" > ${hook}; chmod +x ${hook}; cat'`;
  return [
    [
      "config",
      Buffer.from(
        `[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ${bare}\n[filter "x"]\n\t${filter} = ${JSON.stringify(script)}\n`,
      ),
    ],
    ["info/attributes", Buffer.from("* filter=x\n")],
    ["index", readFileSync(join(project, ".git/index"))],
    ["objects/x", Buffer.from("x")],
    ["refs/x", Buffer.from("x")],
    ["a.txt", Buffer.from("two\n")],
    ["HEAD", Buffer.from("ref: refs/heads/main\n")],
  ];
}

async function writeBare(project: string, bare: string, filter = "clean"): Promise<void> {
  for (const [name, data] of bareFiles(project, bare, filter)) {
    const path = join(bare, name);
    ok(await world.write({ path, data: data.toString("base64"), encoding: "base64" }));
  }
}

/** So that the file's mode, of which Landlock knows nothing, is not what holds another user. */
function openModes(path: string): void {
  execFileSync("chmod", ["-R", "a+rwX", path]);
}

describe("git", () => {
  test.each(WAYS)(
    "git runs no hook of a bare repository made with fs.write, confined by %s [M4]",
    async (_, without) => {
      world = makeWorld(COMMANDS, "", without);
      const project = makeProject(join(world.writableRoot, "project"));
      const bare = join(world.writableRoot, "bare");
      await writeBare(project, bare);
      openModes(world.writableRoot);
      git(bare, "status");
      expect(existsSync(hookOf(project)), "control").toBe(true);
      rmSync(hookOf(project));
      for (const args of [
        ["status"],
        ["diff"],
        ["diff", "a.txt"],
        ["ls-files", "-m"],
        ["describe", "--always", "--dirty"],
      ]) {
        for (const id of args.length === 1 && args[0] === "status" ? ["git", "plain-git"] : ["git"]) {
          const { exitCode, stderr } = ok(await world.run(id, args, { cwd: bare }));
          expect(exitCode, stderr).not.toBe(0);
          if (args[0] === "status") expect(stderr).toContain("bare repository");
          expect(existsSync(hookOf(project)), args.join(" ")).toBe(false);
        }
      }
      ok(await world.run("git", ["-C", "bare", "status"], { cwd: world.writableRoot }));
      expect(existsSync(hookOf(project))).toBe(false);
    },
  );

  test.each(["clean", "process"])("git runs no %s filter of a repository, whatever its name", async (filter) => {
    world = makeWorld(COMMANDS);
    const project = makeProject(join(world.writableRoot, "project"));
    const name = "a=b.ü c";
    git(project, "config", `filter.${name}.${filter}`, "printf filtered");
    git(project, "config", `filter.${name}.required`, "true");
    git(project, "config", "filter.second.clean", "printf filtered");
    mkdirSync(join(project, ".git/info"), { recursive: true });
    writeFileSync(join(project, ".git/info/attributes"), "* filter=second\n");
    writeFileSync(join(project, "a.txt"), "changed\n");
    expect(git(project, "diff"), "control").toContain("+filtered");
    const result = ok(await world.run("git", ["diff"], { cwd: project }));
    expect(result.stdout, result.stderr).toContain("+changed");
    expect(result.stdout).not.toContain("filtered");
    expect(ok(await world.run("git", ["-C", "project", "diff"], { cwd: world.writableRoot })).stdout).toContain(
      "+changed",
    );
  });

  test("git writes nothing when it only reads, not even where a command may write", async () => {
    world = makeWorld(COMMANDS);
    const project = makeProject(join(world.writableRoot, "project"));
    const before = lstatSync(join(project, ".git/index")).mtimeMs;
    expect(ok(await world.run("git", ["status"], { cwd: project })).exitCode).toBe(0);
    expect(lstatSync(join(project, ".git/index")).mtimeMs).toBe(before);
    const would = await import("../../src/host/tools/cmd-run.js");
    const decision = would.decideCmdRun(world.policy, { commandId: "git", args: ["status"] });
    expect(decision).toMatchObject({ effect: "permit", would: { writes: [] } });
  });

  test("git commits only where the rule opens repositories, and the policy says so", async () => {
    world = makeWorld(COMMANDS);
    expect(world.policy.notices.join("\n")).toMatch(/plain-git.*repositoryInternals: true/);
    const project = makeProject(join(world.writableRoot, "project"));
    writeFileSync(join(project, "a.txt"), "two\n");
    expect(ok(await world.run("plain-git", ["add", "a.txt"], { cwd: project })).exitCode).not.toBe(0);
    const writableRoots = world.policy.writableRoots.map((writableRoot) => ({
      ...writableRoot,
      repositoryInternals: true,
    }));
    const { executeCmdRun } = await import("../../src/host/index.js");
    const call = { commandId: "plain-git", args: ["add", "a.txt"], cwd: project };
    const added = ok(await executeCmdRun({ ...world.policy, writableRoots }, call, { sandbox: world.sandbox }));
    expect(added.exitCode, added.stderr).toBe(0);
    expect(git(project, "diff", "--cached", "--name-only")).toContain("a.txt");
  });
});

/** Tries to write a hook and a setting, and to put another repository in the place of this one. */
function plant(project: string): string {
  const git = join(project, ".git");
  return [
    `mkdir -p ${git}/hooks; echo '#!/bin/sh' > ${hookOf(project)}; chmod +x ${hookOf(project)}`,
    `printf '[core]\\n\\tfsmonitor = evil\\n' >> ${git}/config; printf x > ${git}/config.worktree; printf x > ${git}/info/attributes`,
    `mkdir -p ${project}-copy/.git/hooks; cp -r ${git}/. ${project}-copy/.git; echo x > ${project}-copy/.git/hooks/post-checkout`,
    `mv -f -T ${project}-copy/.git ${git}; mv -T --exchange ${project}-copy ${project}; cp -rf ${project}-copy/.git/. ${git}`,
    `ln -sfn ${project}-copy/.git ${git}; ln ${git}/config ${project}-copy/config && echo x >> ${project}-copy/config`,
    `tar -C ${project}-copy -cf x.tar .git; tar -C ${project} -xf x.tar --overwrite; rm -rf ${git}; mv ${project} ${project}-gone; mv ${project}-copy ${project}`,
  ].join("; ");
}

/** What git would run or read as settings, and which directory that is. */
function stateOf(project: string): unknown {
  const git = join(project, ".git");
  const read = (name: string): string | undefined =>
    existsSync(join(git, name)) ? readFileSync(join(git, name), "utf8") : undefined;
  return {
    ino: lstatSync(git).ino,
    hook: read("hooks/post-checkout"),
    config: read("config"),
    worktree: read("config.worktree"),
    attributes: read("info/attributes"),
  };
}

describe("a command", () => {
  test.each(WAYS)(
    "a command plants nothing by writing, copying, linking, unpacking or exchanging, confined by %s",
    async (_, without) => {
      world = makeWorld(COMMANDS, "", without);
      const project = makeProject(join(world.writableRoot, "project"));
      openModes(world.writableRoot);
      const before = stateOf(project);
      ok(await world.run("sh", ["-c", plant(project)], { cwd: world.writableRoot }));
      expect(stateOf(project)).toEqual(before);
    },
  );

  test("a command plants nothing in a repository among installed packages", async () => {
    world = makeWorld(COMMANDS);
    for (const name of ["node_modules/own", "node_modules/@scope/own", "a/node_modules/x/node_modules/own"]) {
      const project = makeProject(join(world.writableRoot, name));
      openModes(world.writableRoot);
      const before = stateOf(project);
      ok(await world.run("sh", ["-c", plant(project)], { cwd: world.writableRoot }));
      expect(stateOf(project), name).toEqual(before);
      expect(rule(await world.write({ path: join(project, ".git/hooks/post-checkout"), data: "x" }))).toBe(
        "writeRules.repositoryInternals",
      );
    }
  });

  test.each(["300", "400", "000"])(
    "a command plants nothing in a repository after it set the directory above to mode %s",
    async (mode) => {
      world = makeWorld(COMMANDS);
      const project = makeProject(join(world.writableRoot, "a/project"));
      const bare = join(world.writableRoot, "a/bare");
      git(world.writableRoot, "init", "-q", "--bare", bare);
      const before = [stateOf(project), readFileSync(join(bare, "config"), "utf8")];
      for (const path of [project, bare, join(world.writableRoot, "a")]) {
        ok(await world.run("sh", ["-c", `chmod ${mode} ${path}`], { cwd: world.writableRoot }));
        const script = `chmod 700 ${path}; ${plant(project)}; echo x >> ${bare}/config`;
        ok(await world.run("sh", ["-c", script], { cwd: world.writableRoot }));
        for (const at of [join(world.writableRoot, "a"), project, bare]) chmodSync(at, 0o700);
        expect([stateOf(project), readFileSync(join(bare, "config"), "utf8")], path).toEqual(before);
      }
    },
  );

  test.each(WAYS)(
    "a command plants nothing in a repository recreated under the same name, confined by %s",
    async (_, without) => {
      world = makeWorld(COMMANDS, "", without);
      const project = makeProject(join(world.writableRoot, "project"));
      openModes(world.writableRoot);
      for (const remade of [join(project, ".git"), project, join(project, ".git"), project]) {
        // The process container of the first command may be used for the second one.
        ok(await world.run("sh", ["-c", "true"], { cwd: world.writableRoot }));
        rmSync(remade, { recursive: true });
        makeProject(project);
        openModes(world.writableRoot);
        const before = stateOf(project);
        ok(await world.run("sh", ["-c", plant(project)], { cwd: world.writableRoot }));
        expect(stateOf(project), remade).toEqual(before);
        rmSync(`${project}-copy`, { recursive: true, force: true });
      }
    },
  );

  test.each(WAYS)(
    "a command writes no hook where the repository's settings say that hooks are, confined by %s",
    async (_, without) => {
      world = makeWorld(COMMANDS, "", without);
      const project = makeProject(join(world.writableRoot, "project"));
      mkdirSync(join(project, ".husky/_"), { recursive: true });
      writeFileSync(join(project, ".husky/_/h"), "own\n");
      git(project, "config", "core.hooksPath", ".husky/_");
      openModes(world.writableRoot);
      const at = join(project, ".husky");
      const script = `echo x > ${at}/_/h; echo x > ${at}/_/post-checkout; mv ${at}/_ ${at}/old; mv ${at} ${at}-old; mkdir -p ${at}/_; echo x > ${at}/_/h`;
      ok(await world.run("sh", ["-c", script], { cwd: world.writableRoot }));
      expect(readFileSync(join(at, "_/h"), "utf8")).toBe("own\n");
      expect(existsSync(join(at, "_/post-checkout"))).toBe(false);
      for (const name of ["h", "post-checkout"]) {
        const written = await world.write({ path: join(at, "_", name), data: "x", overwrite: true });
        expect(rule(written)).toBe("writeRules.repositoryInternals");
      }
      // What a diff shows is a file like any other.
      expect(ok(await world.write({ path: join(at, "pre-commit"), data: "x" })).bytesWritten).toBe(1);
    },
  );

  test.each(WAYS)(
    "a command changes no settings that a repository includes from its work tree, confined by %s",
    async (_, without) => {
      world = makeWorld(COMMANDS, "", without);
      const project = makeProject(join(world.writableRoot, "project"));
      const shared = join(project, "team/gitconfig");
      const deeper = join(project, "team/deeper");
      const marker = join(world.writableRoot, "marker");
      mkdirSync(dirname(shared));
      writeFileSync(shared, "[include] path = deeper\n");
      writeFileSync(deeper, "[alias]\n\tst = status\n");
      git(project, "config", "include.path", "../team/gitconfig");
      openModes(world.writableRoot);
      const setting = `[core] fsmonitor = "touch ${marker}; false"`;
      const plant = [shared, deeper]
        .map((path) => `printf '%s' '${setting}' > ${path}; mv ${path} ${path}-old; printf '%s' '${setting}' > ${path}`)
        .join("; ");
      ok(await world.run("sh", ["-c", `${plant}; mv ${dirname(shared)} ${project}/old`], { cwd: world.writableRoot }));
      for (const path of [shared, deeper]) {
        const written = await world.write({ path, data: setting, overwrite: true });
        expect(rule(written)).toBe("writeRules.repositoryInternals");
      }
      git(project, "status");
      expect(existsSync(marker)).toBe(false);
      // The attack is a real one.
      writeFileSync(deeper, setting);
      git(project, "status");
      expect(existsSync(marker), "control").toBe(true);
    },
  );

  test("a command creates no settings and no hooks that are named and do not exist yet", async () => {
    world = makeWorld(COMMANDS);
    const project = makeProject(join(world.writableRoot, "a/project"));
    git(project, "config", "include.path", "../local.gitconfig");
    git(project, "config", "core.hooksPath", "hooks");
    const script = `echo x > ${project}/local.gitconfig; mkdir ${project}/hooks; echo x > ${project}/hooks/post-checkout`;
    ok(await world.run("sh", ["-c", script], { cwd: world.writableRoot }));
    for (const name of ["local.gitconfig", "hooks"]) {
      expect(existsSync(join(project, name)), name).toBe(false);
      expect(rule(await world.write({ path: join(project, name, "x"), data: "x" }))).toBeDefined();
    }
  });

  test("a command writes no hook where the settings of a linked work tree's repository name it", async () => {
    world = makeWorld(COMMANDS);
    const project = makeProject(join(world.outside, "project"));
    git(project, "config", "core.hooksPath", ".husky");
    const tree = join(world.writableRoot, "tree");
    git(project, "worktree", "add", "-q", tree);
    mkdirSync(join(tree, ".husky"));
    const hook = join(tree, ".husky/post-checkout");
    ok(await world.run("sh", ["-c", `echo x > ${hook}`], { cwd: world.writableRoot }));
    expect(rule(await world.write({ path: hook, data: "x" }))).toBe("writeRules.repositoryInternals");
    expect(existsSync(hook)).toBe(false);
  });

  test("a command plants nothing through a linked work tree or a submodule", async () => {
    world = makeWorld(COMMANDS);
    const project = makeProject(join(world.writableRoot, "project"));
    const inner = makeProject(join(world.outside, "inner"));
    git(project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "sub");
    git(project, "worktree", "add", "-q", join(world.writableRoot, "tree"));
    const files = [join(project, "sub/.git"), join(world.writableRoot, "tree/.git")];
    const before = files.map((path) => [readFileSync(path, "utf8"), lstatSync(path).ino]);
    const script = files
      .map((path) => {
        const above = dirname(path);
        return `echo 'gitdir: ${world.writableRoot}/fake' > ${path}; rm -f ${path}; mkdir ${path}; mv ${above} ${above}-old; mkdir -p ${above}/.git; echo x > ${project}/.git/modules/sub/hooks/post-checkout; echo x > ${project}/.git/worktrees/tree/config.worktree`;
      })
      .join("; ");
    ok(await world.run("sh", ["-c", script], { cwd: world.writableRoot }));
    expect(files.map((path) => [readFileSync(path, "utf8"), lstatSync(path).ino])).toEqual(before);
    expect(existsSync(join(project, ".git/modules/sub/hooks/post-checkout"))).toBe(false);
    expect(existsSync(join(project, ".git/worktrees/tree/config.worktree"))).toBe(false);
  });

  test.each(WAYS)("a command replaces no repository by another, confined by %s [M4]", async (_, without) => {
    world = makeWorld(COMMANDS, "", without);
    const projects = ["project", "a/b/c/project"].map((name) => makeProject(join(world.writableRoot, name)));
    openModes(world.writableRoot);
    for (const project of projects) {
      const before = lstatSync(join(project, ".git")).ino;
      const names = project.slice(world.writableRoot.length + 1).split("/");
      for (let depth = 1; depth <= names.length; depth++) {
        const at = join(world.writableRoot, ...names.slice(0, depth));
        const script = `mv ${at} ${at}-old; cp -r ${at}-old ${at}; mkdir -p ${project}/.git/hooks; echo x > ${hookOf(project)}; chmod +x ${hookOf(project)}; rm -rf ${at}; python3 -c 'import os; os.rename("${at}", "${at}-2")'`;
        ok(await world.run("sh", ["-c", script], { cwd: world.writableRoot }));
        expect(existsSync(hookOf(project)), at).toBe(false);
        expect(lstatSync(join(project, ".git")).ino).toBe(before);
        expect(git(project, "log", "--oneline")).toContain("first");
      }
    }
  });

  test.each(WAYS.slice(0, 2))(
    "a command works in a repository's own directories, confined by %s",
    async (_, without) => {
      world = makeWorld(COMMANDS, "", without);
      const project = makeProject(join(world.writableRoot, "a/project"));
      const script =
        "mkdir -p build/x && echo y > build/x/f && mv build dist && rm a.txt && echo z > b.txt && mv b.txt a.txt";
      const result = ok(await world.run("sh", ["-c", script], { cwd: project }));
      expect(result.exitCode, result.stderr).toBe(0);
      expect(readFileSync(join(project, "dist/x/f"), "utf8")).toBe("y\n");
      expect(readFileSync(join(project, "a.txt"), "utf8")).toBe("z\n");
    },
  );

  test("a command writes existing files beside a repository where Landlock alone confines it", async () => {
    world = makeWorld(COMMANDS, "", { view: true, userNamespace: true });
    const project = makeProject(join(world.writableRoot, "project"));
    mkdirSync(join(project, "src"));
    symlinkSync(world.outside, join(project, "way-out"));
    for (const path of [world.writableRoot, world.outside]) openModes(path);
    const script = `echo 1 > src/new; echo 2 > a.txt; echo 3 > top; echo 4 > way-out/new; echo 5 > ${world.writableRoot}/top`;
    const { protections } = ok(await world.run("sh", ["-c", script], { cwd: project }));
    expect(protections.notes.join()).toContain("beside a repository");
    expect(readFileSync(join(project, "src/new"), "utf8")).toBe("1\n");
    expect(readFileSync(join(project, "a.txt"), "utf8")).toBe("2\n");
    for (const path of [join(project, "top"), join(world.outside, "new"), join(world.writableRoot, "top")])
      expect(existsSync(path), path).toBe(false);
  });

  test.each([
    [
      "a bare repository",
      "bare.git",
      (path: string) => git(world.writableRoot, "init", "-q", "--bare", path),
      "hooks/post-receive",
    ],
    [
      "a directory that a .git file points to",
      "elsewhere",
      (path: string) => git(world.writableRoot, "init", "-q", `--separate-git-dir=${path}`, "tree"),
      "hooks/post-checkout",
    ],
    [
      "a .git that is a link",
      "linked",
      (path: string) => {
        const project = makeProject(path);
        renameSync(join(project, ".git"), join(world.base, "real.git"));
        symlinkSync(join(world.base, "real.git"), join(project, ".git"));
      },
      ".git.new",
    ],
  ])("a command writes no hook into %s, nor does fs.write [M4]", async (_, name, make, hook) => {
    world = makeWorld(COMMANDS);
    const path = join(world.writableRoot, name);
    make(path);
    const script = `echo x > ${path}/${hook}; rm -f ${path}/.git; mkdir -p ${path}/.git/hooks; echo x > ${path}/.git/config; mv ${path} ${path}2`;
    ok(await world.run("sh", ["-c", script], { cwd: world.writableRoot }));
    expect(existsSync(join(path, hook))).toBe(false);
    expect(existsSync(`${path}2`)).toBe(false);
    expect(lstatSync(join(path, ".git"), { throwIfNoEntry: false })?.isDirectory() ?? false).toBe(false);
    if (name !== "linked") {
      const written = await world.write({ path: join(path, hook), data: "x" });
      expect(rule(written)).toBe("writeRules.repositoryInternals");
      expect(existsSync(join(path, hook))).toBe(false);
    }
  });

  test("a zone with more repositories than can be protected is read-only for commands", async () => {
    world = makeWorld(COMMANDS);
    for (let i = 0; i <= MAX_REPOSITORIES; i++) mkdirSync(join(world.writableRoot, `p${i}/.git`), { recursive: true });
    const { protections } = ok(
      await world.run("sh", ["-c", "echo x > new; echo x > p1/.git/config"], { cwd: world.writableRoot }),
    );
    expect(protections.notes.join()).toContain(`more than ${MAX_REPOSITORIES} repositories`);
    expect(existsSync(join(world.writableRoot, "new"))).toBe(false);
    expect(existsSync(join(world.writableRoot, "p1/.git/config"))).toBe(false);
  });
});
