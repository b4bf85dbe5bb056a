// Policy files, and one file into rules. Cedar decides what is a policy; where our own parser sees the same tree, that tree
// is used, because it knows where everything stands and has not rounded any number.

import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { macroLibrary } from "../history/library.js";
import { type HistoryCondition, type SplitSource, splitSource } from "../history/source.js";
import { type AnnotationProblem, type RuleMeta, readAnnotations } from "./annotations.js";
import { CedarTrapped, type DetailedError, type PolicyJson, withCedar } from "./cedar.js";
import type { PolicyTree } from "./language/ast.js";
import { hasRoundedInteger, NotCovered, sameTree, treeFromJson } from "./language/json.js";
import { parsePolicyTokens } from "./language/parse.js";
import {
  Lines,
  offsetOfByte,
  PolicyTooDeep,
  type Position,
  ScanError,
  type ScanToken,
  splitPolicies,
} from "./language/scan.js";
import { PolicyInvalid, type PolicyProblem, type PolicySource } from "./types.js";

/** A rule as read, before it is checked against the tools. */
export interface Draft {
  readonly id: string;
  readonly effect: "permit" | "forbid";
  /** As Cedar sees it: conditions over past events are reads of `context`. */
  readonly text: string;
  /** As it was written; as long as `text`. */
  readonly written: string;
  readonly conditions: readonly HistoryCondition[];
  /** Where the text begins in its file. */
  readonly start: number;
  readonly where: SourcePlace;
  readonly meta: RuleMeta;
  /** Undefined when the compiler does not know something in it. */
  readonly tree: PolicyTree | undefined;
  /** False when a number was rounded on the way here, so that only Cedar itself can evaluate the rule. */
  readonly exact: boolean;
}

/** A file, for turning offsets into lines. */
export class SourcePlace {
  readonly file: string;
  readonly lines: Lines;
  constructor(file: string, text: string) {
    this.file = file;
    this.lines = new Lines(text);
  }
  at(offset: number): Position {
    return this.lines.at(offset);
  }
  problem(offset: number, message: string, help = ""): PolicyProblem {
    return { file: this.file, ...this.at(offset), message, help };
  }
}

/**
 * Drafts come back only where the text could be read; every problem of the file is listed. `firstCondition` is the number of
 * conditions over past events in the files before this one.
 */
export function readSource(
  source: PolicySource,
  firstCondition = 0,
): { drafts: Draft[]; problems: PolicyProblem[]; conditions: number } {
  const problems: PolicyProblem[] = [];
  const drafts = readPolicies(source, firstCondition, problems);
  const conditions = drafts.reduce((count, draft) => count + draft.conditions.length, 0);
  return { drafts, problems, conditions };
}

function readPolicies(source: PolicySource, firstCondition: number, problems: PolicyProblem[]): Draft[] {
  const written = source.text.replace(/^\uFEFF/, "");
  const place = new SourcePlace(source.file, written);
  let split: SplitSource;
  let policies: ScanToken[][];
  try {
    split = splitSource(written, firstCondition, macroLibrary());
    for (const { message, offset, help } of split.problems) problems.push(place.problem(offset, message, help));
    if (problems.length > 0) return [];
    policies = splitPolicies(split.tokens);
  } catch (error) {
    if (!(error instanceof ScanError)) throw error;
    problems.push(place.problem(error.offset, error.message));
    return [];
  }
  const trees = policies.map((tokens) => ownTree(tokens, place, problems));
  if (problems.length > 0) return [];
  problems.push(...syntaxProblems(split.text, place));
  if (problems.length > 0) return [];
  return policies.map((tokens, index) => readPolicy(split, tokens, index + 1, trees[index], place, problems));
}

function ownTree(tokens: readonly ScanToken[], place: SourcePlace, problems: PolicyProblem[]): PolicyTree | undefined {
  try {
    return parsePolicyTokens(tokens);
  } catch (error) {
    // Anything else that is wrong is for Cedar to say, in its own words.
    if (error instanceof PolicyTooDeep) problems.push(place.problem(error.offset, error.message));
    else if (!(error instanceof ScanError)) throw error;
    return undefined;
  }
}

function syntaxProblems(text: string, place: SourcePlace): PolicyProblem[] {
  try {
    const answer = withCedar((cedar) => cedar.checkParsePolicySet({ staticPolicies: text }));
    if (answer.type === "success") return [];
    return answer.errors
      .flatMap((error) => [error, ...(error.related ?? [])])
      .map((error) => fromCedar(error, text, place));
  } catch (error) {
    if (error instanceof CedarTrapped) return [place.problem(0, error.message)];
    throw error;
  }
}

function fromCedar(error: DetailedError, text: string, place: SourcePlace): PolicyProblem {
  const label = error.sourceLocations?.[0];
  const message = error.message.replace(/^failed to parse polic(y|ies)[^:]*: /, "");
  const help = [label?.label, error.help].filter((part) => part !== null && part !== undefined).join("; ");
  return place.problem(offsetOfByte(text, label?.start ?? 0), message, help);
}

function readPolicy(
  split: SplitSource,
  tokens: readonly ScanToken[],
  number: number,
  own: PolicyTree | undefined,
  place: SourcePlace,
  problems: PolicyProblem[],
): Draft {
  const start = tokens[0]?.start ?? 0;
  const end = tokens.at(-1)?.end ?? start;
  const text = split.text.slice(start, end);
  const json = toJson(text);
  const theirs = treeOrNothing(json);
  const tree = own && theirs && sameTree(own, theirs) ? own : theirs;
  const effect = json.effect === "forbid" ? "forbid" : "permit";
  const { meta, problems: wrong } = readAnnotations(json.annotations ?? {}, effect);
  problems.push(...wrong.map((problem) => annotationProblem(problem, tokens, place)));
  return {
    id: meta.id ?? `${basename(place.file)}#${number}`,
    effect,
    text,
    written: place.lines.text.slice(start, end),
    conditions: split.conditions.filter((condition) => condition.start >= start && condition.end <= end),
    start,
    where: place,
    meta,
    tree,
    exact: tree !== undefined && (tree === own || !hasRoundedInteger(tree)),
  };
}

/** INVARIANT: the text has passed Cedar's parser as part of its file. */
function toJson(text: string): PolicyJson {
  const answer = withCedar((cedar) => cedar.policyToJson(text));
  if (answer.type === "failure")
    throw new Error(`Cedar reads a policy in its file but not alone: ${text.slice(0, 80)}`);
  return answer.json;
}

function treeOrNothing(json: PolicyJson): PolicyTree | undefined {
  try {
    return treeFromJson(json);
  } catch (error) {
    if (error instanceof NotCovered) return undefined;
    throw error;
  }
}

function annotationProblem(
  problem: AnnotationProblem,
  tokens: readonly ScanToken[],
  place: SourcePlace,
): PolicyProblem {
  const at = tokens.findIndex((token, index) => token.text === "@" && tokens[index + 1]?.text === problem.name);
  return place.problem(tokens[Math.max(at, 0)]?.start ?? 0, problem.message, problem.help);
}

function basename(file: string): string {
  return file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1);
}

export interface PolicyFileLimits {
  readonly maxFiles?: number;
  /** Of all the files together. */
  readonly maxBytes?: number;
}

const DEFAULT_MAX_FILES = 1000;
const DEFAULT_MAX_BYTES = 16 * 1024 * 1024;
const SUFFIX = ".cedar";

/** The text of every file, in order; nothing is loaded yet. */
export async function readPolicyFiles(
  paths: readonly string[],
  limits: PolicyFileLimits = {},
): Promise<PolicySource[]> {
  const { maxFiles = DEFAULT_MAX_FILES, maxBytes = DEFAULT_MAX_BYTES } = limits;
  const problems: PolicyProblem[] = [];
  const files: string[] = [];
  for (const path of paths) files.push(...(await filesAt(path, problems)));
  const distinct = [...new Set(files)];
  if (distinct.length > maxFiles) {
    throw new PolicyInvalid([
      fileProblem(paths.join(", "), `more than ${maxFiles} policy files`, "name fewer directories"),
    ]);
  }
  const sources: PolicySource[] = [];
  let bytes = 0;
  for (const file of distinct) {
    const text = await readText(file, maxBytes - bytes, problems);
    bytes += Buffer.byteLength(text);
    sources.push({ file, text });
  }
  if (problems.length > 0) throw new PolicyInvalid(problems);
  return sources;
}

async function filesAt(path: string, problems: PolicyProblem[]): Promise<string[]> {
  try {
    if ((await stat(path)).isDirectory()) {
      const names = (await readdir(path)).filter((name) => name.endsWith(SUFFIX) && !name.startsWith("."));
      return names.sort().map((name) => join(path, name));
    }
    if (path.endsWith(SUFFIX)) return [path];
    problems.push(fileProblem(path, `is not a ${SUFFIX} file`, `give the file a name that ends in ${SUFFIX}`));
  } catch (error) {
    problems.push(
      fileProblem(path, `cannot be read: ${(error as Error).message}`, "check the path and its permissions"),
    );
  }
  return [];
}

async function readText(file: string, maxBytes: number, problems: PolicyProblem[]): Promise<string> {
  try {
    const { size } = await stat(file);
    if (size > maxBytes) throw new Error("the policy files together are too large");
    const bytes = await readFile(file);
    const text = bytes.toString("utf8");
    // A byte that is not valid UTF-8 would be read as something else than what is on disk.
    if (!Buffer.from(text).equals(bytes)) throw new Error("the file is not valid UTF-8");
    return text;
  } catch (error) {
    problems.push(fileProblem(file, `cannot be read: ${(error as Error).message}`, "check the file"));
    return "";
  }
}

function fileProblem(file: string, message: string, help: string): PolicyProblem {
  return { file, line: 0, column: 0, message, help };
}
