// In the policy's directories a command's files belong to their owner, who may be root: none may be made to run as its owner.

import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import type { Without } from "../../src/host/sandbox/confinement.js";
import { has } from "../setup/programs.js";
import { isRoot } from "./support/machine.js";
import { makeWorld, ok, type World } from "./support/world.js";

const SET_ID = 0o6000;
const hasPerl = has("perl") && ["x64", "arm64"].includes(process.arch);
const MKNODAT = process.arch === "x64" ? 259 : 33;

/** Every way to give a file a mode, each for a file of its own. */
const WAYS = [
  "cp /bin/true out/chmod; chmod 4755 out/chmod",
  "cp /bin/true out/letters; chmod u+s,g+s out/letters",
  "cp /bin/true out/group; chmod 2755 out/group",
  "install -m 4755 /bin/true out/install",
  "tar -xpf set-id.tar -C out",
  ...(hasPerl
    ? [
        `perl -e 'use Fcntl; sysopen(F, "out/open", O_CREAT|O_WRONLY, 04755)'`,
        `perl -e '$p = "out/mknod"; syscall(${MKNODAT}, -100, $p, 0104755, 0)'`,
        `perl -e '$p = "out/openat2"; $h = pack("QQQ", 0101, 04755, 0); syscall(437, -100, $p, $h, 24)'`,
        `perl -e '$p = "out/fchmodat2"; syscall(452, -100, $p, 04755, 0)'`,
      ]
    : []),
];

const worlds: World[] = [];
afterEach(async () => {
  for (const world of worlds.splice(0)) await world.close();
});

async function makeFiles(more: string, without: Without = {}): Promise<string[]> {
  const catalog = `  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] } }`;
  const world = makeWorld(catalog, more, without);
  worlds.push(world);
  const source = join(world.root, "set-id");
  copyFileSync("/bin/true", source);
  chmodSync(source, 0o6755);
  execFileSync("tar", ["-C", world.root, "-cf", join(world.root, "set-id.tar"), "set-id"]);
  ok(await world.run("sh", ["-c", `touch out/fchmodat2; ${WAYS.join("; ")}`]));
  return readdirSync(world.writableRoot).filter(
    (name) => (statSync(join(world.writableRoot, name)).mode & SET_ID) !== 0,
  );
}

test("without a sandbox, each attempt creates a set-id file", async () => {
  const made = await makeFiles("sandbox: off");
  expect(made).toEqual(expect.arrayContaining(["chmod", "group", "install", "letters"]));
  if (hasPerl) expect(made).toEqual(expect.arrayContaining(["mknod", "open", "openat2"]));
});

test("a command creates no set-id file [M12]", async () => {
  expect(await makeFiles("")).toEqual([]);
});

test.skipIf(!isRoot)(`nor without a view${isRoot ? "" : " [not run: needs root]"}`, async () => {
  expect(await makeFiles("", { view: true })).toEqual([]);
  expect(await makeFiles("", { ownerMapping: true })).toEqual([]);
  if (has("bwrap")) expect(await makeFiles("", { native: true })).toEqual([]);
});
