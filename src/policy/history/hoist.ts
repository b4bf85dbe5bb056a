// A filter that reads the current call, such as `a > context.arguments.limit`, says the same at every moment: it is moved out
// of the operators over the past, so that what is kept under them does not depend on calls that are still to come.

import { aggregatesIn, bodiesOf, conjuncts, currentPathsIn, freeIn, type PastFormula, type Term } from "./formula.js";

/** The same condition. Bound variables get names that are used once. */
export function hoistFilters(formula: PastFormula): PastFormula {
  return hoist(new Renaming().formula(formula, new Map()));
}

function hoist(formula: PastFormula): PastFormula {
  switch (formula.kind) {
    case "and":
      return { ...formula, left: hoist(formula.left), right: hoist(formula.right) };
    case "not":
    case "exists":
      return { ...formula, body: hoist(formula.body) };
    case "compare":
      return { ...formula, left: hoistIn(formula.left), right: hoistIn(formula.right) };
    case "formerly":
    case "previous": {
      const { binders, kept, moved } = split(hoist(formula.body));
      return around(binders, moved, { ...formula, body: kept });
    }
    case "since": {
      const { binders, kept, moved } = split(hoist(formula.right));
      return around(binders, moved, { ...formula, left: hoist(formula.left), right: kept });
    }
    default:
      return formula;
  }
}

function hoistIn(term: Term): Term {
  if (term.kind === "arithmetic") return { ...term, left: hoistIn(term.left), right: hoistIn(term.right) };
  return term.kind === "aggregate" ? { ...term, body: hoist(term.body) } : term;
}

type Exists = PastFormula & { kind: "exists" };

interface Split {
  readonly binders: readonly Exists[];
  readonly kept: PastFormula;
  readonly moved: readonly PastFormula[];
}

function split(body: PastFormula): Split {
  if (body.kind === "exists") {
    const inner = split(body.body);
    const needed = inner.moved.some((each) => freeIn(each).has(body.binder.name));
    if (needed || inner.binders.length > 0) return { ...inner, binders: [body, ...inner.binders] };
    return { ...inner, kept: { ...body, body: inner.kept } };
  }
  const parts = conjuncts(body).map((part) => (part.kind === "exists" ? split(part) : asItIs(part)));
  const named = new Set(parts.flatMap(({ kept }) => [...namedByEvents(kept)]));
  const kept: PastFormula[] = [];
  const moved: PastFormula[] = parts.flatMap((part) => part.moved);
  for (const part of parts) {
    const isOpen = [...currentPathsIn(part.kept)].some((path) => !named.has(path));
    if (isOpen && isTimeless(part.kept)) moved.push(part.kept);
    else kept.push(part.kept);
  }
  return { binders: parts.flatMap((part) => part.binders), kept: all(kept, body), moved };
}

function asItIs(kept: PastFormula): Split {
  return { binders: [], kept, moved: [] };
}

function all(parts: readonly PastFormula[], like: PastFormula): PastFormula {
  const [first, ...rest] = parts;
  if (first) return rest.reduce((left, right) => ({ kind: "and", at: left.at, left, right }), first);
  const one: Term = { kind: "value", at: like.at, key: "1", type: "Long" };
  return { kind: "compare", at: like.at, op: "==", left: one, right: one };
}

function around(binders: readonly Exists[], moved: readonly PastFormula[], inner: PastFormula): PastFormula {
  const joined = moved.length === 0 ? inner : all([inner, ...moved], inner);
  return binders.reduceRight<PastFormula>((body, { binder, at }) => ({ kind: "exists", at, binder, body }), joined);
}

/** A comparison of values that do not change, or its negation. */
function isTimeless(formula: PastFormula): boolean {
  if (formula.kind === "not") return isTimeless(formula.body);
  return formula.kind === "compare" && aggregatesIn(formula.left).length + aggregatesIn(formula.right).length === 0;
}

/** What of the current call an event in the condition has to agree with. */
function namedByEvents(formula: PastFormula): Set<string> {
  if (formula.kind === "event") {
    return new Set(formula.fields.flatMap(({ value }) => (value.kind === "current" ? value.path : [])));
  }
  if (formula.kind === "not" || formula.kind === "compare") return new Set();
  const bodies = formula.kind === "since" ? [formula.right] : bodiesOf(formula);
  return new Set(bodies.flatMap((body) => [...namedByEvents(body)]));
}

type Names = ReadonlyMap<string, string>;

class Renaming {
  #count = 0;

  #fresh(name: string): string {
    return `${name}'${++this.#count}`;
  }

  formula(formula: PastFormula, names: Names): PastFormula {
    switch (formula.kind) {
      case "event": {
        const fields = formula.fields.map((field) => ({ ...field, value: this.#term(field.value, names) }));
        return { ...formula, fields };
      }
      case "timepoint":
        return { ...formula, name: names.get(formula.name) ?? formula.name };
      case "compare":
        return { ...formula, left: this.#term(formula.left, names), right: this.#term(formula.right, names) };
      case "exists": {
        const name = this.#fresh(formula.binder.name);
        const body = this.formula(formula.body, new Map([...names, [formula.binder.name, name]]));
        return { ...formula, binder: { ...formula.binder, name }, body };
      }
      case "and":
        return { ...formula, left: this.formula(formula.left, names), right: this.formula(formula.right, names) };
      case "since":
        return { ...formula, left: this.formula(formula.left, names), right: this.formula(formula.right, names) };
      case "not":
      case "formerly":
      case "previous":
        return { ...formula, body: this.formula(formula.body, names) };
      default:
        return formula;
    }
  }

  #term(term: Term, names: Names): Term {
    switch (term.kind) {
      case "variable":
        return { ...term, name: names.get(term.name) ?? term.name };
      case "set":
        return { ...term, items: term.items.map((item) => this.#term(item, names)) };
      case "arithmetic":
        return { ...term, left: this.#term(term.left, names), right: this.#term(term.right, names) };
      case "aggregate": {
        const inner = new Map(names);
        for (const { name } of term.over) inner.set(name, this.#fresh(name));
        const over = term.over.map((binder) => ({ ...binder, name: inner.get(binder.name) as string }));
        const sum = term.sum === undefined ? undefined : (inner.get(term.sum) ?? term.sum);
        return { ...term, sum, over, body: this.formula(term.body, inner) };
      }
      default:
        return term;
    }
  }
}
