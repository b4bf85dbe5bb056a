// A unified diff, applied whole or not at all: every hunk at the line it names, every context line exactly as it is.
// Where a diff does not fit, the answer says why and where it would.

import { Fault } from "../../mcp/index.js";

interface Hunk {
  /** Index of the first old line; for a hunk without old lines, of the line after the insertion. */
  readonly at: number;
  readonly old: readonly string[];
  readonly new: readonly string[];
}

interface Diff {
  readonly creates: boolean;
  readonly hunks: readonly Hunk[];
}

const HUNK = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/;
/** Lines that mean something other than new contents for this one file. */
const UNWANTED =
  /^(rename |copy |old mode |new mode |deleted file |similarity |dissimilarity |Binary files |GIT binary )/;
const NO_NEWLINE = /^\\ /;
const MAX_HUNKS = 10_000;

/** `current` is undefined when there is no such file yet; then the diff must be one from /dev/null. */
export function applyUnifiedDiff(path: string, current: string | undefined, text: string): string {
  const diff = parse(path, text);
  if (current === undefined && !diff.creates)
    throw misfit("the file does not exist, and the diff is not from /dev/null");
  if (current !== undefined && diff.creates) throw misfit("the diff is from /dev/null, but the file exists");
  const lines = splitLines(current ?? "");
  const result: string[] = [];
  let done = 0;
  for (const [i, hunk] of diff.hunks.entries()) {
    if (hunk.at < done) throw misfit(`hunk ${i + 1} begins before the end of the one above it`);
    if (hunk.at > lines.length || !fits(lines, hunk.at, hunk.old)) throw misfit(whereItFits(lines, hunk, i + 1));
    for (let at = done; at < hunk.at; at++) result.push(lines[at] as string);
    for (const line of hunk.new) result.push(line);
    done = hunk.at + hunk.old.length;
  }
  for (let at = done; at < lines.length; at++) result.push(lines[at] as string);
  const lastOld = result.findIndex((line, i) => i < result.length - 1 && !line.endsWith("\n"));
  if (lastOld >= 0) throw misfit("a line without a line feed would no longer be the last");
  return result.join("");
}

function fits(lines: readonly string[], at: number, old: readonly string[]): boolean {
  return at + old.length <= lines.length && old.every((line, i) => lines[at + i] === line);
}

function whereItFits(lines: readonly string[], hunk: Hunk, number: number): string {
  const said = `hunk ${number} does not match the file at line ${hunk.at + 1}`;
  if (hunk.old.length === 0) return said;
  const found: number[] = [];
  for (let at = 0; at + hunk.old.length <= lines.length && found.length < 2; at++) {
    if (fits(lines, at, hunk.old)) found.push(at + 1);
  }
  if (found.length === 1) return `${said}; its old lines are at line ${found[0]}`;
  if (found.length > 1) return `${said}; its old lines occur more than once`;
  const differs = hunk.old.findIndex((line, i) => lines[hunk.at + i] !== line);
  return `${said}; the first line that differs is line ${hunk.at + differs + 1}`;
}

function parse(path: string, text: string): Diff {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  let at = 0;
  let creates = false;
  for (; at < lines.length && !lines[at]?.startsWith("@@ "); at++) {
    const line = (lines[at] as string).replace(/\r$/, "");
    if (UNWANTED.test(line))
      throw misfit("the diff renames, copies, deletes or changes a mode; only contents can change");
    if (line.startsWith("--- ")) creates = checkName(line.slice(4), "a/", path);
    else if (line.startsWith("+++ ") && checkName(line.slice(4), "b/", path)) {
      throw misfit("the diff deletes the file; use core.state.deleteDefinitionFile");
    } else if (line.startsWith("diff ") && at > 0) throw misfit("the diff is about more than one file");
  }
  const hunks: Hunk[] = [];
  while (at < lines.length) {
    if (hunks.length === MAX_HUNKS) throw misfit(`the diff has more than ${MAX_HUNKS} hunks`);
    at = parseHunk(lines, at, hunks);
  }
  if (hunks.length === 0) throw misfit("the diff has no hunk: a line that begins with @@ -1,2 +1,2 @@");
  return { creates, hunks };
}

/** True for /dev/null. Any other name must be the file's. */
function checkName(written: string, prefix: string, path: string): boolean {
  const name = written.replace(/\t.*$/, "").trimEnd();
  if (name === "/dev/null") return true;
  const plain = name.startsWith('"') ? unquote(name) : name;
  if (plain === path || plain === prefix + path) return false;
  throw misfit(`the diff is about another file; its header must name ${path}`);
}

/** git writes names with unusual bytes as C strings. */
function unquote(name: string): string {
  const bytes: number[] = [];
  const inside = Buffer.from(name.slice(1, -1));
  for (let i = 0; i < inside.length; i++) {
    const octal = /^\\([0-7]{3})/.exec(inside.toString("latin1", i, i + 4))?.[1];
    if (octal !== undefined) {
      bytes.push(Number.parseInt(octal, 8) & 0xff);
      i += 3;
    } else bytes.push(inside[i] as number);
  }
  return Buffer.from(bytes).toString("utf8");
}

function parseHunk(lines: readonly string[], start: number, hunks: Hunk[]): number {
  const number = hunks.length + 1;
  const header = HUNK.exec(lines[start] as string);
  if (!header) throw misfit(`line ${start + 1} of the diff is neither a hunk nor part of one`);
  const oldStart = Number(header[1]);
  const oldCount = Number(header[2] ?? 1);
  const newCount = Number(header[4] ?? 1);
  const before: string[] = [];
  const after: string[] = [];
  let at = start + 1;
  for (; before.length < oldCount || after.length < newCount; at++) {
    // Some programs write a blank context line without its leading space.
    const line = lines[at] === "" ? " " : lines[at];
    const kind = line?.[0];
    if (line === undefined || (kind !== " " && kind !== "-" && kind !== "+")) break;
    const body = `${line.slice(1)}${NO_NEWLINE.test(lines[at + 1] ?? "") ? "" : "\n"}`;
    if (kind !== "+") before.push(body);
    if (kind !== "-") after.push(body);
    if (!body.endsWith("\n")) at++;
  }
  if (before.length !== oldCount || after.length !== newCount) {
    throw misfit(
      `hunk ${number} says ${oldCount} old and ${newCount} new lines but has ${before.length} and ${after.length}`,
    );
  }
  if (oldCount > 0 && oldStart === 0) throw misfit(`hunk ${number} begins at line 0`);
  hunks.push({ at: oldCount === 0 ? oldStart : oldStart - 1, old: before, new: after });
  return at;
}

/** With their line feeds, so that a missing one at the end counts. */
function splitLines(text: string): string[] {
  return text === "" ? [] : (text.match(/[^\n]*\n|[^\n]+$/g) ?? []);
}

function misfit(reason: string): Fault {
  return new Fault("ToolExecution", `${reason}; nothing was changed`, {
    rule: "diffDoesNotApply",
    field: "diff",
    suggestions: ["read the file again and make the diff against what it says now"],
  });
}
