// One file: a tar archive under gzip, whose last entry is the manifest. An archive that was cut short has none.

import { createReadStream, createWriteStream, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { open, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { finished } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { CliError, EXIT } from "../../lib/exit.js";
import { type KernelLock, takeKernelLock } from "../../lib/kernel-lock.js";
import { unpack } from "../../lib/unpack.js";

const ARCHIVE_TOP = "portcullis-backup";
const BLOCK = 512;
/** What eleven octal digits can say. */
const MAX_ENTRY_BYTES = 8 * 1024 ** 3 - 1;
const LIMITS = { maxEntries: 1_000_000, maxBytes: 1024 ** 4 };
/** Ledgers and copies of stores shrink to a fraction at the fastest level already. */
const LEVEL = 1;

/** Packs these files of a directory, in this order. The file must not be there yet; it is durable afterwards. */
export async function pack(file: string, directory: string, entries: readonly string[]): Promise<void> {
  const gzip = createGzip({ level: LEVEL });
  const target = createWriteStream(file, { flags: "wx", mode: 0o600 });
  const done = finished(gzip.pipe(target));
  // Awaited below; until then a failure must not count as unhandled.
  done.catch(() => {});
  target.on("error", (error) => gzip.destroy(error));
  const write = async (bytes: Buffer): Promise<void> => {
    if (!gzip.write(bytes)) await Promise.race([new Promise((resolve) => gzip.once("drain", resolve)), done]);
  };
  for (const entry of entries) {
    const { size } = await stat(join(directory, entry));
    if (size > MAX_ENTRY_BYTES) throw new CliError(`${entry} has ${size} bytes: a backup takes files of up to 8 GiB`);
    await write(header(`${ARCHIVE_TOP}/${entry}`, size));
    for await (const chunk of createReadStream(join(directory, entry))) await write(chunk as Buffer);
    await write(Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK));
  }
  gzip.end(Buffer.alloc(2 * BLOCK));
  await done;
  const handle = await open(file, "r+");
  await handle.sync().finally(() => handle.close());
}

/** Unpacks into a directory that is not there yet. */
export async function unpackBackup(file: string, target: string): Promise<void> {
  if (!existsSync(file)) throw new CliError(`there is no backup ${file}`, EXIT.error, "name a file of `backup create`");
  return unpack(file, target, ARCHIVE_TOP, LIMITS);
}

function header(name: string, size: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  const put = (text: string, at: number): void => void block.write(text, at, "latin1");
  put(name, 0);
  put("0000600\0", 100);
  put("0000000\0", 108);
  put("0000000\0", 116);
  put(`${size.toString(8).padStart(11, "0")}\0`, 124);
  put("00000000000\0", 136);
  put("        ", 148);
  put("0", 156);
  put("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

const LOCK = "lock";
const ATTEMPTS = 10;

interface WorkDirectory {
  readonly path: string;
  close(): void;
}

/**
 * `openWorkDirectory` creates `TARGET.KIND-XXXXXX` and removes those beside it whose process was killed: no other process
 * uses them, and each is as large as a backup.
 */
export function openWorkDirectory(target: string, kind: "part" | "restore"): WorkDirectory {
  removeAbandoned(dirname(target), kind);
  for (let attempt = 1; ; attempt++) {
    const path = mkdtempSync(join(dirname(target), `${basename(target)}.${kind}-`));
    const lock = lockOf(path);
    // Another process took the new directory for an abandoned one, and is removing it.
    if ((lock === "held" || lock === undefined) && attempt < ATTEMPTS) continue;
    return {
      path,
      close: () => {
        removeWork(path);
        if (typeof lock === "object") lock.release();
      },
    };
  }
}

function removeAbandoned(dir: string, kind: string): void {
  const name = new RegExp(`\\.${kind}-[A-Za-z0-9]{6}$`);
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (!entry.isDirectory() || !name.test(entry.name) || !isOurs(path)) continue;
    const lock = lockOf(path);
    if (typeof lock !== "object") continue;
    removeWork(path);
    lock.release();
  }
}

/** The lock goes last: with it, what a kill leaves is found again. */
function removeWork(path: string): void {
  for (const name of readdirSync(path)) if (name !== LOCK) rmSync(join(path, name), { recursive: true, force: true });
  rmSync(path, { recursive: true, force: true });
}

/** It was killed before it had the lock, or has one. */
function isOurs(path: string): boolean {
  const names = readdirSync(path);
  return names.length === 0 || names.includes(LOCK);
}

function lockOf(path: string): KernelLock | undefined {
  try {
    return takeKernelLock(join(path, LOCK));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
