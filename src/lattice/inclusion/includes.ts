import type { Dialect } from "../../schema/documents/index.js";
import { Budget, BudgetExceeded } from "../errors.js";
import { Languages } from "../regex/language.js";
import { BY_THE_BOOK, Compiler, type Reading } from "./compile.js";
import { dialectOf, InclusionDocument, isObject, type SchemaValue } from "./document.js";
import { ANYTHING, type Formula, Formulas } from "./formula.js";
import { Solver } from "./solve.js";
import { FORMAT_REFUSED, isKnownFormat, Strings } from "./strings.js";
import { acceptsValue, listedValues, NO_VALUE, schemasOf, typeKey, typeOf, type ValueType } from "./type.js";

/** Compiles a schema into a predicate, in the schema's own dialect. It may throw: then nothing can be confirmed. */
export type InclusionValidator = (schema: SchemaValue) => (value: unknown) => boolean;

export type Inclusion =
  | { readonly answer: "yes" }
  /** `witness` is accepted by the left side and rejected by the right, and the validator said so. */
  | { readonly answer: "no"; readonly witness: unknown }
  | { readonly answer: "unknown"; readonly why: string };

export interface InclusionOptions {
  /** Without it no "no" can be given. */
  readonly validator?: InclusionValidator;
  /** The dialect of a schema that declares none. Default: 2020-12. */
  readonly dialect?: Dialect;
  /**
   * Whether `format` is only an annotation ("ignore") or may reject values ("opaque", the default): then it is one for
   * those formats alone that the validator lets anything pass for.
   */
  readonly formats?: "opaque" | "ignore";
  /** Other documents that references may lead to, by their absolute address. */
  readonly documents?: Readonly<Record<string, SchemaValue>>;
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
export function includes(left: SchemaValue, right: SchemaValue, options: InclusionOptions = {}): Inclusion {
  return includesType(typeOf(left), typeOf(right), options);
}

/** The same for intersections and unions of schemas, each part read in its own dialect. */
export function includesType(left: ValueType, right: ValueType, options: InclusionOptions = {}): Inclusion {
  const fallback = options.dialect ?? "2020-12";
  const schemas = [...schemasOf(left), ...schemasOf(right)];
  const foreign = schemas.find((schema) => dialectOf(schema, fallback) === undefined);
  if (isObject(foreign)) {
    return { answer: "unknown", why: `the dialect ${String(foreign.$schema)} is not one of draft-07 and 2020-12` };
  }
  if (typeKey(left) === typeKey(right)) return { answer: "yes" };
  return new InclusionQuestion(
    left,
    right,
    { ...options, dialect: fallback },
    { ...INCLUSION_LIMITS, ...options.limits },
  ).answer();
}

/** A value of the type, that none exists, or that it cannot be told. */
export function isEmpty(type: ValueType, options: InclusionOptions = {}): Inclusion {
  return includesType(type, NO_VALUE, options);
}

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
class InclusionQuestion {
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
   * the validator as a second opinion. Validators have faults too: if the answers differ, the result is `unknown`.
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
      if (type.is === "schema") return compiler.compile(documents.get(type.schema) as InclusionDocument);
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

  #documents(): Map<SchemaValue, InclusionDocument> {
    const documents = new Map<SchemaValue, InclusionDocument>();
    for (const schema of [...schemasOf(this.#left), ...schemasOf(this.#right)]) {
      const dialect = dialectOf(schema, this.#options.dialect) ?? this.#options.dialect;
      if (!documents.has(schema)) documents.set(schema, new InclusionDocument(schema, dialect));
    }
    return documents;
  }

  #others(): InclusionDocument[] {
    return Object.entries(this.#options.documents ?? {}).flatMap(([address, schema]) => {
      const dialect = dialectOf(schema, "2020-12");
      return dialect === undefined ? [] : [new InclusionDocument(schema, dialect, address)];
    });
  }
}

/** What the validator says, undefined when it has no verdict. */
class InclusionResults {
  readonly #validator: InclusionValidator | undefined;
  readonly #checks = new Map<SchemaValue, ((value: unknown) => boolean) | undefined>();
  /** A validator may take formats seriously in one dialect and not in another, so each one in use is asked. */
  readonly #dialects: readonly object[];
  readonly #formats = new Map<string, readonly SchemaValue[]>();
  readonly #ignored = new Map<string, boolean>();

  constructor(validator: InclusionValidator | undefined, schemas: readonly SchemaValue[]) {
    this.#validator = validator;
    const declared = new Set(schemas.map((schema) => (isObject(schema) ? schema.$schema : undefined)));
    this.#dialects = [...declared].map(($schema) => ($schema === undefined ? {} : { $schema }));
  }

  of(type: ValueType, value: unknown): boolean | undefined {
    return acceptsValue(type, value, (schema, v) => this.#check(schema, v));
  }

  /** On one string, a format can be decided by running its validator. */
  isFormat(name: string, text: string): boolean | undefined {
    let schemas = this.#formats.get(name);
    if (schemas === undefined) {
      schemas = this.#dialects.map((dialect) => ({ ...dialect, type: "string", format: name }));
      this.#formats.set(name, schemas);
    }
    const [first, ...others] = schemas.map((schema) => this.#check(schema, text));
    return others.every((verdict) => verdict === first) ? first : undefined;
  }

  /** Whether the validator lets pass, for a format of known meaning, what no reading of it lets pass. */
  ignoresFormat(name: string): boolean {
    let ignored = this.#ignored.get(name);
    if (ignored === undefined) {
      ignored = isKnownFormat(name) && FORMAT_REFUSED.every((text) => this.isFormat(name, text) === true);
      this.#ignored.set(name, ignored);
    }
    return ignored;
  }

  #check(schema: SchemaValue, value: unknown): boolean | undefined {
    if (typeof schema === "boolean") return schema;
    if (this.#validator === undefined) return undefined;
    try {
      if (!this.#checks.has(schema)) this.#checks.set(schema, this.#validator(schema));
      return this.#checks.get(schema)?.(value);
    } catch {
      // A schema that the validator refuses, or a recursion that it cannot end, confirms nothing.
      this.#checks.set(schema, undefined);
      return undefined;
    }
  }
}
