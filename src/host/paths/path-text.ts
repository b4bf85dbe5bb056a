// What the text of a path may look like, before anything on disk is touched.

import { type Denial, denial, quoteValue } from "../denial.js";
import { isDraftName } from "./drafts.js";
import { checkWindowsPath } from "./windows.js";

const MAX_PATH_BYTES = 4095;
const MAX_NAME_BYTES = 255;

export interface TextFacts {
  readonly platform: NodeJS.Platform;
  readonly home: string;
  /** Where a relative path starts: the first allowed root. */
  readonly base: string | undefined;
}

/** An absolute path with `~` expanded; `..` and links are left to the walk, since `a/..` is not always `a`'s sibling. */
export function absolutePath(text: string, field: string, facts: TextFacts): string | Denial {
  const bad = checkText(text, field);
  if (bad !== undefined) return bad;
  if (facts.platform === "win32") {
    const refused = checkWindowsPath(text);
    if (refused !== undefined) return denial("INVALID_ARGS", refused.rule, refused.reason, { field });
  }
  const expanded = expandTilde(text, facts.home);
  if (expanded === undefined) {
    return denial("INVALID_ARGS", "tildeUser", `${field} ${quoteValue(text)} names another user's home`, {
      field,
      suggestions: ["use ~/… for your own home, or an absolute path"],
    });
  }
  const isAbsolute = facts.platform === "win32" ? /^[A-Za-z]:[\\/]/.test(expanded) : expanded.startsWith("/");
  if (isAbsolute) return checkLength(expanded, field) ?? expanded;
  if (facts.base === undefined) {
    return denial(
      "INVALID_ARGS",
      "relativePath",
      `${field} ${quoteValue(text)} is relative and there is no root to start from`,
      {
        field,
        suggestions: ["give an absolute path"],
      },
    );
  }
  const joined = `${facts.base}/${expanded}`;
  return checkLength(joined, field) ?? joined;
}

function checkText(text: string, field: string): Denial | undefined {
  if (text === "") return denial("INVALID_ARGS", "emptyPath", `${field} is empty`, { field });
  if (text.length > MAX_PATH_BYTES) return tooLong(field);
  // Lone surrogates have no UTF-8 form: two different texts would name one file.
  if (/[\p{Cc}\p{Cs}]/u.test(text)) {
    return denial(
      "INVALID_ARGS",
      "controlCharacter",
      `${field} contains NUL, a control character or half a character`,
      {
        field,
      },
    );
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
    return { rule: "notAFileName", reason: "the path ends in a folder, not in a file name" };
  }
  if (isDraftName(name)) return { rule: "reservedName", reason: "files of this name are the host's own drafts" };
  if (INVISIBLE.test(name)) return { rule: "lookAlikeName", reason: "the file name contains invisible characters" };
  if (/[. ]$/.test(name) || name.startsWith(" ")) {
    return { rule: "trailingDotOrSpace", reason: "the file name begins with a space or ends in a dot or space" };
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

/** Pure ASCII has only one form, so the folder need not be read. */
export function canHaveLookAlike(name: string): boolean {
  return /[^\p{ASCII}]/u.test(name);
}
