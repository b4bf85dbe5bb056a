import { mkdtempSync, realpathSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Koffi, loadKoffi } from "../../lib/index.js";
import { openForReadPortable } from "./portable.js";
import { asking, type SystemFacts, systemFacts } from "./system-facts.js";

let dir: string;
beforeAll(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-facts-")));
  writeFileSync(join(dir, "a.txt"), "hello");
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** A system whose calls answer with these functions. */
function fake(calls: Record<string, (...args: any[]) => number>, libraries: (string | null)[] = []): Koffi {
  return {
    load: (path) => {
      libraries.push(path);
      return { func: (name) => calls[name] ?? (() => expect.unreachable(`${name} was not expected`)) };
    },
    errno: () => 0,
    address: () => 0n,
  };
}

it.runIf(process.platform === "linux" && loadKoffi() !== undefined)(
  "the facts of a volume are asked of Linux through the FFI library [M10]",
  () => {
    expect(systemFacts("/proc")).toEqual({
      typeName: "proc",
      volume: "local",
      isCaseSensitive: true,
      isReparsePoint: false,
    });
    const { typeName } = systemFacts(dir);
    const number = Number(statfsSync(dir).type) >>> 0;
    const names: Record<number, string> = {
      0xef53: "ext4",
      0x01021994: "tmpfs",
      0x794c7630: "overlay",
      0x9123683e: "btrfs",
    };
    expect(typeName).toBe(names[number] ?? `type 0x${number.toString(16)}`);
  },
);

it("a file is opened where the facts of its volume allow it, and denied by them [M10]", () => {
  const local: SystemFacts = { typeName: "ext4", volume: "local", isCaseSensitive: true, isReparsePoint: false };
  const rules = { denyNetworkFS: true, hardLinks: "deny", maxReadBytes: 100 } as never;
  const open = (facts: SystemFacts) =>
    openForReadPortable(join(dir, "a.txt"), [{ path: dir, written: dir } as never], rules, "path", () => facts);
  expect(open(local)).toMatchObject({ path: join(dir, "a.txt"), size: 5 });
  for (const facts of [
    { ...local, volume: "remote" },
    { ...local, typeName: "smbfs" },
  ] as const) {
    expect(open(facts)).toMatchObject({ rule: "denyNetworkFS" });
  }
});

it("reads the file system, the local flag and case from what macOS answers [M10]", () => {
  const calls = (type: string, flags: number, sensitive: number) => {
    const statfs = (_path: string, found: Buffer): number => {
      found.writeUInt32LE(flags, 64);
      found.write(type, 72, "latin1");
      return 0;
    };
    return fake({ statfs, statfs$INODE64: statfs, pathconf: (_path, name) => (name === 11 ? sensitive : -1) });
  };
  expect(asking("darwin", calls("apfs", 0x1000, 0))("/Users")).toEqual({
    typeName: "apfs",
    volume: "local",
    isCaseSensitive: false,
    isReparsePoint: false,
  });
  expect(asking("darwin", calls("smbfs", 0, 1))("/Volumes/x")).toMatchObject({
    typeName: "smbfs",
    volume: "remote",
    isCaseSensitive: true,
  });
});

it("reads the drive type, the file system and reparse points from what Windows answers [M10]", () => {
  const libraries: (string | null)[] = [];
  const facts = (type: number, found: number) => {
    const calls = {
      GetVolumePathNameW: (_path: string, text: Buffer) => text.write("D:\\\0", "utf16le"),
      GetDriveTypeW: (root: string) => (root === "D:\\" ? type : 1),
      GetVolumeInformationW: (...args: any[]) => (args[6] as Buffer).write("NTFS\0", "utf16le"),
      GetFileAttributesW: () => found,
    };
    return asking("win32", fake(calls, libraries))("D:\\notes\\a.txt");
  };
  expect(facts(3, 0x20)).toEqual({ typeName: "NTFS", volume: "local", isCaseSensitive: false, isReparsePoint: false });
  expect(facts(4, 0x420)).toMatchObject({ volume: "remote", isReparsePoint: true });
  expect(facts(1, 0xffffffff)).toMatchObject({ volume: "remote", isReparsePoint: false });
  expect(facts(0, 0x20)).toMatchObject({ volume: "unknown" });
  expect(new Set(libraries)).toEqual(new Set(["kernel32.dll"]));
});

it("the facts are unknown where the library cannot be loaded, and what macOS does not show to be local is remote", () => {
  expect(asking("win32", undefined)("C:\\x")).toMatchObject({ volume: "unknown" });
  expect(asking("darwin", undefined)(dir).volume).toBe("remote");
});
