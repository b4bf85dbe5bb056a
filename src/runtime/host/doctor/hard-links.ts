// Files in the write zones that have other names as well: a command that writes one changes it under all of them, and no
// sandbox can tell. fs.read and fs.write refuse such files; this is for commands.

import { lstatSync, readdirSync, type Stats } from "node:fs";
import { join } from "node:path";
import { type Policy, readMounts } from "../../../host/index.js";
import type { Finding } from "../../../lib/finding.js";

/** Entries looked at; a zone may be the size of a disk. */
const MAX_ENTRIES = 20_000;

export function hardLinks({ hardLinks: rule, zones, commands }: Policy): Finding[] {
  if (rule !== "deny" || commands.size === 0 || zones.length === 0 || process.platform !== "linux") return [];
  const check = "hard links";
  const { first, count, isComplete } = look(zones.map((zone) => zone.path));
  const seen = isComplete ? "" : ` among the first ${MAX_ENTRIES} entries`;
  if (first === undefined) return [{ check, ok: true, detail: `none in the write zones${seen}` }];
  const hint =
    "a command that writes such a file changes it under its other names too; replace it by a copy of its own";
  return [{ check, ok: true, detail: `${count} in the write zones${seen}, first ${first}`, hint }];
}

interface Seen {
  readonly first: string | undefined;
  readonly count: number;
  readonly isComplete: boolean;
}

/** No link is followed, and nothing that is mounted below is touched: it may hang. */
function look(folders: readonly string[]): Seen {
  const mounts = new Set(readMounts().map((mount) => mount.path));
  const waiting = [...folders];
  let [count, entries] = [0, 0];
  let first: string | undefined;
  for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
    for (const name of namesIn(folder)) {
      const path = join(folder, name);
      if (++entries > MAX_ENTRIES) return { first, count, isComplete: false };
      const stats = mounts.has(path) ? undefined : statsOf(path);
      if (stats?.isDirectory() === true) waiting.push(path);
      if (stats?.isFile() !== true || stats.nlink < 2) continue;
      count++;
      first ??= path;
    }
  }
  return { first, count, isComplete: true };
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return []; // Not there yet, or not ours to read.
  }
}

function statsOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}
