import type { Dialect } from "../../schema/documents/index.js";
import { dialectOf, isObject, type JsonSchema } from "./document.js";
import { InclusionQuestion } from "./question.js";
import { NO_VALUE, schemasOf, typeKey, typeOf, type ValueType } from "./type.js";

/** Compiles a schema into a predicate, in the schema's own dialect. It may throw: then nothing can be confirmed. */
export type InclusionValidator = (schema: JsonSchema) => (value: unknown) => boolean;

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
