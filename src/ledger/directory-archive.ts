import { dirname, join, resolve } from "node:path";
import type { Archive } from "./archive.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs, syncFile, writeAt } from "./files.js";

const MODE = 0o600;

/** An archive in a directory, which is best on another disk. */
export function directoryArchive(root: string, disk: LedgerFs = nodeFs): Archive {
  const location = resolve(root);
  return {
    location,

    async put(name, bytes) {
      const path = join(location, name);
      const folder = dirname(path);
      if ((await disk.stat(folder)) === undefined) {
        await disk.makeDir(folder);
        await disk.syncDir(location);
      }
      const next = `${path}.${process.pid}.part`;
      const file = await disk.openWrite(next, MODE);
      try {
        await file.truncate(0);
        await writeAt(file, bytes, 0);
        await syncFile(file);
      } finally {
        await file.close();
      }
      await disk.rename(next, path);
      await disk.syncDir(folder);
    },

    async get(name, maxBytes) {
      const path = join(location, name);
      const facts = await disk.stat(path);
      if (facts === undefined) return undefined;
      if (facts.size > maxBytes) throw new LedgerReadError(`${path} has more than ${maxBytes} bytes`);
      const file = await disk.openRead(path);
      try {
        const bytes = Buffer.alloc(facts.size);
        return bytes.subarray(0, await file.read(bytes, 0));
      } finally {
        await file.close();
      }
    },

    async size(name) {
      return (await disk.stat(join(location, name)))?.size;
    },

    async list(directory) {
      const folder = join(location, directory);
      return (await disk.stat(folder)) === undefined ? [] : disk.list(folder);
    },
  };
}
