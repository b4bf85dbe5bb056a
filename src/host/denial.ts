// A denial is a value: it names the rule, what was wrong with which input, and the remedy. It is safe to show to a model
// and never says where a link outside the roots would have led.

export type DenialCode = "POLICY_DENY" | "INVALID_ARGS" | "TIMEOUT" | "IO_ERROR" | "INTERNAL";

export interface Denial {
  readonly code: DenialCode;
  /** The name of the rule that decided, e.g. `outsideAllowedRoots`. */
  readonly rule: string;
  readonly reason: string;
  /** The argument at fault, e.g. `path` or `args[2]`. */
  readonly field?: string;
  readonly suggestions?: readonly string[];
  /** The time limit that was exceeded. */
  readonly timeoutMs?: number;
}

/** How much of a caller's text a message repeats. */
const MAX_QUOTED_CHARS = 200;

export function denial(
  code: DenialCode,
  rule: string,
  reason: string,
  more: { field?: string; suggestions?: readonly string[]; timeoutMs?: number } = {},
): Denial {
  return { code, rule, reason, ...more };
}

type Row = readonly [code: DenialCode, rule: string, reason: string, ...suggestions: string[]];

const AGAIN = "try again";
const ASK_TO_CREATE = "ask the operator to set createIfMissing: true for this writable root";

/** `PATH_DENIALS` words every denial about one path: the field and the path stand before the reason, `{}` is a detail. */
const PATH_DENIALS = {
  absent: ["IO_ERROR", "notFound", "does not exist"],
  absentDirectory: ["IO_ERROR", "notFound", "is in a directory that does not exist", ASK_TO_CREATE],
  absentAndNoCreate: ["IO_ERROR", "notFound", "does not exist and create is false"],
  throughNonDirectory: ["IO_ERROR", "notFound", "goes through something that is not a directory"],
  notADirectory: ["IO_ERROR", "notAFolder", "is not a directory"],
  notEmpty: ["IO_ERROR", "notEmpty", "is not empty"],
  tooManyEntries: ["IO_ERROR", "tooManyEntries", "holds more than {} entries"],
  noAccess: ["IO_ERROR", "permission", "is not accessible to the host's user"],
  openFailed: ["IO_ERROR", "openFailed", "cannot be opened ({})"],
  io: ["IO_ERROR", "io", "failed: {}"],
  tooLong: ["INVALID_ARGS", "pathTooLong", "is too long"],
  relative: ["INVALID_ARGS", "relativePath", "is relative and there is no root to start from", "give an absolute path"],
  tildeUser: [
    "INVALID_ARGS",
    "tildeUser",
    "names another user's home",
    "use ~/… for your own home, or an absolute path",
  ],
  noName: ["INVALID_ARGS", "notAFileName", "ends in a directory, not in a name"],
  badName: ["INVALID_ARGS", "", "is not a valid new name: {}"],
  tooManyNew: ["INVALID_ARGS", "tooManyFolders", "needs more than {} new directories"],
  outsideReadable: ["POLICY_DENY", "outsideAllowedRoots", "is not inside a directory that the policy opens"],
  outsideWritable: [
    "POLICY_DENY",
    "outsideWriteZones",
    "is not inside a writable root",
    "use a directory that the policy lists under writeRules",
  ],
  writableOnly: ["POLICY_DENY", "outsideAllowedRoots", "may be written but not read, and {} may be read"],
  crossesMount: [
    "POLICY_DENY",
    "crossesMount",
    "lies on another file system mounted below the root",
    "ask the operator to list the mount point itself under allowedRoots",
  ],
  networkFileSystem: [
    "POLICY_DENY",
    "denyNetworkFS",
    "lies on a network file system ({})",
    "use a file on a local disk, or ask the operator to set denyNetworkFS: false",
  ],
  linkLoop: ["POLICY_DENY", "symlinkLoop", "goes through a loop of links or a link of the kernel's"],
  danglingLink: ["POLICY_DENY", "danglingLink", "goes through a link whose target does not exist"],
  changed: ["POLICY_DENY", "changedWhileOpening", "changed while it was being opened", AGAIN],
  changedInWrite: ["POLICY_DENY", "changedWhileOpening", "changed while it was written", AGAIN],
  directory: ["POLICY_DENY", "notAFile", "is a directory; only regular files can be used"],
  special: ["POLICY_DENY", "specialFile", "is a device, pipe or socket; only regular files can be used"],
  notPlain: [
    "POLICY_DENY",
    "specialFile",
    "is a directory, link, device, pipe or socket, which this tool cannot change",
  ],
  hardLink: [
    "POLICY_DENY",
    "hardLink",
    "has {} names and one may lie outside the roots",
    "copy the file, or ask the operator to set hardLinks: allow",
  ],
  lookAlike: [
    "POLICY_DENY",
    "lookAlikeName",
    "looks exactly the same as the existing name {}",
    "use the existing name in its own Unicode form",
  ],
  notRecursive: ["POLICY_DENY", "writeRules.recursive", "is below a writable root that is not recursive"],
  replaceOnly: [
    "POLICY_DENY",
    "createIfMissing",
    "does not exist and this writable root only allows replacing files",
    ASK_TO_CREATE,
  ],
  exists: ["POLICY_DENY", "exists", "exists", "choose another name"],
  existsForWrite: ["POLICY_DENY", "exists", "exists", "set overwrite: true to replace it", "choose another name"],
  created: ["POLICY_DENY", "exists", "was created by another process meanwhile and was not changed"],
  namedByPolicy: ["POLICY_DENY", "namedFolder", "is, or holds, a directory that the policy itself names"],
  leavesRoot: ["POLICY_DENY", "crossesZones", "is a directory and can be moved only inside its own writable root"],
  internals: [
    "POLICY_DENY",
    "writeRules.repositoryInternals",
    "leads into {}: what is written there, the tools of the repository's owner would run",
    "write beside it",
    "ask the operator to set repositoryInternals: true for this writable root",
  ],
  holdsRepository: [
    "POLICY_DENY",
    "writeRules.repositoryInternals",
    "keeps its name: {}",
    "move files one by one",
    "ask the operator to set repositoryInternals: true for this writable root",
  ],
} as const satisfies Readonly<Record<string, Row>>;

/** `pathDenial` is the denial of that kind for one path. `rule` replaces the rule of the kind. */
export function pathDenial(
  kind: keyof typeof PATH_DENIALS,
  field: string,
  path: string,
  detail: string | number | bigint = "",
  rule?: string,
): Denial {
  const [code, usual, reason, ...suggestions] = PATH_DENIALS[kind] as Row;
  const text = `${field} ${quoteValue(path)} ${reason.replace("{}", () => String(detail))}`;
  return denial(code, rule ?? usual, text, suggestions.length === 0 ? { field } : { field, suggestions });
}

/** `quoteValue` makes a caller's text safe for one line of a log or a terminal. */
export function quoteValue(text: string): string {
  const cut = text.length > MAX_QUOTED_CHARS ? `${text.slice(0, MAX_QUOTED_CHARS)}…` : text;
  const plain = cut.replace(/[\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, escapeCharacter);
  return `\`${plain}\``;
}

function escapeCharacter(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

export function isDenial(value: object): value is Denial {
  return "code" in value && "rule" in value && "reason" in value;
}
