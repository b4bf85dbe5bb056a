import { Budget, BudgetExceeded } from "../budget.js";
import { Languages } from "../regex/language.js";
import { BY_THE_BOOK, Compiler, type Reading } from "./compile.js";
import type { Dialect } from "../../schema/documents/index.js";
import { dialectOf, type JsonSchema, SchemaDocument } from "./document.js";
import { ANYTHING, type Formula, Formulas } from "./formula.js";
import type { Inclusion, InclusionLimits, InclusionOptions } from "./includes.js";
import { Solver } from "./solve.js";
import { Strings } from "./strings.js";
import { listedValues, schemasOf, type ValueType } from "./type.js";
import { InclusionResults } from "./verdicts.js";

/** What the rules say under one reading. */
interface Opinion {
  readonly inclusion: Inclusion;
  /** A value satisfies every rule, but the validator says otherwise. */
  readonly contradicted: boolean;
  readonly consulted: ReadonlySet<keyof Reading>;
}

const DISAGREE: Inclusion = {
  answer: "unknown",
  why: "the rules and the validator disagree about a value that the left side lists",
};
const READ_DIFFERENTLY: Inclusion = {
  answer: "unknown",
  why: "the schemas use a keyword that validators read differently, and the answer depends on it",
};
const UNDECIDED = "a part of the schemas is beyond the rules and no example was found";
const UNCONFIRMED = "an example suggests no, but the validator did not confirm it";

/** One question of inclusion: is there a value of the left type that the right type rejects? */
export class InclusionQuestion {
  readonly #left: ValueType;
  readonly #right: ValueType;
  readonly #options: InclusionOptions & { readonly dialect: Dialect };
  readonly #limits: InclusionLimits;
  readonly #verdicts: InclusionResults;

  constructor(
    left: ValueType,
    right: ValueType,
    options: InclusionOptions & { readonly dialect: Dialect },
    limits: InclusionLimits,
  ) {
    this.#left = left;
    this.#right = right;
    this.#options = options;
    this.#limits = limits;
    this.#verdicts = new InclusionResults(options.validator, [...schemasOf(left), ...schemasOf(right)]);
  }

  /**
   * The answer under every reading that validators have of these schemas; where the left side lists its values, with
   * the validator as a second opinion. Validators have faults too: if opinions differ, nobody knows.
   */
  answer(): Inclusion {
    const opinions = this.#byReading();
    const listed = this.#byEnumeration();
    const proved = opinions.filter(({ inclusion }) => inclusion.answer === "yes");
    const refuted = opinions.find(({ inclusion }) => inclusion.answer === "no");
    if (proved.length === opinions.length) return listed?.answer === "no" ? DISAGREE : { answer: "yes" };
    if (proved.length > 0) return READ_DIFFERENTLY;
    if (listed?.answer === "yes") return opinions.some(({ contradicted }) => contradicted) ? DISAGREE : listed;
    return listed ?? refuted?.inclusion ?? (opinions[0] as Opinion).inclusion;
  }

  /** A left side that lists its values is decided by asking about each. */
  #byEnumeration(): Inclusion | undefined {
    const values = listedValues(this.#left);
    if (values === undefined) return undefined;
    for (const value of values) {
      const [isLeft, isRight] = this.#ask(value);
      if (isLeft === undefined || isRight === undefined) return undefined;
      if (isLeft && !isRight) return { answer: "no", witness: value };
    }
    return { answer: "yes" };
  }

  #ask(value: unknown): [boolean | undefined, boolean | undefined] {
    return [this.#verdicts.of(this.#left, value), this.#verdicts.of(this.#right, value)];
  }

  #byReading(): Opinion[] {
    const byTheBook = this.#byFormula(BY_THE_BOOK);
    const readings = [...byTheBook.consulted].reduce<Reading[]>(
      (sofar, what) => [...sofar, ...sofar.map((reading) => ({ ...reading, [what]: !reading[what] }))],
      [BY_THE_BOOK],
    );
    return [byTheBook, ...readings.slice(1).map((reading) => this.#byFormula(reading))];
  }

  #byFormula(reading: Reading): Opinion {
    try {
      return this.#search(reading);
    } catch (error) {
      if (!(error instanceof BudgetExceeded || error instanceof RangeError)) throw error;
      // A schema too large or too deep is not understood: neither yes nor no.
      return { inclusion: { answer: "unknown", why: error.message }, contradicted: false, consulted: new Set() };
    }
  }

  #search(reading: Reading): Opinion {
    const limits = this.#limits;
    const f = new Formulas(new Budget("formulas", limits.maxFormulas));
    const budget = new Budget("search steps", limits.maxSteps);
    const documents = this.#documents();
    const all = [...documents.values(), ...this.#others()];
    const ignoresFormat = (name: string) => this.#options.formats === "ignore" || this.#verdicts.ignoresFormat(name);
    const compiler = new Compiler(f, all, { ignoresFormat, reading }, budget);
    const formula = (type: ValueType): Formula => {
      if (type.is === "schema") return compiler.compile(documents.get(type.schema) as SchemaDocument);
      return type.is === "all" ? f.and(...type.of.map(formula)) : f.or(...type.of.map(formula));
    };
    const question = [formula(this.#left), f.not(formula(this.#right))];
    const isFormat = (name: string, text: string) => this.#verdicts.isFormat(name, text);
    const strings = new Strings(new Languages(), limits.maxAutomatonSteps, isFormat);
    const solver = new Solver(f, strings, (to) => compiler.definition(to), budget, limits);

    let open: string | undefined;
    let witness: { readonly value: unknown } | undefined;
    let contradicted = false;
    let candidates = 0;
    solver.search(question, ANYTHING, (outcome) => {
      if (outcome.is === "none") return false;
      open ??= outcome.is === "unknown" ? UNDECIDED : UNCONFIRMED;
      if (outcome.is === "unknown") return false;
      const [isLeft, isRight] = this.#ask(outcome.value);
      if (isLeft === true && isRight === false) witness = { value: outcome.value };
      else if (outcome.sure && isLeft !== undefined && isRight !== undefined) contradicted = true;
      return witness !== undefined || ++candidates >= limits.maxCandidates;
    });
    const { consulted } = compiler;
    if (witness !== undefined) return { inclusion: { answer: "no", witness: witness.value }, contradicted, consulted };
    const inclusion: Inclusion = open === undefined ? { answer: "yes" } : { answer: "unknown", why: open };
    return { inclusion, contradicted, consulted };
  }

  #documents(): Map<JsonSchema, SchemaDocument> {
    const documents = new Map<JsonSchema, SchemaDocument>();
    for (const schema of [...schemasOf(this.#left), ...schemasOf(this.#right)]) {
      const dialect = dialectOf(schema, this.#options.dialect) ?? this.#options.dialect;
      if (!documents.has(schema)) documents.set(schema, new SchemaDocument(schema, dialect));
    }
    return documents;
  }

  #others(): SchemaDocument[] {
    return Object.entries(this.#options.documents ?? {}).flatMap(([address, schema]) => {
      const dialect = dialectOf(schema, "2020-12");
      return dialect === undefined ? [] : [new SchemaDocument(schema, dialect, address)];
    });
  }
}
