// Other file systems below the policy's folders. fs.read and fs.write end there, and so must commands.

import { isWithin, readMounts } from "../paths/index.js";
import type { Confinement } from "./confinement.js";

/** Mount points below a root or a zone that are not listed themselves. Read from the table: a hung one is not touched. */
export function mountsInside({ roots, zones, system }: Confinement): string[] {
  const folders = [...roots, ...zones];
  const listed = new Set([...folders, ...system]);
  const inside = readMounts().filter(({ path }) => folders.some((folder) => path !== folder && isWithin(path, folder)));
  return [...new Set(inside.map(({ path }) => path))].filter((path) => !listed.has(path));
}
