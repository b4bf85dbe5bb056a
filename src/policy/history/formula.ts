// A condition over past events as a tree, and what the rest of this directory asks about such trees.

import { quoteString } from "../cedar/language/scan.js";

export type Comparator = "<" | "<=" | ">" | ">=" | "==" | "!=";

/** A variable, a macro parameter or a macro's own fresh variable, until macros are expanded. */
export interface Binder {
  readonly name: string;
  readonly type: string;
  readonly at: number;
}

interface At {
  /** Offset into the file, for messages. */
  readonly at: number;
}

export type Term = At &
  (
    | { readonly kind: "value"; readonly key: string; readonly type: string }
    | { readonly kind: "variable"; readonly name: string }
    /** Of the call that is decided: `context.arguments.to`, `principal`, `principal.user`. */
    | { readonly kind: "current"; readonly path: string }
    | { readonly kind: "any" }
    | { readonly kind: "set"; readonly items: readonly Term[] }
    | { readonly kind: "arithmetic"; readonly op: "+" | "-" | "*"; readonly left: Term; readonly right: Term }
    | {
        readonly kind: "aggregate";
        readonly sum: string | undefined;
        readonly over: readonly Binder[];
        readonly body: PastFormula;
      }
    | CallForm
  );

interface CallForm {
  readonly kind: "call";
  readonly name: string;
  readonly args: readonly MacroArgument[];
}

export interface EventField {
  readonly path: string;
  readonly value: Term;
  readonly at: number;
}

export type Window = { readonly ms: number; readonly text: string } | { readonly parameter: string };

export type EventAtom = At & {
  readonly kind: "event";
  readonly action: string;
  readonly type: string;
  readonly event: string;
  readonly fields: readonly EventField[];
};

export type PastFormula = At &
  (
    | EventAtom
    | { readonly kind: "and"; readonly left: PastFormula; readonly right: PastFormula }
    | { readonly kind: "not"; readonly body: PastFormula }
    | { readonly kind: "formerly" | "previous"; readonly within: Window; readonly body: PastFormula }
    | { readonly kind: "since"; readonly left: PastFormula; readonly within: Window; readonly right: PastFormula }
    | { readonly kind: "exists"; readonly binder: Binder; readonly body: PastFormula }
    | { readonly kind: "compare"; readonly op: Comparator; readonly left: Term; readonly right: Term }
    | { readonly kind: "timepoint"; readonly name: string }
    | CallForm
    | { readonly kind: "parameter"; readonly name: string }
    | { readonly kind: "refine"; readonly body: PastFormula; readonly fields: readonly EventField[] }
  );

export type MacroArgument =
  | { readonly kind: "window"; readonly window: Window }
  | { readonly kind: "formula"; readonly formula: PastFormula }
  | { readonly kind: "term"; readonly term: Term };

export class FormulaError extends Error {
  readonly offset: number;
  readonly help: string;
  constructor(message: string, offset: number, help = "") {
    super(message);
    this.name = "FormulaError";
    this.offset = offset;
    this.help = help;
  }
}

/** The conjuncts of a chain, in order. */
export function conjuncts(formula: PastFormula): PastFormula[] {
  return formula.kind === "and" ? [...conjuncts(formula.left), ...conjuncts(formula.right)] : [formula];
}

export function bodiesOf(formula: PastFormula): readonly PastFormula[] {
  switch (formula.kind) {
    case "and":
    case "since":
      return [formula.left, formula.right];
    case "not":
    case "formerly":
    case "previous":
    case "exists":
    case "refine":
      return [formula.body];
    case "compare":
      return [...aggregatesIn(formula.left), ...aggregatesIn(formula.right)].map(({ body }) => body);
    default:
      return [];
  }
}

export type Aggregate = Term & { kind: "aggregate" };

export function aggregatesIn(term: Term): Aggregate[] {
  if (term.kind === "aggregate") return [term];
  return term.kind === "arithmetic" ? [...aggregatesIn(term.left), ...aggregatesIn(term.right)] : [];
}

/** Every event atom in the formula, aggregates included. */
export function eventsIn(formula: PastFormula): EventAtom[] {
  return formula.kind === "event" ? [formula] : bodiesOf(formula).flatMap(eventsIn);
}

/** Variables of a term that are bound outside of it. */
export function freeInTerm(term: Term): string[] {
  switch (term.kind) {
    case "variable":
      return [term.name];
    case "set":
      return term.items.flatMap(freeInTerm);
    case "arithmetic":
      return [...freeInTerm(term.left), ...freeInTerm(term.right)];
    case "aggregate": {
      const own = new Set(term.over.map(({ name }) => name));
      return [...freeIn(term.body)].filter((name) => !own.has(name));
    }
    default:
      return [];
  }
}

/** Variables of a formula that are bound outside of it. */
export function freeIn(formula: PastFormula): Set<string> {
  const free = new Set<string>();
  const add = (names: Iterable<string>): void => {
    for (const name of names) free.add(name);
  };
  switch (formula.kind) {
    case "event":
      add(formula.fields.flatMap(({ value }) => freeInTerm(value)));
      break;
    case "timepoint":
      free.add(formula.name);
      break;
    case "compare":
      add(freeInTerm(formula.left));
      add(freeInTerm(formula.right));
      break;
    case "exists":
      add(freeIn(formula.body));
      free.delete(formula.binder.name);
      break;
    default:
      for (const body of bodiesOf(formula)) add(freeIn(body));
  }
  return free;
}

/** What of the current call the formula reads. */
export function currentPathsIn(formula: PastFormula): Set<string> {
  const paths = new Set<string>();
  const visit = (term: Term): void => {
    if (term.kind === "current") paths.add(term.path);
    else if (term.kind === "set") term.items.forEach(visit);
    else if (term.kind === "arithmetic") [term.left, term.right].forEach(visit);
  };
  if (formula.kind === "event") for (const { value } of formula.fields) visit(value);
  if (formula.kind === "compare") [formula.left, formula.right].forEach(visit);
  for (const body of bodiesOf(formula)) for (const path of currentPathsIn(body)) paths.add(path);
  return paths;
}

/** The formula without layout and comments: equal texts mean the same. */
export function formulaText(formula: PastFormula): string {
  switch (formula.kind) {
    case "event":
      return `${formula.type}::${quoteString(formula.action)}::${formula.event}{${fieldsText(formula.fields)}}`;
    case "and":
      return `(${formulaText(formula.left)} && ${formulaText(formula.right)})`;
    case "not":
      return `!(${formulaText(formula.body)})`;
    case "formerly":
    case "previous":
      return `${formula.kind} within ${windowText(formula.within)} (${formulaText(formula.body)})`;
    case "since":
      return `(${formulaText(formula.left)}) since within ${windowText(formula.within)} (${formulaText(formula.right)})`;
    case "exists":
      return `exists (${formula.binder.name}: ${formula.binder.type}). (${formulaText(formula.body)})`;
    case "compare":
      return `${termText(formula.left)} ${formula.op} ${termText(formula.right)}`;
    case "timepoint":
      return `tp(${formula.name})`;
    case "call":
      return `${formula.name}(…)`;
    case "parameter":
      return formula.name;
    case "refine":
      return `${formulaText(formula.body)}{${fieldsText(formula.fields)}}`;
  }
}

function fieldsText(fields: readonly EventField[]): string {
  return fields.map(({ path, value }) => `${path}: ${termText(value)}`).join(", ");
}

function windowText(window: Window): string {
  return "ms" in window ? `${window.ms}ms` : window.parameter;
}

function termText(term: Term): string {
  switch (term.kind) {
    case "value":
      return term.key;
    case "variable":
      return term.name;
    case "current":
      return term.path;
    case "any":
      return "_";
    case "set":
      return `[${term.items.map(termText).join(", ")}]`;
    case "arithmetic":
      return `(${termText(term.left)} ${term.op} ${termText(term.right)})`;
    case "aggregate": {
      const over = term.over.map(({ name, type }) => `(${name}: ${type})`).join(", ");
      const what = term.sum === undefined ? "count" : `sum ${term.sum}`;
      return `(${what} for ${over}. where ${formulaText(term.body)})`;
    }
    case "call":
      return `${term.name}(…)`;
  }
}
