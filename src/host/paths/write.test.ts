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
import { findTarget, type OpeningMethod, useOpeningMethod, writeTarget, type Zone } from "./index.js";
import { native } from "./native.js";

let base = "";
let zone: Zone;
const rules = { denyNetworkFS: true };

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "write-")));
  mkdirSync(join(base, "root/zone/sub"), { recursive: true });
  mkdirSync(join(base, "root/src"));
  mkdirSync(join(base, "outside"));
  writeFileSync(join(base, "outside/secret"), "secret");
  const path = join(base, "root/zone");
  zone = {
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
  zones: readonly Zone[] = [zone],
  signal?: AbortSignal,
): Promise<string> {
  const target = findTarget(path, zones, rules, "path");
  if (!("folder" in target)) return target.rule;
  const written = await writeTarget(target, Buffer.from(text), path, "path", signal);
  return "path" in written ? "written" : written.rule;
}

const names = (folder = zone.path): string[] => readdirSync(folder).sort();
const mode = (path: string): string => (statSync(path).mode & 0o7777).toString(8);

describe.each<OpeningMethod>(["openat2", "o_path"])("writing, opened by %s", (method) => {
  beforeEach(() => useOpeningMethod(method));

  test("a new file has mode 600, its bytes, and nothing beside it", async () => {
    expect(await write(join(zone.path, "new.txt"), "hello")).toBe("written");
    expect(readFileSync(join(zone.path, "new.txt"), "utf8")).toBe("hello");
    expect(mode(join(zone.path, "new.txt"))).toBe("600");
    expect(names()).toEqual(["new.txt", "sub"]);
  });

  test("a replaced file keeps its mode, without set-user-id bits, and is another inode", async () => {
    const path = join(zone.path, "old");
    writeFileSync(path, "old");
    chmodSync(path, 0o4755);
    const before = statSync(path).ino;
    expect(await write(path, "new")).toBe("written");
    expect(mode(path)).toBe("755");
    expect(statSync(path).ino).not.toBe(before);
    expect(names()).toEqual(["old", "sub"]);
  });

  test("replacing a hard link leaves the other name its contents", async () => {
    linkSync(join(base, "outside/secret"), join(zone.path, "hard"));
    expect(await write(join(zone.path, "hard"), "new")).toBe("written");
    expect(readFileSync(join(base, "outside/secret"), "utf8")).toBe("secret");
    expect(readFileSync(join(zone.path, "hard"), "utf8")).toBe("new");
  });

  test("a link inside the zone is written through, the link stays", async () => {
    writeFileSync(join(zone.path, "real"), "old");
    symlinkSync(join(zone.path, "real"), join(zone.path, "link"));
    expect(await write(join(zone.path, "link"), "new")).toBe("written");
    expect(lstatSync(join(zone.path, "link")).isSymbolicLink()).toBe(true);
    expect(readFileSync(join(zone.path, "real"), "utf8")).toBe("new");
  });

  test("missing folders are made, private, and not kept when the write fails", async () => {
    expect(await write(join(zone.path, "x/y/z.txt"), "deep")).toBe("written");
    expect(mode(join(zone.path, "x"))).toBe("700");
    const aborted = AbortSignal.abort();
    expect(await write(join(zone.path, "p/q/r.txt"), "deep", [zone], aborted)).toBe("cancelled");
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
    prepare(zone.path, base);
    const before = [names(), names(join(base, "outside")), names(join(base, "root/src"))];
    expect(await write(`${zone.path}/${path}`, "ATTACK")).toBe(rule);
    expect([names(), names(join(base, "outside")), names(join(base, "root/src"))]).toEqual(before);
    expect(readFileSync(join(base, "outside/secret"), "utf8")).toBe("secret");
  });

  test("a zone that is not recursive takes files in itself only", async () => {
    const flat = { ...zone, recursive: false };
    expect(await write(join(zone.path, "a"), "x", [flat])).toBe("written");
    expect(await write(join(zone.path, "sub/a"), "x", [flat])).toBe("writeRules.recursive");
  });

  test("of nested zones the inner one decides, however the path begins", async () => {
    const inner: Zone = {
      ...zone,
      path: join(zone.path, "sub"),
      written: join(zone.path, "sub"),
      createIfMissing: false,
    };
    symlinkSync("sub", join(zone.path, "into"));
    for (const path of ["sub/a", "into/a"]) {
      const target = findTarget(join(zone.path, path), [zone, inner], rules, "path");
      expect("zone" in target && target.zone.createIfMissing).toBe(false);
    }
  });
});

test("a full disk leaves the old file and no temporary one", async () => {
  if (process.getuid?.() !== 0) return expect("skipped: mounting a small tmpfs needs root").toBeTruthy();
  const small = join(base, "root/zone/sub");
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", small]);
  try {
    const own = { ...zone, path: small, written: small };
    writeFileSync(join(small, "old"), "old");
    expect(await write(join(small, "old"), "x".repeat(200_000), [own])).toBe("io");
    expect(readFileSync(join(small, "old"), "utf8")).toBe("old");
    expect(names(small)).toEqual(["old"]);
  } finally {
    execFileSync("umount", [small]);
  }
});

test("the name taken meanwhile is left as it is", async () => {
  const path = join(zone.path, "raced");
  const target = findTarget(path, [zone], rules, "path");
  if (!("folder" in target)) throw new Error(target.reason);
  writeFileSync(path, "somebody else's");
  expect(await writeTarget(target, Buffer.from("ours"), path, "path")).toMatchObject({ rule: "exists" });
  expect(readFileSync(path, "utf8")).toBe("somebody else's");
  expect(names()).toEqual(["raced", "sub"]);
});

test("a folder swapped for a link after it was opened is not followed", async () => {
  const path = join(zone.path, "sub/f");
  const target = findTarget(path, [zone], rules, "path");
  if (!("folder" in target)) throw new Error(target.reason);
  execFileSync("mv", [join(zone.path, "sub"), join(zone.path, "moved")]);
  symlinkSync(join(base, "outside"), join(zone.path, "sub"));
  await writeTarget(target, Buffer.from("ours"), path, "path");
  expect(names(join(base, "outside"))).toEqual(["secret"]);
  expect(names(join(zone.path, "moved"))).toEqual(["f"]);
});

describe("a draft that was left behind", () => {
  const draft = (folder: string): string => join(folder, ".portcullis-0123456789abcdef01234567.tmp");
  const old = new Date(Date.now() - 3_600_000);

  test("by a host that was killed goes with the next write in its folder", async () => {
    writeFileSync(draft(zone.path), "half");
    utimesSync(draft(zone.path), old, old);
    writeFileSync(join(zone.path, "f"), "old");
    expect(await write(join(zone.path, "f"), "new")).toBe("written");
    expect(names()).toEqual(["f", "sub"]);
  });

  test("stays while its writer lives, or is too young to say", async () => {
    writeFileSync(draft(zone.path), "being written");
    utimesSync(draft(zone.path), old, old);
    const writer = openSync(draft(zone.path), "r");
    expect(native()?.lockFile(writer)).toBe(0);
    const young = draft(zone.path).replace("0123", "abcd");
    writeFileSync(young, "just made");
    expect(await write(join(zone.path, "f"), "new")).toBe("written");
    closeSync(writer);
    expect(names()).toContain(basename(draft(zone.path)));
    expect(names()).toContain(basename(young));
  });

  test("is never a link, and nobody else gets such a name", async () => {
    symlinkSync(join(base, "outside/secret"), draft(zone.path));
    expect(await write(join(zone.path, "f"), "new")).toBe("written");
    expect(readFileSync(join(base, "outside/secret"), "utf8")).toBe("secret");
    expect(await write(draft(join(zone.path, "sub")), "mine")).toBe("reservedName");
  });
});
