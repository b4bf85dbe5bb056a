// Opening a folder step by step, for the supervisor under its own filter: openat2 is closed there, because a filter cannot see
// the mode that it is asked to give a new file.

import { closeSync } from "node:fs";
import { constants } from "node:os";
import {
  FOLDER_NAME_ONLY,
  NAME_ONLY_NO_FOLLOW,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
} from "../../paths/flags.js";
import { openBelow } from "../../paths/locate.js";
import { loadKoffi } from "../../../lib/index.js";

const { errno } = constants;
const AT_FDCWD = -100;
const FOLDER_NO_FOLLOW = FOLDER_NAME_ONLY | NAME_ONLY_NO_FOLLOW;

/** No link is followed anywhere on the way. INVARIANT: `rest` has no `..`. Gives a descriptor or a negative errno. */
export function openDirectory(place: string, rest: string): number {
  const opened = openBelow(
    { path: place, written: place },
    rest.replace(/^\/+/, "") || ".",
    FOLDER_NAME_ONLY,
    RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS,
  );
  return opened === -errno.ENOSYS ? walkDown(`${place}/${rest}`) : opened;
}

function walkDown(path: string): number {
  openat ??= bindOpenat();
  let fd = openat(AT_FDCWD, "/");
  // The dot at the end asks whether the folder itself may be entered.
  for (const name of [...path.split("/").filter((part) => part !== "" && part !== "."), "."]) {
    if (fd < 0) return fd;
    const next = name === ".." ? -errno.EXDEV : openat(fd, name);
    closeSync(fd);
    fd = next;
  }
  return fd;
}

type OpenFolderAt = (folder: number, name: string) => number;
let openat: OpenFolderAt | undefined;

function bindOpenat(): OpenFolderAt {
  const ffi = loadKoffi();
  if (ffi === undefined) return () => -errno.ENOSYS;
  const call = ffi.load(null).func("openat", "int", ["int", "str", "int", "int"]);
  return (folder, name) => {
    const fd = call(folder, name, FOLDER_NO_FOLLOW, 0);
    return fd < 0 ? -ffi.errno() : fd;
  };
}
