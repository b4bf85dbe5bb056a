// Everything but a few paths, as a list for Landlock, which knows only what is allowed: each entry of the directories that
// lead to a closed path gets its own rule. What is made there later has none, and stays closed.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { isWithin } from "../../paths/mounts.js";
import type { FileRules } from "./landlock.js";

/** Entries of one directory that get a rule. */
const MAX_ENTRIES = 4096;

/** `rulesAround` opens everything outside `closed`; of what is opened, `readOnly` cannot be changed. */
export function rulesAround(closed: readonly string[], readOnly: readonly string[], own: readonly string[]): FileRules {
  const rules = {
    read: [] as string[],
    execute: [] as string[],
    write: [] as string[],
    writeUnlinked: [],
    list: [] as string[],
  };
  const open = (path: string): void => {
    rules.execute.push(path);
    if (!readOnly.some((place) => isWithin(path, place))) rules.write.push(path);
  };
  const visit = (folder: string): void => {
    rules.list.push(folder);
    for (const name of entriesOf(folder)) {
      const path = join(folder, name);
      if (closed.includes(path)) continue;
      if (closed.some((place) => isWithin(place, path))) visit(path);
      else open(path);
    }
  };
  visit("/");
  for (const path of own) open(path);
  return rules;
}

function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder).slice(0, MAX_ENTRIES);
  } catch {
    return []; // Closed to this user, and so to the server.
  }
}
