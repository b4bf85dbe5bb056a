// Macros: named conditions and values. A call is replaced by the body with the arguments in it, before anything is checked,
// so that what is checked is what runs.

import {
  type Aggregate,
  type Binder,
  type EventField,
  FormulaError,
  type MacroArgument,
  type PastFormula,
  type Term,
  type Window,
} from "./formula.js";

export interface Macro {
  readonly name: string;
  readonly at: number;
  /** With their leading `?`. */
  readonly parameters: readonly string[];
  readonly body: MacroArgument;
}

const MAX_DEPTH = 32;
const MAX_CALLS = 10_000;

/** The formula without calls. Throws FormulaError. */
export function expandMacros(formula: PastFormula, macros: ReadonlyMap<string, Macro>): PastFormula {
  return new Expansion(macros).formula(formula, { args: new Map(), fresh: "", depth: 0 });
}

interface Frame {
  readonly args: ReadonlyMap<string, MacroArgument>;
  /** Appended to the macro's own variables, so that no two calls share one. */
  readonly fresh: string;
  readonly depth: number;
}

class Expansion {
  readonly #macros: ReadonlyMap<string, Macro>;
  #calls = 0;

  constructor(macros: ReadonlyMap<string, Macro>) {
    this.#macros = macros;
  }

  formula(formula: PastFormula, frame: Frame): PastFormula {
    const { at } = formula;
    switch (formula.kind) {
      case "event":
        return { ...formula, fields: this.#fields(formula.fields, frame) };
      case "and":
        return { ...formula, left: this.formula(formula.left, frame), right: this.formula(formula.right, frame) };
      case "not":
        return { ...formula, body: this.formula(formula.body, frame) };
      case "formerly":
      case "previous":
        return { ...formula, within: this.#window(formula.within, at, frame), body: this.formula(formula.body, frame) };
      case "since": {
        const [left, right] = [this.formula(formula.left, frame), this.formula(formula.right, frame)];
        return { ...formula, left, within: this.#window(formula.within, at, frame), right };
      }
      case "exists":
        return { ...formula, binder: this.#binder(formula.binder, frame), body: this.formula(formula.body, frame) };
      case "compare":
        return { ...formula, left: this.#term(formula.left, frame), right: this.#term(formula.right, frame) };
      case "timepoint":
        return { ...formula, name: this.#slot(formula.name, at, frame) };
      case "call": {
        const made = this.#call(formula, frame);
        if (made.kind === "formula") return made.formula;
        throw new FormulaError(`\`${formula.name}\` is a value, not a condition`, at, "compare it with something");
      }
      case "parameter": {
        const given = this.#argument(formula.name, at, frame);
        if (given.kind === "formula") return given.formula;
        throw new FormulaError(`\`${formula.name}\` is used as a condition, and the argument is not one`, at);
      }
      case "refine":
        return this.#refined(this.formula(formula.body, frame), this.#fields(formula.fields, frame), at);
    }
  }

  #refined(base: PastFormula, fields: readonly EventField[], at: number): PastFormula {
    if (base.kind === "event") return { ...base, fields: [...base.fields, ...fields] };
    throw new FormulaError("only an event can be given more fields", at);
  }

  #fields(fields: readonly EventField[], frame: Frame): EventField[] {
    return fields.map((field) => ({ ...field, value: this.#term(field.value, frame) }));
  }

  #term(term: Term, frame: Frame): Term {
    switch (term.kind) {
      case "variable":
        return this.#variable(term, frame);
      case "set":
        return { ...term, items: term.items.map((item) => this.#term(item, frame)) };
      case "arithmetic":
        return { ...term, left: this.#term(term.left, frame), right: this.#term(term.right, frame) };
      case "aggregate":
        return this.#aggregate(term, frame);
      case "call": {
        const made = this.#call(term, frame);
        if (made.kind === "term") return made.term;
        throw new FormulaError(`\`${term.name}\` is a condition, not a value`, term.at);
      }
      default:
        return term;
    }
  }

  #variable(term: Term & { kind: "variable" }, frame: Frame): Term {
    if (term.name.startsWith("$")) return { ...term, name: this.#slot(term.name, term.at, frame) };
    if (!term.name.startsWith("?")) return term;
    const given = this.#argument(term.name, term.at, frame);
    if (given.kind === "term") return given.term;
    throw new FormulaError(`\`${term.name}\` is used as a value, and the argument is not one`, term.at);
  }

  #aggregate(term: Aggregate, frame: Frame): Term {
    return {
      ...term,
      sum: term.sum === undefined ? undefined : this.#slot(term.sum, term.at, frame),
      over: term.over.map((binder) => this.#binder(binder, frame)),
      body: this.formula(term.body, frame),
    };
  }

  #binder(binder: Binder, frame: Frame): Binder {
    return { ...binder, name: this.#slot(binder.name, binder.at, frame) };
  }

  /** A place where a variable is introduced: its argument must be a variable too. */
  #slot(name: string, at: number, frame: Frame): string {
    if (name.startsWith("$")) {
      if (frame.depth === 0) throw new FormulaError(`\`${name}\` is only for macros`, at, "write a plain name");
      return `${name}${frame.fresh}`;
    }
    if (!name.startsWith("?")) return name;
    const given = this.#argument(name, at, frame);
    if (given.kind === "term" && given.term.kind === "variable") return given.term.name;
    throw new FormulaError(`\`${name}\` has to be a variable here`, at);
  }

  #window(window: Window, at: number, frame: Frame): Window {
    if ("ms" in window) return window;
    const given = this.#argument(window.parameter, at, frame);
    if (given.kind === "window") return given.window;
    throw new FormulaError(`\`${window.parameter}\` has to be a window here, such as 1h`, at);
  }

  #argument(name: string, at: number, frame: Frame): MacroArgument {
    const given = frame.args.get(name);
    if (given) return given;
    throw new FormulaError(`there is no parameter \`${name}\``, at, frame.depth === 0 ? "it is only for macros" : "");
  }

  #call(call: { name: string; args: readonly MacroArgument[]; at: number }, frame: Frame): MacroArgument {
    const macro = this.#macros.get(call.name);
    if (!macro) throw new FormulaError(`there is no macro \`${call.name}\``, call.at);
    const { parameters, body } = macro;
    if (parameters.length !== call.args.length) {
      throw new FormulaError(
        `\`${call.name}\` takes ${parameters.length} arguments, and ${call.args.length} are given`,
        call.at,
      );
    }
    if (frame.depth >= MAX_DEPTH) throw new FormulaError(`\`${call.name}\` calls itself, or too deep`, call.at);
    if (++this.#calls > MAX_CALLS) throw new FormulaError("macros expand to too many conditions", call.at);
    const args = new Map(
      parameters.map((name, index) => [name, this.#given(call.args[index] as MacroArgument, frame)]),
    );
    const inner: Frame = { args, fresh: `#${this.#calls}`, depth: frame.depth + 1 };
    if (body.kind === "formula") return { kind: "formula", formula: this.formula(body.formula, inner) };
    if (body.kind === "term") return this.#value(body.term, inner);
    return body;
  }

  /** A macro that only calls another is a condition where that one is. */
  #value(term: Term, frame: Frame): MacroArgument {
    if (term.kind === "call") return this.#call(term, frame);
    if (term.kind === "variable" && term.name.startsWith("?")) return this.#argument(term.name, term.at, frame);
    return { kind: "term", term: this.#term(term, frame) };
  }

  #given(argument: MacroArgument, frame: Frame): MacroArgument {
    switch (argument.kind) {
      case "window":
        return { kind: "window", window: this.#window(argument.window, 0, frame) };
      case "formula":
        if (argument.formula.kind === "call") return this.#call(argument.formula, frame);
        return { kind: "formula", formula: this.formula(argument.formula, frame) };
      case "term":
        return this.#value(argument.term, frame);
    }
  }
}
