// Where commands keep data: in the user's state directory, or in a project's `.portcullis` where the user created one.

import { spawnSync } from "node:child_process";
import { chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { main } from "./first-hour.js";

let home: string;
let work: string;
beforeEach(() => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-data-")));
  work = join(home, "project", "deep");
  mkdirSync(work, { recursive: true });
  // Directories for temporary files are not remembered, and all of this is in one.
  mkdirSync(join(home, "tmp"));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function run(cwd: string, args: readonly string[], more: Record<string, string> = {}) {
  const env = { PATH: process.env.PATH ?? "", HOME: home, TMPDIR: join(home, "tmp"), NO_COLOR: "1", ...more };
  const ran = spawnSync(process.execPath, [main, ...args], { cwd, input: "", encoding: "utf8", timeout: 60_000, env });
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr };
}

const usual = (): string => join(home, ".local", "state", "portcullis");

it("keeps data in the user's state directory, and finds it from every directory [H5]", () => {
  const added = run(work, ["app", "add", "blog"]);
  expect([added.code, added.stderr]).toEqual([0, ""]);
  expect(readdirSync(work)).toEqual([]);
  expect(existsSync(join(usual(), "portcullis.db"))).toBe(true);
  expect(run(home, ["app", "ls"]).stdout).toContain("blog");
  const elsewhere = join(home, "state");
  expect(run(work, ["app", "add", "shop"], { XDG_STATE_HOME: elsewhere }).code).toBe(0);
  expect(existsSync(join(elsewhere, "portcullis", "portcullis.db"))).toBe(true);
});

it("uses the data directory of a project, which is found from the directories below it", () => {
  mkdirSync(join(home, "project", ".portcullis"));
  expect(run(work, ["app", "add", "blog"]).code).toBe(0);
  expect(existsSync(join(home, "project", ".portcullis", "portcullis.db"))).toBe(true);
  expect(run(join(home, "project"), ["app", "ls"]).stdout).toContain("blog");
});

it("names the data directories of the user when a command finds nothing in its own", () => {
  const project = join(home, "project", ".portcullis");
  expect(run(home, ["--dir", project, "app", "add", "blog"]).code).toBe(0);
  for (const args of [
    ["app", "ls"],
    ["app", "show", "blog"],
    ["connect", "cursor", "--app", "blog"],
    ["approvals", "ls"],
    ["audit", "tail"],
  ]) {
    const { stdout, stderr } = run(home, args);
    expect(stdout + stderr, args.join(" ")).toContain(`  ${project}\n`);
    expect(stdout + stderr, args.join(" ")).toContain("--dir");
  }
});

it.skipIf(process.getuid?.() !== 0)("refuses the data directory of another user unless it is named", () => {
  const planted = join(home, "project", ".portcullis");
  mkdirSync(planted);
  chownSync(planted, 65_534, 65_534);
  const refused = run(work, ["app", "ls"]);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain(`the data directory ${planted} belongs to another user (uid 65534)`);
  expect(run(work, ["--dir", planted, "app", "ls"]).code).toBe(0);
  expect(run(work, ["--version"]).code).toBe(0);
});

it.each([
  "ls --url http://127.0.0.1:1/mcp",
  "app ls",
  "app ls --storage sqlite:other.db",
  "key add blog --name x",
  "pin ls local fs",
  "policy check",
  "policy explain math.add {} --agent local/cli",
  "policy suggest",
  "audit tail",
  "audit verify",
  "store level",
  "export",
  "doctor",
  "connect claude-code --dry-run",
])("creates nothing when asked `%s`", (line) => {
  run(work, line.split(" "));
  const all = readdirSync(home, { recursive: true, encoding: "utf8" }).sort();
  expect(all).toEqual(["project", "project/deep", "tmp"]);
});
