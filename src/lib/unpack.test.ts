import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync, gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { tarGz } from "../../scripts/release/tar.mjs";
import { unpack } from "./unpack.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-unpack-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const bytes = Buffer.from("x");
const limits = { maxEntries: 10, maxBytes: 64 * 1024 };
const open = (archive: Buffer): Promise<void> => {
  writeFileSync(join(dir, "a.tar.gz"), archive);
  return unpack(join(dir, "a.tar.gz"), join(dir, "out"), "top", limits);
};
/** What lies in the directory besides the archive and what was unpacked: must stay nothing. */
const outside = (): string[] => readdirSync(dir).filter((name) => name !== "a.tar.gz" && name !== "out");

describe("an archive", () => {
  it("an archive is unpacked with long names and the right to run, and without its top directory", async () => {
    const long = `${"directory-with-a-long-name/".repeat(6)}file.txt`;
    await open(
      tarGz([
        { name: "top/", type: "5" },
        { name: "top/a/run.sh", bytes: Buffer.from("#!/bin/sh\n"), mode: 0o755 },
        { name: `top/${long}`, bytes: Buffer.alloc(1500, "y") },
      ]),
    );
    expect(statSync(join(dir, "out/a/run.sh")).mode & 0o777).toBe(0o755);
    expect(readFileSync(join(dir, "out", long), "utf8")).toBe("y".repeat(1500));
    expect(statSync(join(dir, "out", long)).mode & 0o777).toBe(0o644);
  });

  it.each([
    ["a name that goes up", [{ name: "top/../../evil", bytes }]],
    ["a name that goes up from the start", [{ name: "../evil", bytes }]],
    ["an absolute name", [{ name: "/tmp/evil", bytes }]],
    ["another top directory", [{ name: "other/evil", bytes }]],
    ["a top directory that only begins alike", [{ name: "top2/evil", bytes }]],
    ["a name that goes up, in an extended header", [{ name: `top/${"a/".repeat(60)}../../../evil`, bytes }]],
    ["backslashes", [{ name: "top\\..\\..\\evil", bytes }]],
    ["backslashes inside", [{ name: "top/..\\..\\evil", bytes }]],
    ["a drive", [{ name: "top/C:evil", bytes }]],
    ["a stream", [{ name: "top/a:evil", bytes }]],
    ["a device of Windows", [{ name: "top/NUL.txt", bytes }]],
    ["a trailing dot", [{ name: "top/a./b", bytes }]],
    ["a dot", [{ name: "top/./b", bytes }]],
    ["a control character", [{ name: "top/a\u001bb", bytes }]],
    ["an empty part", [{ name: "top//b", bytes }]],
    ["a symbolic link", [{ name: "top/link", type: "2", link: "../.." }]],
    [
      "a link and a file through it",
      [
        { name: "top/link", type: "2", link: "/tmp" },
        { name: "top/link/evil", bytes },
      ],
    ],
    ["a link inside", [{ name: "top/link", type: "2", link: "other" }]],
    ["a hard link", [{ name: "top/link", type: "1", link: "/etc/passwd" }]],
    ["a device", [{ name: "top/dev", type: "3" }]],
    ["a FIFO", [{ name: "top/fifo", type: "6" }]],
    ["a GNU long name", [{ name: "././@LongLink", type: "L", bytes: Buffer.from("../evil\0") }]],
    ["a global header", [{ name: "pax", type: "g", bytes: Buffer.from("17 path=../evil\n") }]],
    ["a link in an extended header", [{ name: "pax", type: "x", bytes: Buffer.from("16 linkpath=/etc\n") }]],
    [
      "a file twice",
      [
        { name: "top/a", bytes },
        { name: "top/a", bytes },
      ],
    ],
    [
      "a file twice, where case does not count",
      [
        { name: "top/a", bytes },
        { name: "top/A", bytes },
      ],
    ],
    [
      "a file that is a directory",
      [
        { name: "top/a/b", bytes },
        { name: "top/a", bytes },
      ],
    ],
    ["a directory with contents", [{ name: "top/a", type: "5", bytes }]],
    ["too many entries", Array.from({ length: 25 }, (_, index) => ({ name: `top/${index}`, bytes }))],
    ["too many bytes", [{ name: "top/a", bytes: Buffer.alloc(65 * 1024) }]],
  ])("an archive with %s is refused, and nothing lies outside", async (_, entries) => {
    await expect(open(tarGz(entries))).rejects.toThrow();
    expect(outside()).toEqual([]);
  });

  const good = tarGz([{ name: "top/a", bytes: Buffer.alloc(5_000, "z") }]);
  const plain = gunzipSync(good);
  it.each([
    ["cut short", good.subarray(0, -20)],
    ["no gzip", Buffer.from("hello")],
    ["empty", Buffer.alloc(0)],
    ["cut short before it was packed", gzipSync(plain.subarray(0, 2_000))],
    ["without its end", gzipSync(plain.subarray(0, -1024))],
    ["with half its end", gzipSync(plain.subarray(0, -512))],
    ["with something after its end", gzipSync(Buffer.concat([plain, plain]))],
    ["with a changed header", gzipSync(Buffer.concat([Buffer.from("tip"), plain.subarray(3)]))],
    ["that unpacks to a gigabyte", gzipSync(Buffer.concat([plain.subarray(0, -1024), Buffer.alloc(50_000_000)]))],
  ])("an archive that is %s is refused", async (_, archive) => {
    await expect(open(archive)).rejects.toThrow("archive is refused");
  });

  it("an archive that is cut short by any number of bytes is refused", async () => {
    for (let length = 0; length < good.length; length++) {
      await expect(open(good.subarray(0, length)), `${length} bytes`).rejects.toThrow("archive is refused");
      rmSync(join(dir, "out"), { recursive: true });
    }
    await open(good);
  });
});
