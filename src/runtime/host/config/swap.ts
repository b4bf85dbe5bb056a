// Putting a new text in the place of an old one: whole or not at all, for its owner only.

import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";

/** `replace: false` fails with EEXIST when there is a file already, also when it came a moment ago. */
export function writePrivately(
  file: string,
  text: string,
  { replace, mode = 0o600 }: { replace: boolean; mode?: number },
): void {
  const directory = dirname(file);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const draft = `${file}.${randomBytes(6).toString("hex")}.tmp`;
  const fd = openSync(draft, "wx", 0o600);
  try {
    try {
      writeFileSync(fd, text);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    chmodSync(draft, mode);
    if (replace) {
      keepOwner(file, draft);
      renameSync(draft, file);
    } else {
      linkSync(draft, file);
    }
  } finally {
    rmSync(draft, { force: true });
  }
  syncDirectory(directory);
}

/** A policy that root edits keeps its owner, who could not read it otherwise. */
function keepOwner(file: string, draft: string): void {
  const old = statSync(file, { throwIfNoEntry: false });
  if (old !== undefined && process.geteuid?.() === 0) chownSync(draft, old.uid, old.gid);
}

/** A name is on the disk when its directory is. Not every system can open a directory. */
function syncDirectory(directory: string): void {
  try {
    const fd = openSync(directory, "r");
    try {
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  } catch {
    // Windows: the file itself is flushed, which is all there is.
  }
}
