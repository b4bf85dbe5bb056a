// Which names a definition file may have: names that mean the same in every repository, work tree and terminal.

import { Fault } from "../../mcp/index.js";

const MAX_PATH_BYTES = 1_024;
const MAX_NAME_BYTES = 255;
const MAX_DEPTH = 16;

/** Controls, bidirectional marks and other characters that draw nothing, lone surrogates. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}]/u;
/** What some file system or program takes for something else. */
const SPECIAL = /[\\:*?"<>|]/;
/** `.git` in every spelling that some file system takes for it. */
const GIT_FOLDER = /^(\.git|git~\d+|\.git(modules|attributes|ignore|keep)?)$/i;

/** Throws a `Fault` that says which rule the path breaks. */
export function checkFilePath(path: string): void {
  const problem = problemOf(path);
  if (problem === undefined) return;
  throw new Fault("ValidationError", `path ${problem}`, {
    rule: "definitionFilePath",
    field: "path",
    suggestions: ["use a relative path such as agents/writer.md"],
  });
}

function problemOf(path: string): string | undefined {
  if (path === "") return "is empty";
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return `has more than ${MAX_PATH_BYTES} bytes`;
  if (UNSEEN.test(path)) return "contains control characters or characters that cannot be seen";
  if (SPECIAL.test(path)) return 'contains one of \\ : * ? " < > |';
  if (path.normalize("NFC") !== path) return "is not in Unicode normal form C";
  const names = path.split("/");
  if (names.length > MAX_DEPTH) return `has more than ${MAX_DEPTH} parts`;
  for (const name of names) {
    if (name === "") return "begins or ends with a slash, or has two in a row";
    if (name === "." || name === "..") return "contains . or ..";
    if (Buffer.byteLength(name) > MAX_NAME_BYTES) return `has a part of more than ${MAX_NAME_BYTES} bytes`;
    if (GIT_FOLDER.test(name)) return "contains a name that git itself uses";
    if (/^[-~ ]/.test(name)) return "has a part that begins with a dash, a tilde or a space";
    if (/[. ]$/.test(name)) return "has a part that ends with a dot or a space";
  }
  return undefined;
}
