// Can the shim be started by its name alone? `~/.local/bin` is on most people's PATH already, and a link there saves
// them a step; what is there and not ours is left alone.

import { lstatSync, mkdirSync, readlinkSync, symlinkSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import type { Home } from "./home.js";

/** `link`: whether a link may be made, which is so when the user named no folder. */
export function reachable(home: Home, link: boolean): boolean {
  const path = (process.env.PATH ?? "").split(delimiter);
  if (path.includes(dirname(home.shim))) return true;
  const userBin = join(homedir(), ".local", "bin");
  if (!link || process.platform === "win32" || !path.includes(userBin)) return false;
  const name = join(userBin, "portcullis");
  const there = lstatSync(name, { throwIfNoEntry: false });
  if (there !== undefined) return there.isSymbolicLink() && readlinkSync(name) === home.shim;
  mkdirSync(userBin, { recursive: true, mode: 0o755 });
  symlinkSync(home.shim, name);
  return true;
}
