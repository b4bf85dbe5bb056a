// Reads ZIP archives in memory: stored and deflated entries, within bounds, with names that stay inside a directory.

import { inflateRawSync } from "node:zlib";

export interface ZipEntry {
  /** Relative, with forward slashes. */
  readonly name: string;
  readonly isExecutable: boolean;
  read(): Buffer;
}

const MAX_ENTRIES = 20_000;
const MAX_TOTAL_BYTES = 1024 * 1024 * 1024;
const END = 0x06054b50;
const CENTRAL = 0x02014b50;
const LOCAL = 0x04034b50;
const END_BYTES = 22;
const MAX_COMMENT_BYTES = 65_535;

export class ZipInvalid extends Error {}

/** The files of an archive. Throws `ZipInvalid` for anything that this reader cannot extract faithfully. */
export function readZip(bytes: Buffer): ZipEntry[] {
  const end = endOf(bytes);
  const count = bytes.readUInt16LE(end + 10);
  if (count > MAX_ENTRIES || count === 0xffff) throw new ZipInvalid(`more than ${MAX_ENTRIES} entries`);
  const entries: ZipEntry[] = [];
  let total = 0;
  let at = bytes.readUInt32LE(end + 16);
  for (let i = 0; i < count; i++) {
    if (at + 46 > bytes.length || bytes.readUInt32LE(at) !== CENTRAL) throw new ZipInvalid("damaged directory");
    const nameBytes = bytes.readUInt16LE(at + 28);
    const name = bytes.toString("utf8", at + 46, at + 46 + nameBytes);
    total += bytes.readUInt32LE(at + 24);
    if (total > MAX_TOTAL_BYTES) throw new ZipInvalid(`more than ${MAX_TOTAL_BYTES} bytes uncompressed`);
    const mode = bytes.readUInt32LE(at + 38) >>> 16;
    // A link could lead out of the directory that the archive is extracted to.
    if ((mode & 0o170000) === 0o120000) throw new ZipInvalid(`\`${name}\` is a symbolic link`);
    if (!name.endsWith("/")) entries.push(entryAt(bytes, at, checkedName(name), (mode & 0o111) !== 0));
    at += 46 + nameBytes + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32);
  }
  return entries;
}

/** The end record is followed by a comment alone; some writers append a signature to the archive. */
function endOf(bytes: Buffer): number {
  const last = bytes.length - END_BYTES;
  for (let at = last; at >= 0 && at >= last - MAX_COMMENT_BYTES; at--) {
    if (bytes.readUInt32LE(at) === END) return at;
  }
  throw new ZipInvalid("not a ZIP archive");
}

function checkedName(name: string): string {
  const parts = name.split("/");
  const isInside = parts.every((part) => part !== "" && part !== "." && part !== "..");
  if (isInside && !/[\0\\]/.test(name) && !/^[A-Za-z]:/.test(name)) return name;
  throw new ZipInvalid(`\`${name}\` is not a relative path inside the archive`);
}

function entryAt(bytes: Buffer, at: number, name: string, isExecutable: boolean): ZipEntry {
  const method = bytes.readUInt16LE(at + 10);
  const packedBytes = bytes.readUInt32LE(at + 20);
  const wholeBytes = bytes.readUInt32LE(at + 24);
  const local = bytes.readUInt32LE(at + 42);
  if ((bytes.readUInt16LE(at + 8) & 1) === 1) throw new ZipInvalid(`\`${name}\` is encrypted`);
  if (method !== 0 && method !== 8) throw new ZipInvalid(`\`${name}\` is compressed by method ${method}`);
  const read = (): Buffer => {
    if (local + 30 > bytes.length || bytes.readUInt32LE(local) !== LOCAL)
      throw new ZipInvalid(`\`${name}\` is damaged`);
    const start = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28);
    const packed = bytes.subarray(start, start + packedBytes);
    const whole = method === 0 ? packed : inflated(packed, wholeBytes, name);
    if (whole.length !== wholeBytes) throw new ZipInvalid(`\`${name}\` is damaged`);
    return whole;
  };
  return { name, isExecutable, read };
}

function inflated(packed: Buffer, maxBytes: number, name: string): Buffer {
  try {
    return inflateRawSync(packed, { maxOutputLength: Math.max(1, maxBytes) });
  } catch (error) {
    throw new ZipInvalid(`\`${name}\` is damaged: ${(error as Error).message}`);
  }
}
