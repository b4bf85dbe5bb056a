import { Budget, BudgetExceeded } from "../budget.js";
import { Languages } from "../regex/language.js";
import { canonical } from "./arrays.js";
import { BY_THE_BOOK, type CompileOptions, Compiler, type Reading } from "./compile.js";
import { type Dialect, dialectOf, isObject, type JsonSchema, SchemaDocument } from "./document.js";
import { ANYTHING, Formulas } from "./formula.js";
import { Solver } from "./solve.js";
import { Strings } from "./strings.js";

/** Compiles a schema into a predicate, in the schema's own dialect. It may throw: then nothing can be confirmed. */
export type Validator = (schema: JsonSchema) => (value: unknown) => boolean;

export type Inclusion =
  | { readonly answer: "yes" }
  /** `witness` is accepted by the left side and rejected by the right, and the validator said so. */
  | { readonly answer: "no"; readonly witness: unknown }
  | { readonly answer: "unknown"; readonly why: string };

export interface InclusionOptions {
  /** Without it no "no" can be given. */
  readonly validator?: Validator;
  /** The dialect of a schema that declares none. Default: 2020-12. */
  readonly dialect?: Dialect;
  /** Whether `format` may reject values ("opaque", the default) or is only an annotation ("ignore"). */
  readonly formats?: CompileOptions["formats"];
  /** Other documents that references may lead to, by their absolute address. */
  readonly documents?: Readonly<Record<string, JsonSchema>>;
  readonly limits?: Partial<InclusionLimits>;
}

export interface InclusionLimits {
  /** Steps of the search for a value. */
  readonly maxSteps: number;
  /** Different formulas built. */
  readonly maxFormulas: number;
  /** Steps for one question about patterns. */
  readonly maxAutomatonSteps: number;
  readonly maxDepth: number;
  /** Candidates shown to the validator. */
  readonly maxCandidates: number;
}

export const INCLUSION_LIMITS: InclusionLimits = {
  maxSteps: 200_000,
  maxFormulas: 200_000,
  maxAutomatonSteps: 20_000,
  maxDepth: 64,
  maxCandidates: 64,
};

/** Is every value that `left` accepts also accepted by `right`? */
export function includes(left: JsonSchema, right: JsonSchema, options: InclusionOptions = {}): Inclusion {
  const fallback = options.dialect ?? "2020-12";
  const dialects = [dialectOf(left, fallback), dialectOf(right, fallback)] as const;
  if (right === true || left === false) return { answer: "yes" };
  if (dialects[0] === undefined || dialects[1] === undefined) {
    const which = dialects[0] === undefined ? left : right;
    const declared = isObject(which) ? String(which.$schema) : "";
    return { answer: "unknown", why: `the dialect ${declared} is not one of draft-07 and 2020-12` };
  }
  if (dialects[0] === dialects[1] && canonical(left) === canonical(right)) return { answer: "yes" };
  return new Question(left, right, [dialects[0], dialects[1]], options).answer();
}

/** What the rules say under one reading. */
interface Opinion {
  readonly inclusion: Inclusion;
  /** A value satisfies every rule, but the validator says otherwise. */
  readonly contradicted: boolean;
  readonly consulted: ReadonlySet<keyof Reading>;
}

class Question {
  readonly #left: JsonSchema;
  readonly #right: JsonSchema;
  readonly #dialects: readonly [Dialect, Dialect];
  readonly #options: InclusionOptions;
  readonly #limits: InclusionLimits;
  readonly #accepts: readonly [Predicate, Predicate];

  constructor(left: JsonSchema, right: JsonSchema, dialects: readonly [Dialect, Dialect], options: InclusionOptions) {
    this.#left = left;
    this.#right = right;
    this.#dialects = dialects;
    this.#options = options;
    this.#limits = { ...INCLUSION_LIMITS, ...options.limits };
    this.#accepts = [predicate(options.validator, left), predicate(options.validator, right)];
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
    const [left, right] = this.#accepts;
    for (const value of values) {
      const [isLeft, isRight] = [left(value), right(value)];
      if (isLeft === undefined || isRight === undefined) return undefined;
      if (isLeft && !isRight) return { answer: "no", witness: value };
    }
    return { answer: "yes" };
  }

  #byReading(): Opinion[] {
    const byTheBook = this.#byFormula(BY_THE_BOOK);
    const others = [...byTheBook.consulted].reduce<Reading[]>(
      (readings, what) => [...readings, ...readings.map((reading) => ({ ...reading, [what]: !reading[what] }))],
      [BY_THE_BOOK],
    );
    return [byTheBook, ...others.slice(1).map((reading) => this.#byFormula(reading))];
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
    const documents = [
      new SchemaDocument(this.#left, this.#dialects[0]),
      new SchemaDocument(this.#right, this.#dialects[1]),
    ] as const;
    const others = Object.entries(this.#options.documents ?? {}).flatMap(([address, schema]) => {
      const dialect = dialectOf(schema, "2020-12");
      return dialect === undefined ? [] : [new SchemaDocument(schema, dialect, address)];
    });
    const formats = this.#options.formats ?? "opaque";
    const compiler = new Compiler(f, [...documents, ...others], { formats, reading }, budget);
    const question = [compiler.compile(documents[0]), f.not(compiler.compile(documents[1]))];
    const strings = new Strings(new Languages(), limits.maxAutomatonSteps, this.#formats());
    const solver = new Solver(f, strings, (to) => compiler.definition(to), budget, limits);
    let open: string | undefined;
    let witness: { readonly value: unknown } | undefined;
    let contradicted = false;
    let candidates = 0;
    solver.search(question, ANYTHING, (outcome) => {
      if (outcome.is === "none") return false;
      open ??= outcome.is === "unknown" ? UNDECIDED : UNCONFIRMED;
      if (outcome.is === "unknown") return false;
      const [isLeft, isRight] = this.#accepts.map((accepts) => accepts(outcome.value));
      if (isLeft === true && isRight === false) witness = { value: outcome.value };
      else if (outcome.sure && isLeft !== undefined && isRight !== undefined) contradicted = true;
      return witness !== undefined || ++candidates >= limits.maxCandidates;
    });
    const { consulted } = compiler;
    if (witness !== undefined) return { inclusion: { answer: "no", witness: witness.value }, contradicted, consulted };
    const inclusion: Inclusion = open === undefined ? { answer: "yes" } : { answer: "unknown", why: open };
    return { inclusion, contradicted, consulted };
  }

  /** What the validator says about a format: on one string, a format is no secret. */
  #formats(): (name: string, text: string) => boolean | undefined {
    const known = new Map<string, Predicate>();
    return (name, text) => {
      let check = known.get(name);
      if (check === undefined) {
        check = predicate(this.#options.validator, { type: "string", format: name });
        known.set(name, check);
      }
      return check(text);
    };
  }
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

type Predicate = (value: unknown) => boolean | undefined;

/** A validator's verdict, undefined when it has none. */
function predicate(validator: Validator | undefined, schema: JsonSchema): Predicate {
  if (validator === undefined) return () => undefined;
  let check: ((value: unknown) => boolean) | undefined;
  let broken = false;
  return (value) => {
    if (broken) return undefined;
    try {
      check ??= validator(schema);
      return check(value);
    } catch {
      // A schema that the validator refuses, or a recursion that it cannot end, confirms nothing.
      broken = true;
      return undefined;
    }
  };
}

/** All values that a schema could accept, when it lists them. */
function listedValues(schema: JsonSchema): readonly unknown[] | undefined {
  if (!isObject(schema)) return undefined;
  if ("$ref" in schema) return undefined;
  if ("const" in schema) return [schema.const];
  if (Array.isArray(schema.enum)) return schema.enum;
  if (!Array.isArray(schema.allOf)) return undefined;
  return schema.allOf.map((part) => listedValues(part)).find((values) => values !== undefined);
}
