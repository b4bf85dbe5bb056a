// Commits on their way to the store and from it: as a pack in a file of its own, whatever its size.

import { randomUUID } from "node:crypto";
import { closeSync, fstatSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { PackBytes, StoredPack } from "../../storage/index.js";
import type { Git } from "./git.js";
import type { StoredHistory } from "./stored-history.js";

/** A whole history may take longer than one command on one file. */
const PACK_TIMEOUT_MS = 120_000;
/** So few objects are taken out of their pack: a folder full of packs would slow down every look. */
const UNPACK_OBJECTS = 30;
/** `PACK`, the version, the number of objects. */
const HEADER_BYTES = 12;
const OLD_PACKS_FACTOR = 2;

/** What leads to `head` from `from` (from nothing, when undefined), for as long as `use` takes. */
export async function withPack<T>(
  git: Git,
  head: string,
  from: string | undefined,
  use: (pack: PackBytes) => Promise<T>,
): Promise<T> {
  return await withFile(git, async (fd) => {
    const input = from === undefined ? `${head}\n` : `${head}\n^${from}\n`;
    await git.ask(["pack-objects", "--quiet", "--revs", "--thin", "--delta-base-offset", "--stdout"], {
      input,
      outputFile: fd,
      timeoutMs: PACK_TIMEOUT_MS,
    });
    const byteLength = fstatSync(fd).size;
    return await use({ byteLength, subarray: (begin, end) => slice(fd, begin, end) });
  });
}

/** False: the store no longer has it, because it was merged with others or its application was removed. */
export async function takePack(git: Git, store: StoredHistory, pack: StoredPack): Promise<boolean> {
  return await withFile(git, async (fd) => {
    let size = 0;
    for (let part = 0; size < pack.bytes; part++) {
      const data = await store.part(pack, part);
      if (data === undefined || data.byteLength === 0) return false;
      for (let done = 0; done < data.byteLength; ) {
        const wrote = writeSync(fd, data, done, data.byteLength - done, size);
        done += wrote;
        size += wrote;
      }
    }
    const objects = size < HEADER_BYTES ? 0 : slice(fd, 0, HEADER_BYTES).readUInt32BE(8);
    const isSmall = objects <= UNPACK_OBJECTS;
    await git.ask(isSmall ? ["unpack-objects", "-q"] : ["index-pack", "--stdin", "--fix-thin"], {
      inputFile: fd,
      timeoutMs: PACK_TIMEOUT_MS,
    });
    return true;
  });
}

/**
 * Which of the packs, the newest of them, to make one of: so many that those before are each larger than all after them
 * together. There are then never many, and no byte is written over and over again.
 */
export function toMerge(packs: readonly StoredPack[]): readonly StoredPack[] {
  let start = packs.length;
  let sum = 0;
  while (start > 0 && (sum === 0 || (packs[start - 1] as StoredPack).bytes < OLD_PACKS_FACTOR * sum)) {
    sum += (packs[--start] as StoredPack).bytes;
  }
  return packs.length - start < 2 ? [] : packs.slice(start);
}

async function withFile<T>(git: Git, use: (fd: number) => Promise<T>): Promise<T> {
  const file = join(git.folder, `pack-${randomUUID()}.tmp`);
  const fd = openSync(file, "wx+", 0o600);
  try {
    // Without a name from here on: whatever ends this process takes the file along.
    rmSync(file);
    return await use(fd);
  } finally {
    closeSync(fd);
  }
}

function slice(fd: number, begin: number, end: number): Buffer {
  const bytes = Buffer.alloc(end - begin);
  for (let read = 0; read < bytes.length; ) {
    const more = readSync(fd, bytes, read, bytes.length - read, begin + read);
    if (more === 0) throw new Error("the pack ended early");
    read += more;
  }
  return bytes;
}
