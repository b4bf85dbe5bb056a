// Submodules that are not checked out are empty directories in a repository. Git looks into each of them whenever it is asked
// for the status, and runs what the settings that it finds there name.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { submodulesIn } from "../../src/host/paths/git-index.js";
import { findRepositories } from "../../src/host/paths/repositories.js";
import type { Without } from "../../src/host/sandbox/confinement.js";
import { missingPrograms } from "../setup/programs.js";
import { makeWorld, ok, rule, type World } from "./support/world.js";

const missing = missingPrograms("git");
const SHELL = `  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] } }`;
const WAYS: [string, Without][] = [
  ["a view", {}],
  ["Landlock alone", { view: true, userNamespace: true }],
];

let world: World;
beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});
afterEach(async () => {
  await world?.close();
});

function git(cwd: string, ...args: string[]): string {
  const settings = ["user.name=test", "user.email=t@example.invalid", "protocol.file.allow=always"];
  return execFileSync("git", [...settings.flatMap((each) => ["-c", each]), ...args], {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env.PATH, HOME: world.base, GIT_CONFIG_NOSYSTEM: "1" },
  });
}

function makeProject(path: string, ...init: string[]): string {
  mkdirSync(path, { recursive: true });
  git(path, "init", "-q", "-b", "main", ...init);
  writeFileSync(join(path, "a.txt"), "one\n");
  git(path, "add", "a.txt");
  git(path, "commit", "-qm", "first");
  return path;
}

/** A clone in the writable directory whose submodules `sub` and `deep/er` are not checked out. */
function cloned(...init: string[]): string {
  const inner = makeProject(join(world.outside, "inner"), ...init);
  const origin = makeProject(join(world.outside, "origin"), ...init);
  for (const path of ["sub", "deep/er"]) git(origin, "submodule", "--quiet", "add", inner, path);
  git(origin, "commit", "-qm", "submodules");
  const project = join(world.writableRoot, "project");
  git(world.writableRoot, "clone", "-q", origin, project);
  execFileSync("chmod", ["-R", "a+rwX", world.writableRoot]);
  return project;
}

/** Makes a repository of a directory, with a program that git runs when it is asked for the status. */
function plant(sub: string, marker: string): string {
  return [
    `mkdir -p ${sub}/.git/objects ${sub}/.git/refs`,
    `echo 'ref: refs/heads/main' > ${sub}/.git/HEAD`,
    `printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = "touch ${marker}; false"\\n' > ${sub}/.git/config`,
    `mv ${sub} ${sub}-old; cp -r ${sub}-old ${sub}`,
  ].join("; ");
}

test.each(WAYS)(
  "a command makes no repository of a submodule that is not checked out, confined by %s",
  async (_, without) => {
    world = makeWorld(SHELL, "", without);
    const project = cloned();
    const marker = join(world.writableRoot, "marker");
    for (const name of ["sub", "deep/er"]) {
      const sub = join(project, name);
      ok(await world.run("sh", ["-c", plant(sub, marker)], { cwd: world.writableRoot }));
      expect(rule(await world.write({ path: join(sub, ".git"), data: "gitdir: ../x" }))).toBe(
        "writeRules.repositoryInternals",
      );
    }
    git(project, "status");
    expect(existsSync(marker)).toBe(false);
    // The attack is a real one.
    execFileSync("/bin/sh", ["-c", plant(join(project, "sub"), marker)], { stdio: "ignore" });
    git(project, "status");
    expect(existsSync(marker), "control").toBe(true);
  },
);

test("a writable directory inside a repository has that repository's submodules closed", () => {
  world = makeWorld(SHELL);
  const project = cloned();
  expect(findRepositories(join(project, "deep"))).toEqual({ kind: "found", paths: [join(project, "deep/er")] });
});

test("a submodule whose directory is missing closes the directory in which it would be made", () => {
  world = makeWorld(SHELL);
  const project = cloned();
  rmSync(join(project, "deep/er"), { recursive: true });
  expect(findRepositories(world.writableRoot)).toEqual({
    kind: "found",
    paths: [join(project, ".git"), join(project, "deep"), join(project, "sub")],
  });
  writeFileSync(join(project, ".git/index"), "not an index");
  expect(findRepositories(world.writableRoot)).toEqual({ kind: "found", paths: [project] });
});

test.each([
  ["2", [], []],
  ["3", [], ["update-index", "--skip-worktree", "a.txt"]],
  ["4", [], []],
  ["2", ["--object-format=sha256"], []],
  ["2", [], ["update-index", "--split-index"]],
] as const)("submodules are read from an index of version %s made with %j and %j", (version, init, change) => {
  world = makeWorld(SHELL);
  const project = cloned(...init);
  const blob = git(project, "rev-parse", "HEAD:a.txt").trim();
  const names = Array.from({ length: 20 }, (_, i) => `s${"x".repeat(i)}${i}`);
  // Longer than the length in an entry can say.
  const added = [...names, "t".repeat(5_000)].flatMap((name) => ["--cacheinfo", `100644,${blob},${name}`]);
  git(project, "update-index", "--add", ...added);
  git(project, "update-index", "--index-version", version);
  if (change.length > 0) git(project, ...change);
  const found = submodulesIn(join(project, ".git"), init.length > 0);
  expect([...new Set(found)].sort()).toEqual(["deep/er", "sub"]);
});
