// The handlers of FileManager. `portcullis gen ts` wrote the types and the skeleton of this file.
import { lstat, open, realpath } from "node:fs/promises";
import { basename, dirname, join, resolve, sep } from "node:path";
import type { FileManagerHandlers } from "./server.js";

export interface Root {
  readonly root: string;
}

export class PermissionDenied extends Error {
  readonly code = "PERMISSION_DENIED";
}

/** The real place of a path, which must lie below the root, and whose last part must be no link. */
async function confined({ root }: Root, path: string): Promise<string> {
  const top = await realpath(root);
  const wanted = resolve(top, path);
  const folder = await realpath(dirname(wanted)).catch(() => undefined);
  const place = folder === undefined ? undefined : join(folder, basename(wanted));
  if (place === undefined || !place.startsWith(top + sep)) throw new PermissionDenied(`${path} is outside the root`);
  const found = await lstat(place).catch(() => undefined);
  if (found?.isSymbolicLink()) throw new PermissionDenied(`${path} is a link`);
  return place;
}

export const handlers: FileManagerHandlers<Root> = {
  async readFile({ path, encoding }, context) {
    const file = await open(await confined(context, path), "r");
    try {
      const bytes = await file.readFile();
      return { content: bytes.toString(encoding ?? "utf8"), size_bytes: bytes.length };
    } finally {
      await file.close();
    }
  },

  async writeFile({ path, content, append }, context) {
    const file = await open(await confined(context, path), append === true ? "a" : "w");
    try {
      const bytes = Buffer.from(content, "utf8");
      await file.writeFile(bytes);
      return { bytes_written: bytes.length };
    } finally {
      await file.close();
    }
  },
};
