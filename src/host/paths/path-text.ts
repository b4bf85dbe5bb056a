// What the text of a path may look like, before anything on disk is touched.

import { type Denial, denial, pathDenial } from "../denial.js";
import { isDraftName } from "./drafts.js";
import { checkWindowsPath } from "./other-platforms.js";

const MAX_PATH_BYTES = 4095;
const MAX_NAME_BYTES = 255;

/**
 * An absolute path with `~` expanded; `..` and links are left to the walk, since `a/..` is not always `a`'s sibling.
 * A relative path starts at `base`.
 */
export function absolutePath(
  text: string,
  field: string,
  { platform, home }: { readonly platform: NodeJS.Platform; readonly home: string },
  base: string | undefined,
): string | Denial {
  const bad = checkText(text, field);
  if (bad !== undefined) return bad;
  if (platform === "win32") {
    const refused = checkWindowsPath(text);
    if (refused !== undefined) return denial("INVALID_ARGS", refused.rule, refused.reason, { field });
  }
  const expanded = expandTilde(text, home);
  if (expanded === undefined) return pathDenial("tildeUser", field, text);
  const isAbsolute = platform === "win32" ? /^[A-Za-z]:[\\/]/.test(expanded) : expanded.startsWith("/");
  if (isAbsolute) return checkLength(expanded, field) ?? expanded;
  if (base === undefined) return pathDenial("relative", field, text);
  const joined = `${base}/${expanded}`;
  return checkLength(joined, field) ?? joined;
}

function checkText(text: string, field: string): Denial | undefined {
  if (text === "") return denial("INVALID_ARGS", "emptyPath", `${field} is empty`, { field });
  if (text.length > MAX_PATH_BYTES) return tooLong(field);
  // Lone surrogates have no UTF-8 form: two different texts would name one file.
  if (/[\p{Cc}\p{Cs}]/u.test(text)) {
    const reason = `${field} contains NUL, a control character or half a character`;
    return denial("INVALID_ARGS", "controlCharacter", reason, { field });
  }
  return undefined;
}

function checkLength(path: string, field: string): Denial | undefined {
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return tooLong(field);
  if (path.split("/").some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES)) return tooLong(field);
  return undefined;
}

function tooLong(field: string): Denial {
  const limits = `${MAX_PATH_BYTES} bytes in all, ${MAX_NAME_BYTES} a name`;
  return denial("INVALID_ARGS", "pathTooLong", `${field} is too long (${limits})`, { field });
}

/** `~` and `~/x` only; `~user` is undefined. */
export function expandTilde(text: string, home: string): string | undefined {
  if (!text.startsWith("~")) return text;
  if (text === "~") return home;
  return text.startsWith("~/") || text.startsWith("~\\") ? home + text.slice(1) : undefined;
}

/** Marks that change how text around them is shown, or show nothing at all. Joiners stay: emoji and scripts need them. */
const INVISIBLE = /[\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/u;

/** Names that a new file may have. Reading is exact, so only what we create could be mistaken for something else. */
export function checkNewName(name: string): { rule: string; reason: string } | undefined {
  if (name === "" || name === "." || name === "..") {
    return { rule: "notAFileName", reason: "it ends in a directory, not in a file name" };
  }
  if (isDraftName(name)) return { rule: "reservedName", reason: "files of this name are the host's own drafts" };
  if (INVISIBLE.test(name)) return { rule: "lookAlikeName", reason: "it contains invisible characters" };
  if (/[. ]$/.test(name) || name.startsWith(" ")) {
    return { rule: "trailingDotOrSpace", reason: "it begins with a space or ends in a dot or space" };
  }
  return undefined;
}

/** Another name that looks the same because it is the same text in another Unicode normal form. */
export function findLookAlike(name: string, siblings: Iterable<string>): string | undefined {
  const form = name.normalize("NFC");
  for (const sibling of siblings) {
    if (sibling !== name && sibling.normalize("NFC") === form) return sibling;
  }
  return undefined;
}

/** Pure ASCII has only one form, so the directory need not be read. */
export function canHaveLookAlike(name: string): boolean {
  return /[^\p{ASCII}]/u.test(name);
}
