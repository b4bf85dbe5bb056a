// What has to be right about a condition before it may decide anything: every variable is bound and denotes finitely many
// values, filters stand behind what binds their variables, and types agree with the events there are.

import {
  type Aggregate,
  aggregatesIn,
  type Binder,
  bodiesOf,
  conjuncts,
  type EventAtom,
  FormulaError,
  freeIn,
  freeInTerm,
  type PastFormula,
  type Term,
} from "./formula.js";

/** A type by its name (`Long`, `String`, `Bool`, `decimal`, `Timepoint`, `Set`, or an entity type); undefined is any. */
export type HistoryType = string | undefined;

export type Typed = { readonly type: HistoryType } | { readonly problem: string; readonly help?: string };

/** The events there are, and what the call that is decided has. */
export interface HistoryTypes {
  /** Undefined when there is such an event; else what is wrong. */
  event(atom: EventAtom): { readonly problem: string; readonly help?: string } | undefined;
  field(atom: EventAtom, path: string): Typed;
  current(path: string): Typed;
  /** Undefined when the entity can exist. */
  entity?(type: string, key: string): string | undefined;
}

/** Throws FormulaError with the first thing that is wrong. */
export function checkFormula(formula: PastFormula, types: HistoryTypes): void {
  const [free] = freeIn(formula);
  checkScopes(formula, new Set());
  if (free !== undefined) {
    const help = `write exists (${free}: …). (…), or _ where any value will do`;
    throw new FormulaError(`variable \`${free}\` is not bound`, formula.at, help);
  }
  checkOrder(formula, new Set());
  checkTypes(formula, types, new Map());
}

function checkScopes(formula: PastFormula, bound: ReadonlySet<string>): void {
  switch (formula.kind) {
    case "exists":
      if (!restricted(formula.body).has(formula.binder.name)) throw unrestricted(formula.binder, "exists");
      checkScopes(formula.body, new Set([...bound, formula.binder.name]));
      return;
    case "event":
      for (const { value } of formula.fields) onlyPlain(value);
      return;
    case "compare":
      for (const operand of [formula.left, formula.right]) {
        checkOperand(operand);
        for (const aggregate of aggregatesIn(operand)) checkAggregate(aggregate, bound);
      }
      return;
    default:
      for (const body of bodiesOf(formula)) checkScopes(body, bound);
  }
}

function checkOperand(term: Term): void {
  if (term.kind === "arithmetic") {
    checkOperand(term.left);
    checkOperand(term.right);
  } else if (term.kind !== "aggregate") onlyPlain(term);
}

function onlyPlain(term: Term): void {
  if (term.kind === "aggregate" || term.kind === "arithmetic") {
    const what = term.kind === "aggregate" ? "count and sum" : "arithmetic";
    throw new FormulaError(`${what} may only be compared`, term.at, "write exists (n: Long). ((…) == n && …)");
  }
  if (term.kind === "set") term.items.forEach(onlyPlain);
}

function checkAggregate({ sum, over, body, at }: Aggregate, bound: ReadonlySet<string>): void {
  const names = over.map(({ name }) => name);
  if (sum !== undefined && !names.includes(sum)) {
    throw new FormulaError(`the summed variable \`${sum}\` is not among those of \`for\``, at, "add it there");
  }
  const inner = new Set([...bound, ...names]);
  const free = freeIn(body);
  for (const name of free) {
    if (!inner.has(name)) {
      throw new FormulaError(`variable \`${name}\` is not bound`, at, "add it to the variables of `for`");
    }
  }
  const safe = restricted(body);
  for (const binder of over) {
    if (!free.has(binder.name)) {
      throw new FormulaError(`variable \`${binder.name}\` is not used behind \`where\``, binder.at, "leave it out");
    }
    if (!safe.has(binder.name)) throw unrestricted(binder, "where");
  }
  checkScopes(body, inner);
}

function unrestricted({ name, at }: Binder, where: string): FormulaError {
  const message = `variable \`${name}\` can have any value: nothing in the \`${where}\` condition limits it`;
  return new FormulaError(message, at, `bind it by a field of an event, tp(${name}) or (count …) == ${name}`);
}

/** The variables that a condition limits to finitely many values; a negation limits none. */
export function restricted(formula: PastFormula): Set<string> {
  switch (formula.kind) {
    case "and":
      return new Set([...restricted(formula.left), ...restricted(formula.right)]);
    case "event":
      return new Set(formula.fields.flatMap(({ value }) => (value.kind === "variable" ? value.name : [])));
    case "timepoint":
      return new Set([formula.name]);
    case "compare": {
      const name = boundByEquality(formula);
      return new Set(name === undefined ? [] : [name]);
    }
    case "formerly":
    case "previous":
      return restricted(formula.body);
    case "since":
      return restricted(formula.right);
    case "exists": {
      const inner = restricted(formula.body);
      inner.delete(formula.binder.name);
      return inner;
    }
    default:
      return new Set();
  }
}

/** The variable that an equality gives a value. */
export function boundByEquality({ op, left, right }: PastFormula & { kind: "compare" }): string | undefined {
  if (op !== "==") return undefined;
  const value = (term: Term): boolean => term.kind !== "variable" && !hasAny(term);
  if (left.kind === "variable" && value(right)) return left.name;
  return right.kind === "variable" && value(left) ? right.name : undefined;
}

function hasAny(term: Term): boolean {
  if (term.kind === "arithmetic") return hasAny(term.left) || hasAny(term.right);
  return term.kind === "any" || (term.kind === "set" && term.items.some(hasAny));
}

/** Conditions are read from left to right: what uses a variable stands behind what binds it. */
function checkOrder(formula: PastFormula, before: ReadonlySet<string>): void {
  const known = new Set(before);
  for (const conjunct of conjuncts(formula)) {
    checkDemands(conjunct, known);
    checkNested(conjunct, known);
    for (const name of restricted(conjunct)) known.add(name);
  }
}

function checkDemands(formula: PastFormula, known: ReadonlySet<string>): void {
  const need = (names: Iterable<string>, help: string): void => {
    for (const name of names) {
      if (known.has(name)) continue;
      throw new FormulaError(`variable \`${name}\` is used before anything gives it a value`, formula.at, help);
    }
  };
  switch (formula.kind) {
    case "compare": {
      const bound = boundByEquality(formula);
      const names = [...freeInTerm(formula.left), ...freeInTerm(formula.right)];
      need(
        names.filter((name) => name !== bound),
        "put the condition that binds it in front",
      );
      return;
    }
    case "not":
      need(freeIn(formula.body), "put the condition that binds it in front");
      return;
    case "since": {
      const anchor = restricted(formula.right);
      need(
        [...freeIn(formula.left)].filter((name) => !anchor.has(name)),
        "bind it on the right of since, or in front",
      );
      return;
    }
    case "formerly":
    case "previous":
      if (formula.body.kind !== "and") checkDemands(formula.body, known);
      return;
    case "exists":
      if (formula.body.kind !== "and") checkDemands(formula.body, without(known, [formula.binder]));
      return;
    default:
  }
}

function checkNested(formula: PastFormula, known: ReadonlySet<string>): void {
  switch (formula.kind) {
    case "not":
      checkNested(formula.body, known);
      return;
    case "and":
      checkOrder(formula, known);
      return;
    case "formerly":
    case "previous":
      checkOrder(formula.body, known);
      return;
    case "since":
      checkOrder(formula.left, new Set([...known, ...restricted(formula.right)]));
      checkOrder(formula.right, known);
      return;
    case "exists":
      checkOrder(formula.body, without(known, [formula.binder]));
      return;
    case "compare":
      for (const operand of [formula.left, formula.right]) {
        for (const { over, body } of aggregatesIn(operand)) checkOrder(body, without(known, over));
      }
      return;
    default:
  }
}

function without(names: ReadonlySet<string>, binders: readonly Binder[]): Set<string> {
  const left = new Set(names);
  for (const { name } of binders) left.delete(name);
  return left;
}

type Scope = ReadonlyMap<string, HistoryType>;

function checkTypes(formula: PastFormula, types: HistoryTypes, scope: Scope): void {
  switch (formula.kind) {
    case "event":
      checkEvent(formula, types, scope);
      return;
    case "timepoint": {
      const type = scope.get(formula.name);
      if (type !== undefined && type !== "Timepoint") {
        throw new FormulaError(`\`${formula.name}\` is a ${type}, and tp gives a Timepoint`, formula.at);
      }
      return;
    }
    case "exists":
      checkTypes(formula.body, types, new Map([...scope, [formula.binder.name, typeOfBinder(formula.binder)]]));
      return;
    case "compare":
      checkComparison(formula, types, scope);
      return;
    default:
      for (const body of bodiesOf(formula)) checkTypes(body, types, scope);
  }
}

/** Only `Timepoint` is a type of its own here; the rest are those of Cedar. */
function typeOfBinder({ type }: Binder): HistoryType {
  return type;
}

function checkEvent(atom: EventAtom, types: HistoryTypes, scope: Scope): void {
  const wrong = types.event(atom);
  if (wrong) throw new FormulaError(wrong.problem, atom.at, wrong.help);
  for (const { path, value, at } of atom.fields) {
    const expected = known(types.field(atom, path), at);
    if (value.kind === "any") continue;
    const given = typeOf(value, types, scope);
    if (expected !== undefined && given !== undefined && given !== expected) {
      throw new FormulaError(`\`${path}\` of \`${atom.action}\` is a ${expected}, and a ${given} is given`, at);
    }
  }
}

function checkComparison(
  { op, left, right, at }: PastFormula & { kind: "compare" },
  types: HistoryTypes,
  scope: Scope,
): void {
  const [a, b] = [typeOf(left, types, scope), typeOf(right, types, scope)];
  if (op === "==" || op === "!=") {
    if (a !== undefined && b !== undefined && a !== b) {
      throw new FormulaError(`a ${a} is compared with a ${b}`, at);
    }
    return;
  }
  for (const type of [a, b]) {
    if (type === undefined || type === "Long" || (type === "Timepoint" && a === b)) continue;
    throw new FormulaError(`\`${op}\` compares Longs, and one side is a ${type}`, at);
  }
}

function typeOf(term: Term, types: HistoryTypes, scope: Scope): HistoryType {
  switch (term.kind) {
    case "value": {
      const wrong = term.key.startsWith("@") ? types.entity?.(term.type, term.key) : undefined;
      if (wrong !== undefined) throw new FormulaError(wrong, term.at);
      return term.type;
    }
    case "variable":
      return scope.get(term.name);
    case "current":
      return known(types.current(term.path), term.at);
    case "set":
      for (const item of term.items) typeOf(item, types, scope);
      return "Set";
    case "arithmetic":
      for (const side of [term.left, term.right]) {
        const type = typeOf(side, types, scope);
        if (type !== undefined && type !== "Long") {
          throw new FormulaError(`\`${term.op}\` is for Longs, and one side is a ${type}`, side.at);
        }
      }
      return "Long";
    case "aggregate": {
      const inner = new Map([...scope, ...term.over.map((each) => [each.name, typeOfBinder(each)] as const)]);
      const summed = term.sum === undefined ? "Long" : inner.get(term.sum);
      if (summed !== undefined && summed !== "Long") {
        throw new FormulaError(`sum is of Longs, and \`${term.sum}\` is a ${summed}`, term.at);
      }
      checkTypes(term.body, types, inner);
      return "Long";
    }
    default:
      return undefined;
  }
}

function known(found: Typed, at: number): HistoryType {
  if ("problem" in found) throw new FormulaError(found.problem, at, found.help);
  return found.type;
}
