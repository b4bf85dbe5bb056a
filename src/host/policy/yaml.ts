// YAML text to plain data, and from a place in the data back to line and column.

import {
  isAlias,
  isCollection,
  isMap,
  isPair,
  isScalar,
  LineCounter,
  type Node,
  parseDocument,
  type Scalar,
  visit,
} from "yaml";
import { type Path, pathText, type ShapeProblem } from "../../mcp/index.js";

const MAX_POLICY_CHARS = 1_000_000;

export interface Positions {
  problem(path: Path, message: string, remedy: string, atKey?: boolean): HostPolicyProblem;
}

export interface YamlRead {
  readonly value: unknown;
  readonly positions: Positions;
  readonly problems: readonly HostPolicyProblem[];
}

export function readYaml(text: string, file: string): YamlRead {
  const counter = new LineCounter();
  if (text.length > MAX_POLICY_CHARS) {
    const message = `the file has more than ${MAX_POLICY_CHARS} characters`;
    return failed(file, [
      { file, line: 1, column: 1, path: "", message, remedy: "split the policy or remove what is not needed" },
    ]);
  }
  const document = parseDocument(text, { lineCounter: counter, uniqueKeys: true, merge: false, prettyErrors: false });
  const at = (offset: number) => counter.linePos(offset);
  const problems: HostPolicyProblem[] = document.errors.map((error) => {
    const { line, col } = at(error.pos[0]);
    return { file, line, column: col, path: "", message: error.message, remedy: "correct the YAML" };
  });
  const positions = positionsIn(document.contents, at, file);
  const refuse = (node: Node, message: string, remedy: string): void => {
    const { line, col } = at(node.range?.[0] ?? 0);
    problems.push({ file, line, column: col, path: "", message, remedy });
  };
  visit(document, {
    Node: (_, node) => {
      if (isAlias(node)) return refuse(node, "aliases are not allowed", "write the value out");
      if (node.tag !== undefined) refuse(node, `tag ${node.tag} is not allowed`, "remove the tag");
      if (isScalar(node)) readUnderscores(node);
    },
  });
  return { value: problems.length > 0 ? undefined : document.toJS({ maxAliasCount: 0 }), positions, problems };
}

/** 10_000_000 is a number to people and a string to YAML 1.2. */
function readUnderscores(node: Scalar): void {
  if (typeof node.value !== "string" || node.type !== "PLAIN" || !/^[0-9]+(_[0-9]+)+$/.test(node.value)) return;
  node.value = Number(node.value.replaceAll("_", ""));
}

function failed(file: string, problems: HostPolicyProblem[]): YamlRead {
  const positions = positionsIn(null, () => ({ line: 1, col: 1 }), file);
  return { value: undefined, positions, problems };
}

function positionsIn(root: unknown, at: (offset: number) => { line: number; col: number }, file: string): Positions {
  return {
    problem(path, message, remedy, atKey = false) {
      const { line, col } = at(offsetOf(root, path, atKey));
      return { file, line, column: col, path: pathText(path), message, remedy };
    },
  };
}

/** The place named by `path`, or the nearest one around it that exists. */
function offsetOf(root: unknown, path: Path, atKey: boolean): number {
  let node = root as Node | null | undefined;
  let offset = startOf(node);
  for (const [depth, part] of path.entries()) {
    const last = depth === path.length - 1;
    if (isMap(node)) {
      const pair = node.items.find(
        (item) => isPair(item) && isScalar(item.key) && String(item.key.value) === String(part),
      );
      if (pair === undefined) return offset;
      offset = startOf(last && atKey ? pair.key : (pair.value ?? pair.key)) ?? offset;
      node = pair.value as Node | null;
    } else if (isCollection(node)) {
      node = node.items[Number(part)] as Node | undefined;
      if (node === undefined) return offset;
      offset = startOf(node);
    } else {
      return offset;
    }
  }
  return offset;
}

function startOf(node: unknown): number {
  return (node as Node | null | undefined)?.range?.[0] ?? 0;
}

export function placed(problem: ShapeProblem, positions: Positions): HostPolicyProblem {
  return positions.problem(problem.path, problem.message, remedyFor(problem), problem.atKey);
}

function remedyFor(problem: ShapeProblem): string {
  if (problem.atKey === true) return "correct the name or remove the field";
  if (problem.message.includes("is missing")) return "add it";
  return "correct the value";
}

// What is wrong with a policy, where, and what to do about it.

export interface HostPolicyProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** `commands[2].exec` */
  readonly path: string;
  readonly message: string;
  readonly remedy: string;
}

export function problemText(problem: HostPolicyProblem): string {
  const where = problem.path === "" ? "" : ` ${problem.path}:`;
  return `${problem.file}:${problem.line}:${problem.column}:${where} ${problem.message}; ${problem.remedy}`;
}
