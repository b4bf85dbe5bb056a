import { execFileSync } from "node:child_process";
import {
  chmodSync,
  closeSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type OpeningMethod, useOpeningMethod } from "./locate.js";
import { native } from "./native.js";
import { findTarget, type WritableRoot } from "./target.js";
import { writeTarget } from "./write.js";

let base = "";
let writableRoot: WritableRoot;
const rules = { denyNetworkFS: true };

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "write-")));
  mkdirSync(join(base, "root/zone/sub"), { recursive: true });
  mkdirSync(join(base, "root/src"));
  mkdirSync(join(base, "outside"));
  writeFileSync(join(base, "outside/secret"), "secret");
  const path = join(base, "root/zone");
  writableRoot = {
    path,
    written: path,
    recursive: true,
    maxFileBytes: 1000,
    createIfMissing: true,
    repositoryInternals: false,
  };
});
afterEach(() => {
  useOpeningMethod(undefined);
  rmSync(base, { recursive: true, force: true });
});

/** "written", or the rule that refused. */
async function write(
  path: string,
  text: string,
  writableRoots: readonly WritableRoot[] = [writableRoot],
  signal?: AbortSignal,
): Promise<string> {
  const target = findTarget(path, writableRoots, rules, "path");
  if (!("directory" in target)) return target.rule;
  const written = await writeTarget(target, Buffer.from(text), path, "path", signal);
  return "path" in written ? "written" : written.rule;
}

const names = (directory = writableRoot.path): string[] => readdirSync(directory).sort();
const mode = (path: string): string => (statSync(path).mode & 0o7777).toString(8);

describe.each<OpeningMethod>(["openat2", "o_path"])("writing, opened by %s", (method) => {
  beforeEach(() => useOpeningMethod(method));

  test("a new file has mode 600, its bytes, and nothing beside it", async () => {
    expect(await write(join(writableRoot.path, "new.txt"), "hello")).toBe("written");
    expect(readFileSync(join(writableRoot.path, "new.txt"), "utf8")).toBe("hello");
    expect(mode(join(writableRoot.path, "new.txt"))).toBe("600");
    expect(names()).toEqual(["new.txt", "sub"]);
  });

  test("a replaced file keeps its mode, without set-user-id bits, and is another inode", async () => {
    const path = join(writableRoot.path, "old");
    writeFileSync(path, "old");
    chmodSync(path, 0o4755);
    const before = statSync(path).ino;
    expect(await write(path, "new")).toBe("written");
    expect(mode(path)).toBe("755");
    expect(statSync(path).ino).not.toBe(before);
    expect(names()).toEqual(["old", "sub"]);
  });

  test("replacing a hard link leaves the other name its contents", async () => {
    linkSync(join(base, "outside/secret"), join(writableRoot.path, "hard"));
    expect(await write(join(writableRoot.path, "hard"), "new")).toBe("written");
    expect(readFileSync(join(base, "outside/secret"), "utf8")).toBe("secret");
    expect(readFileSync(join(writableRoot.path, "hard"), "utf8")).toBe("new");
  });

  test("a link inside the writable root is written through, the link stays", async () => {
    writeFileSync(join(writableRoot.path, "real"), "old");
    symlinkSync(join(writableRoot.path, "real"), join(writableRoot.path, "link"));
    expect(await write(join(writableRoot.path, "link"), "new")).toBe("written");
    expect(lstatSync(join(writableRoot.path, "link")).isSymbolicLink()).toBe(true);
    expect(readFileSync(join(writableRoot.path, "real"), "utf8")).toBe("new");
  });

  test("missing directories are made, private, and not kept when the write fails", async () => {
    expect(await write(join(writableRoot.path, "x/y/z.txt"), "deep")).toBe("written");
    expect(mode(join(writableRoot.path, "x"))).toBe("700");
    const aborted = AbortSignal.abort();
    expect(await write(join(writableRoot.path, "p/q/r.txt"), "deep", [writableRoot], aborted)).toBe("cancelled");
    expect(names()).toEqual(["sub", "x"]);
  });

  test.each([
    [
      "a link out of the zone to a folder",
      "d/f",
      (z: string, b: string) => symlinkSync(join(b, "outside"), join(z, "d")),
      "outsideWriteZones",
    ],
    [
      "a link out of the zone to a file",
      "f",
      (z: string, b: string) => symlinkSync(join(b, "outside/secret"), join(z, "f")),
      "outsideWriteZones",
    ],
    [
      "a link into the root beside the zone",
      "s/f",
      (z: string, b: string) => symlinkSync(join(b, "root/src"), join(z, "s")),
      "outsideWriteZones",
    ],
    ["a dangling link", "g", (z: string) => symlinkSync("nowhere", join(z, "g")), "danglingLink"],
    [
      "a dangling link out",
      "g",
      (z: string, b: string) => symlinkSync(join(b, "outside/new"), join(z, "g")),
      "outsideWriteZones",
    ],
    [
      "a dangling folder link",
      "g/f",
      (z: string, b: string) => symlinkSync(join(b, "outside/new"), join(z, "g")),
      "outsideWriteZones",
    ],
    ["a folder", "sub", () => undefined, "notAFile"],
    ["a trailing slash", "new/", () => undefined, "notAFileName"],
    ["dots at the end", "sub/..", () => undefined, "notAFileName"],
    [".. after a missing folder", "nope/../x", () => undefined, "notAFileName"],
    ["a way out through missing folders", "nope/../../../outside/x", () => undefined, "notAFileName"],
    ["a file as a folder", "file/x", (z: string) => writeFileSync(join(z, "file"), ""), "notFound"],
    [
      "a look-alike of an existing name",
      "cafe\u0301",
      (z: string) => writeFileSync(join(z, "caf\u00e9"), ""),
      "lookAlikeName",
    ],
    ["a name that ends in a space", "a ", () => undefined, "trailingDotOrSpace"],
  ])("%s is refused and nothing changes", async (_, path, prepare, rule) => {
    prepare(writableRoot.path, base);
    const before = [names(), names(join(base, "outside")), names(join(base, "root/src"))];
    expect(await write(`${writableRoot.path}/${path}`, "ATTACK")).toBe(rule);
    expect([names(), names(join(base, "outside")), names(join(base, "root/src"))]).toEqual(before);
    expect(readFileSync(join(base, "outside/secret"), "utf8")).toBe("secret");
  });

  test("a writable root that is not recursive takes files in itself only", async () => {
    const flat = { ...writableRoot, recursive: false };
    expect(await write(join(writableRoot.path, "a"), "x", [flat])).toBe("written");
    expect(await write(join(writableRoot.path, "sub/a"), "x", [flat])).toBe("writeRules.recursive");
  });

  test("of nested writable roots the inner one decides, however the path begins", async () => {
    const inner: WritableRoot = {
      ...writableRoot,
      path: join(writableRoot.path, "sub"),
      written: join(writableRoot.path, "sub"),
      createIfMissing: false,
    };
    symlinkSync("sub", join(writableRoot.path, "into"));
    for (const path of ["sub/a", "into/a"]) {
      const target = findTarget(join(writableRoot.path, path), [writableRoot, inner], rules, "path");
      expect("writableRoot" in target && target.writableRoot.createIfMissing).toBe(false);
    }
  });
});

test("a full disk leaves the old file and no temporary one", async () => {
  if (process.getuid?.() !== 0) return expect("skipped: mounting a small tmpfs needs root").toBeTruthy();
  const small = join(base, "root/zone/sub");
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", small]);
  try {
    const own = { ...writableRoot, path: small, written: small };
    writeFileSync(join(small, "old"), "old");
    expect(await write(join(small, "old"), "x".repeat(200_000), [own])).toBe("io");
    expect(readFileSync(join(small, "old"), "utf8")).toBe("old");
    expect(names(small)).toEqual(["old"]);
  } finally {
    execFileSync("umount", [small]);
  }
});

test("the name taken meanwhile is left as it is", async () => {
  const path = join(writableRoot.path, "raced");
  const target = findTarget(path, [writableRoot], rules, "path");
  if (!("directory" in target)) throw new Error(target.reason);
  writeFileSync(path, "another user's");
  expect(await writeTarget(target, Buffer.from("ours"), path, "path")).toMatchObject({ rule: "exists" });
  expect(readFileSync(path, "utf8")).toBe("another user's");
  expect(names()).toEqual(["raced", "sub"]);
});

test("a directory swapped for a link after it was opened is not followed", async () => {
  const path = join(writableRoot.path, "sub/f");
  const target = findTarget(path, [writableRoot], rules, "path");
  if (!("directory" in target)) throw new Error(target.reason);
  execFileSync("mv", [join(writableRoot.path, "sub"), join(writableRoot.path, "moved")]);
  symlinkSync(join(base, "outside"), join(writableRoot.path, "sub"));
  await writeTarget(target, Buffer.from("ours"), path, "path");
  expect(names(join(base, "outside"))).toEqual(["secret"]);
  expect(names(join(writableRoot.path, "moved"))).toEqual(["f"]);
});

describe("a draft that was left behind", () => {
  const draft = (directory: string): string => join(directory, ".portcullis-0123456789abcdef01234567.tmp");
  const old = new Date(Date.now() - 3_600_000);

  test("a draft that was left behind by a host that was killed goes with the next write in its directory", async () => {
    writeFileSync(draft(writableRoot.path), "half");
    utimesSync(draft(writableRoot.path), old, old);
    writeFileSync(join(writableRoot.path, "f"), "old");
    expect(await write(join(writableRoot.path, "f"), "new")).toBe("written");
    expect(names()).toEqual(["f", "sub"]);
  });

  test("a draft that was left behind stays while its writer lives, or is too young to say", async () => {
    writeFileSync(draft(writableRoot.path), "being written");
    utimesSync(draft(writableRoot.path), old, old);
    const writer = openSync(draft(writableRoot.path), "r");
    expect(native()?.lockFile(writer)).toBe(0);
    const young = draft(writableRoot.path).replace("0123", "abcd");
    writeFileSync(young, "just made");
    expect(await write(join(writableRoot.path, "f"), "new")).toBe("written");
    closeSync(writer);
    expect(names()).toContain(basename(draft(writableRoot.path)));
    expect(names()).toContain(basename(young));
  });

  test("a draft that was left behind is never a link, and such a name is refused to callers", async () => {
    symlinkSync(join(base, "outside/secret"), draft(writableRoot.path));
    expect(await write(join(writableRoot.path, "f"), "new")).toBe("written");
    expect(readFileSync(join(base, "outside/secret"), "utf8")).toBe("secret");
    expect(await write(draft(join(writableRoot.path, "sub")), "mine")).toBe("reservedName");
  });
});
