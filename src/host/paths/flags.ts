// Linux open flags and openat2 resolve bits. Node's own table lacks O_PATH and O_TMPFILE and none of these differs
// between x64 and arm64 except O_DIRECTORY and O_NOFOLLOW, which Node knows.

import { constants } from "node:fs";

const O_PATH = 0o10000000;
const O_CLOEXEC = 0o2000000;
const O_TMPFILE_BIT = 0o20000000;
const O_DIRECTORY = constants.O_DIRECTORY ?? 0;
const O_NOFOLLOW = constants.O_NOFOLLOW ?? 0;

/** A handle that names a file without opening it: no side effect on a device, no waiting on a FIFO. */
export const NAME_ONLY = O_PATH | O_CLOEXEC;
export const NAME_ONLY_NO_FOLLOW = NAME_ONLY | O_NOFOLLOW;
export const FOLDER_NAME_ONLY = NAME_ONLY | O_DIRECTORY;
/** Nameless file in a folder: gone by itself when the process dies before it got a name. */
export const NAMELESS_FILE = O_TMPFILE_BIT | O_DIRECTORY | constants.O_WRONLY | O_CLOEXEC;
export const READ = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOCTTY ?? 0) | O_CLOEXEC;
export const FOLDER_READ = constants.O_RDONLY | O_DIRECTORY | O_CLOEXEC;
export const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | O_NOFOLLOW | O_CLOEXEC;

export const RESOLVE_NO_XDEV = 0x01;
export const RESOLVE_NO_MAGICLINKS = 0x02;
export const RESOLVE_NO_SYMLINKS = 0x04;
export const RESOLVE_BENEATH = 0x08;
