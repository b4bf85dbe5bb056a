// The conditions over past events in a policy file. Each is cut out of the text and replaced by a read of `context` that is
// as long, so that what is left is Cedar and every position in it is one in the file.

import { type ScanToken, scan } from "../cedar/language/scan.js";
import { FormulaError, type PastFormula } from "./formula.js";
import { expandMacros, type Macro } from "./macros.js";
import { parseCondition, parseMacroBody } from "./parse.js";

export interface HistoryCondition {
  readonly formula: PastFormula;
  /** The attribute of `context` that stands for it. */
  readonly attribute: string;
  /** Where it stands in the file. */
  readonly start: number;
  readonly end: number;
}

export interface SplitSource {
  /** Cedar alone. */
  readonly text: string;
  readonly tokens: readonly ScanToken[];
  readonly conditions: readonly HistoryCondition[];
  readonly problems: readonly FormulaError[];
}

const PREFIX = "temporal ";
const IS_ATTRIBUTE = /^temporal (\d+)$/;

/** The number of the condition that an attribute of `context` stands for. */
export function conditionOf(attribute: string): number | undefined {
  const found = IS_ATTRIBUTE.exec(attribute);
  return found ? Number(found[1]) : undefined;
}

/** The attributes that stand for conditions in the text of a rule. */
export function conditionsIn(text: string): string[] {
  return [...text.matchAll(/context\["(temporal \d+)"\]/g)].map(([, attribute]) => attribute as string);
}

/** `first` is the number of the first condition: it is counted through all files of a set. Throws ScanError. */
export function splitSource(text: string, first = 0, library: ReadonlyMap<string, Macro> = new Map()): SplitSource {
  const tokens = scan(text);
  if (!tokens.some(isTemporal)) return { text, tokens, conditions: [], problems: [] };
  return new Splitter(text, tokens, first, library).split();
}

/** The macros of a text that has nothing else. Throws FormulaError. */
export function readMacros(text: string): ReadonlyMap<string, Macro> {
  const splitter = new Splitter(text, scan(text), 0, new Map());
  const { problems } = splitter.split();
  if (problems[0]) throw problems[0];
  return splitter.macros;
}

function isTemporal(token: ScanToken, at: number, tokens: readonly ScanToken[]): boolean {
  const isWord = token.kind === "word" && token.text === "temporal";
  return isWord && (tokens[at + 1]?.text === "{" || tokens[at - 1]?.text === "def" || isClause(tokens[at - 1]));
}

function isClause(token: ScanToken | undefined): boolean {
  return token?.kind === "word" && (token.text === "when" || token.text === "unless");
}

interface Block {
  readonly from: number;
  readonly to: number;
}

class Splitter {
  readonly #text: string;
  readonly #tokens: readonly ScanToken[];
  readonly #first: number;
  readonly macros: Map<string, Macro>;
  readonly #own = new Set<string>();
  readonly #problems: FormulaError[] = [];
  readonly #blocks: Block[] = [];
  #out: string;

  constructor(text: string, tokens: readonly ScanToken[], first: number, library: ReadonlyMap<string, Macro>) {
    this.#text = text;
    this.#tokens = tokens;
    this.#first = first;
    this.macros = new Map(library);
    this.#out = text;
  }

  split(): SplitSource {
    for (let at = 0; at < this.#tokens.length; ) {
      try {
        at = this.#next(at);
      } catch (error) {
        if (!(error instanceof FormulaError)) throw error;
        this.#problems.push(error);
        at++;
      }
    }
    const conditions = this.#problems.length > 0 ? [] : this.#conditions();
    const tokens = this.#problems.length > 0 ? [] : scan(this.#out);
    return { text: this.#out, tokens, conditions, problems: this.#problems };
  }

  #next(at: number): number {
    const token = this.#tokens[at] as ScanToken;
    const before = this.#tokens[at - 1];
    const startsPolicy = before === undefined || before.text === ";";
    if (token.text === "def" && token.kind === "word" && startsPolicy) return this.#definition(at);
    if (!isTemporal(token, at, this.#tokens)) return at + 1;
    if (this.#tokens[at + 1]?.text !== "{") this.#fail(at + 1, "expected `{` behind temporal");
    const block = this.#block(at + 1);
    this.#blocks.push({ from: at, to: block.to });
    return block.to + 1;
  }

  /** The tokens between a brace and the one that closes it. */
  #block(open: number): Block {
    let depth = 0;
    for (let at = open; at < this.#tokens.length; at++) {
      const { text, kind } = this.#tokens[at] as ScanToken;
      if (kind === "symbol" && text === "{") depth++;
      if (kind === "symbol" && text === "}" && --depth === 0) return { from: open, to: at };
    }
    return this.#fail(open, "the brace is never closed");
  }

  #conditions(): HistoryCondition[] {
    return this.#blocks.flatMap(({ from, to }, index) => {
      const start = this.#startOf(from);
      const end = this.#endOf(to);
      try {
        const body = this.#tokens.slice(from + 2, to);
        const formula = expandMacros(parseCondition(body, this.#startOf(to)), this.macros);
        const attribute = `${PREFIX}${this.#first + index}`;
        const [open, close] = isClause(this.#tokens[from - 1]) ? ["{", "}"] : ["(", ")"];
        this.#replace(start, end, `${open}context["${attribute}"]`, close as string);
        return { formula, attribute, start, end };
      } catch (error) {
        if (!(error instanceof FormulaError)) throw error;
        this.#problems.push(error);
        return [];
      }
    });
  }

  /** Lines stay where they are. */
  #replace(start: number, end: number, text: string, close: string): void {
    const rest = this.#text.slice(start, end).replace(/[^\r\n]/g, " ");
    if (text.length + 1 > rest.length) {
      throw new FormulaError("the condition is about no past event", start, "write it as an ordinary condition");
    }
    const at = firstFit(rest, text.length);
    if (at === undefined) {
      // Every line is too short: the condition is put on one line, behind the lines it had.
      throw new FormulaError("no line of the condition has room", start, "write it on fewer lines");
    }
    const filled = rest.slice(0, at) + text + rest.slice(at + text.length, -1) + close;
    this.#out = this.#out.slice(0, start) + filled + this.#out.slice(end);
  }

  #definition(def: number): number {
    const kind = this.#tokens[def + 1];
    if (kind?.text !== "temporal") this.#fail(def + 1, "expected `def temporal`");
    const name = this.#tokens[def + 2];
    if (name?.kind !== "word") this.#fail(def + 2, "expected the name of the macro");
    if (this.#tokens[def + 3]?.text !== "(") this.#fail(def + 3, "expected `(`");
    const parameters: string[] = [];
    let at = def + 4;
    while (this.#tokens[at]?.text !== ")") {
      const token = this.#tokens[at];
      if (!token?.text.startsWith("?")) this.#fail(at, "expected a parameter such as `?w`, or `)`");
      if (parameters.includes(token.text)) this.#fail(at, `the parameter \`${token.text}\` is given twice`);
      parameters.push(token.text);
      at++;
      if (this.#tokens[at]?.text === ",") at++;
      else if (this.#tokens[at]?.text !== ")") this.#fail(at, "expected `,` or `)`");
    }
    if (this.#tokens[at + 1]?.text !== "{") this.#fail(at + 1, "expected `{`");
    const { from, to } = this.#block(at + 1);
    if (this.#tokens[to + 1]?.text !== ";") this.#fail(to + 1, "expected `;`");
    if (this.#own.has(name.text)) this.#fail(def + 2, `there are two macros \`${name.text}\``);
    const body = parseMacroBody(this.#tokens.slice(from + 1, to), this.#startOf(to));
    this.macros.set(name.text, { name: name.text, at: name.start, parameters, body });
    this.#own.add(name.text);
    const [start, end] = [this.#startOf(def), this.#endOf(to + 1)];
    const blank = this.#text.slice(start, end).replace(/[^\r\n]/g, " ");
    this.#out = this.#out.slice(0, start) + blank + this.#out.slice(end);
    return to + 2;
  }

  #startOf(at: number): number {
    return this.#tokens[at]?.start ?? this.#text.length;
  }

  #endOf(at: number): number {
    return this.#tokens[at]?.end ?? this.#text.length;
  }

  #fail(at: number, message: string): never {
    throw new FormulaError(message, this.#startOf(at));
  }
}

/** The first run of spaces that is long enough, the last place left for what closes. */
function firstFit(blank: string, length: number): number | undefined {
  let at = 0;
  for (const line of blank.split(/(?<=\n)/)) {
    const room = line.replace(/[\r\n]+$/, "").length;
    const isLast = at + line.length === blank.length;
    if (room - (isLast ? 1 : 0) >= length) return at;
    at += line.length;
  }
  return undefined;
}
