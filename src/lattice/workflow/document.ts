import { Document, isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from "yaml";
import { LatticeError, type LatticeErrorCode } from "../errors.js";
import { jsonNodes } from "./json-nodes.js";

export interface Entry {
  readonly key: string;
  readonly value: Node | null;
  readonly line: number;
}

const MAX_CHARACTERS = 64 * 1024 * 1024;
const MAX_PROBLEMS = 100;

/**
 * A YAML or JSON text with the line of every part, and the problems found in it so far. Reading goes on after a
 * problem, so that a person sees all of them at once.
 */
export class WorkflowDocument {
  readonly root: Node | null;
  readonly problems: LatticeError[] = [];
  readonly #lines = new LineCounter();
  readonly #document: ReturnType<typeof parseDocument>;

  constructor(text: string) {
    if (text.length > MAX_CHARACTERS) {
      throw new LatticeError("LATTICE_TOO_LARGE", `a workflow file may have at most ${MAX_CHARACTERS} characters`);
    }
    const json = jsonNodes(text);
    if (json !== undefined) {
      this.#document = new Document() as ReturnType<typeof parseDocument>;
      this.root = json;
      for (let start = 0; start !== -1; start = nextLine(text, start)) this.#lines.addNewLine(start);
      return;
    }
    // Keys are compared in `entries`: the parser's own check takes quadratic time.
    this.#document = parseDocument(text, { lineCounter: this.#lines, uniqueKeys: false, prettyErrors: false });
    for (const error of this.#document.errors) {
      this.report("LATTICE_SYNTAX", error.message, this.#lines.linePos(error.pos[0]).line);
    }
    this.root = this.#document.contents as Node | null;
  }

  report(code: LatticeErrorCode, message: string, line: number | undefined): void {
    if (this.problems.length < MAX_PROBLEMS) this.problems.push(new LatticeError(code, message, line));
  }

  /** The first problem is thrown, with all the others in it. */
  throwIfAny(): void {
    const [first] = this.problems.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0));
    if (first === undefined) return;
    throw new LatticeError(
      first.code,
      first.text,
      first.line,
      this.problems.filter((problem) => problem !== first),
    );
  }

  lineOf(node: Node | null | undefined): number | undefined {
    const start = node?.range?.[0];
    return start === undefined ? undefined : this.#lines.linePos(start).line;
  }

  #plain(node: Node | null): Node | null {
    return isAlias(node) ? (node.resolve(this.#document) ?? null) : node;
  }

  /** The members of a mapping; `what` names it in messages. An absent mapping has none. */
  entries(node: Node | null | undefined, what: string): Entry[] {
    if (node === undefined || node === null) return [];
    const map = this.#plain(node);
    if (!isMap(map)) {
      this.report("LATTICE_SHAPE", `${what} must be a mapping`, this.lineOf(node));
      return [];
    }
    const seen = new Map<string, number>();
    return map.items.flatMap(({ key, value }) => {
      const line = this.lineOf(key as Node) ?? this.lineOf(node) ?? 1;
      if (!isScalar(key)) {
        this.report("LATTICE_SHAPE", `a name in ${what} must be plain text`, line);
        return [];
      }
      const name = String(key.value);
      const before = seen.get(name);
      if (before !== undefined) {
        this.report("LATTICE_DUPLICATE", `\`${name}\` is in ${what} twice, first on line ${before}`, line);
        return [];
      }
      seen.set(name, line);
      return [{ key: name, value: value as Node | null, line }];
    });
  }

  /** The entries of a mapping by name, where only these names make sense. */
  fields<Name extends string>(node: Node | null | undefined, what: string, names: readonly Name[]) {
    const found: { [key in Name]?: Entry } = {};
    for (const entry of this.entries(node, what)) {
      const name = names.find((known) => known === entry.key);
      if (name === undefined) {
        this.report(
          "LATTICE_SHAPE",
          `${what} has no field \`${entry.key}\`; it may have ${names.join(", ")}`,
          entry.line,
        );
      } else found[name] = entry;
    }
    return found;
  }

  items(node: Node | null | undefined, what: string): { readonly value: Node | null; readonly line: number }[] {
    if (node === undefined || node === null) return [];
    const list = this.#plain(node);
    if (!isSeq(list)) {
      this.report("LATTICE_SHAPE", `${what} must be a list`, this.lineOf(node));
      return [];
    }
    return list.items.map((value) => ({ value: value as Node | null, line: this.lineOf(value as Node) ?? 1 }));
  }

  strings(node: Node | null | undefined, what: string): { readonly text: string; readonly line: number }[] {
    return this.items(node, what).flatMap(({ value, line }) => {
      const text = this.text(value, `an entry of ${what}`);
      return text === undefined ? [] : [{ text, line }];
    });
  }

  text(node: Node | null | undefined, what: string): string | undefined {
    const plain = this.#plain(node ?? null);
    if (isScalar(plain) && typeof plain.value === "string") return plain.value;
    this.report("LATTICE_SHAPE", `${what} must be text`, this.lineOf(node));
    return undefined;
  }

  boolean(node: Node | null | undefined, what: string): boolean | undefined {
    const plain = this.#plain(node ?? null);
    if (isScalar(plain) && typeof plain.value === "boolean") return plain.value;
    this.report("LATTICE_SHAPE", `${what} must be true or false`, this.lineOf(node));
    return undefined;
  }

  isMap(node: Node | null | undefined): boolean {
    return isMap(this.#plain(node ?? null));
  }

  isSeq(node: Node | null | undefined): boolean {
    return isSeq(this.#plain(node ?? null));
  }

  /** Any part as a JSON value. */
  value(node: Node | null | undefined): unknown {
    try {
      return node?.toJS(this.#document, { maxAliasCount: 1_000 });
    } catch (error) {
      if (!(error instanceof ReferenceError)) throw error;
      this.report("LATTICE_TOO_LARGE", `aliases are nested too deeply: ${error.message}`, this.lineOf(node));
      return undefined;
    }
  }
}

/** Where the line after this one begins, or -1. */
function nextLine(text: string, start: number): number {
  const end = text.indexOf("\n", start);
  return end === -1 ? -1 : end + 1;
}
