// Signatures: typed input and output fields with constraints. They are a shorter way to write the JSON Schema of a
// tool and mean nothing else. A default is documented for the caller and never filled in.

import { DefinitionError, Schema } from "../../schema/index.js";
import type { JsonObject, JsonValue } from "../index.js";
import type { ToolDefinition } from "./types.js";

export interface Field<T = unknown, Required extends boolean = boolean> {
  readonly schema: JsonObject;
  readonly required: Required;
  readonly "~type"?: T;
}

export type Fields = Readonly<Record<string, Field>>;

interface Common<T> {
  description?: string;
  /** Fields are required unless they have a default or say otherwise. */
  required?: boolean;
  /** Documented, never filled in. */
  default?: T;
  examples?: readonly T[];
}
interface StringField extends Common<string> {
  minLength?: number;
  maxLength?: number;
  pattern?: string | RegExp;
  enum?: readonly string[];
  format?: string;
}
interface NumberField extends Common<number> {
  minValue?: number;
  maxValue?: number;
  enum?: readonly number[];
  multipleOf?: number;
}
interface ListField extends Common<readonly JsonValue[]> {
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
}

type IsRequired<O> = O extends { required: infer R extends boolean }
  ? R
  : O extends { default: unknown }
    ? false
    : true;
type EnumOr<O, T> = O extends { enum: readonly (infer E)[] } ? E : T;

/** The kinds of field. Options map to JSON Schema: `minValue` → `minimum`, `maxValue` → `maximum`, the rest by name. */
export const field = {
  string: <const O extends StringField>(options?: O) =>
    make<EnumOr<O, string>, IsRequired<O>>({ type: "string" }, options),
  integer: <const O extends NumberField>(options?: O) =>
    make<EnumOr<O, number>, IsRequired<O>>({ type: "integer" }, options),
  float: <const O extends NumberField>(options?: O) =>
    make<EnumOr<O, number>, IsRequired<O>>({ type: "number" }, options),
  boolean: <const O extends Common<boolean>>(options?: O) => make<boolean, IsRequired<O>>({ type: "boolean" }, options),
  list: <T, const O extends ListField>(item: Field<T>, options?: O) =>
    make<T[], IsRequired<O>>({ type: "array", items: item.schema }, options),
  object: <F extends Fields, const O extends Common<JsonObject>>(fields: F, options?: O) =>
    make<FieldsType<F>, IsRequired<O>>(objectSchema(fields), options),
};

export type FieldsType<F extends Fields> = Flat<
  { -readonly [K in keyof F as F[K] extends Field<unknown, true> ? K : never]: TypeOf<F[K]> } & {
    -readonly [K in keyof F as F[K] extends Field<unknown, true> ? never : K]?: TypeOf<F[K]>;
  }
>;
type TypeOf<F> = F extends Field<infer T> ? T : never;

export interface Signature<I extends Fields = Fields, O extends Fields | undefined = Fields | undefined> {
  readonly kind: "signature";
  readonly name: string;
  readonly description: string;
  readonly inputs: I;
  readonly outputs: O;
  readonly inputSchema: JsonObject;
  readonly outputSchema: JsonObject | undefined;
}

export function signature<const I extends Fields, const O extends Fields | undefined = undefined>(spec: {
  name: string;
  description: string;
  inputs: I;
  outputs?: O;
}): Signature<I, O> {
  const { name, description, inputs, outputs } = spec;
  checkFields(name, inputs);
  if (outputs !== undefined) checkFields(name, outputs);
  return Object.freeze({
    kind: "signature",
    name,
    description,
    inputs,
    outputs: outputs as O,
    inputSchema: objectSchema(inputs),
    outputSchema: outputs === undefined ? undefined : objectSchema(outputs),
  });
}

/** The wire form of a signature. */
export function signatureDefinition(of: Signature): ToolDefinition {
  const { name, description, inputSchema, outputSchema } = of;
  return { name, description, inputSchema, ...(outputSchema === undefined ? {} : { outputSchema }) };
}

export function isSignature(value: unknown): value is Signature {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "signature";
}

const RENAMED: Readonly<Record<string, string>> = { minValue: "minimum", maxValue: "maximum" };

function make<T, R extends boolean>(type: JsonObject, options: object = {}): Field<T, R> {
  const schema: JsonObject = { ...type };
  for (const [key, value] of Object.entries(options)) {
    if (key === "required" || value === undefined) continue;
    schema[RENAMED[key] ?? key] = value instanceof RegExp ? sourceOf(value) : (value as JsonValue);
  }
  const { required = !("default" in options) } = options as { required?: boolean };
  return { schema, required: required as R };
}

/** JSON Schema has patterns and no flags. Those that say only how to search are nothing to it; the others mean more. */
function sourceOf(pattern: RegExp): string {
  const lost = pattern.flags.replace(/[dgu]/g, "");
  if (lost === "") return pattern.source;
  throw new DefinitionError(
    `pattern ${pattern}: a JSON Schema has no flag \`${lost}\`; write it without, [a-zA-Z] in place of /[a-z]/i`,
  );
}

function objectSchema(fields: Fields): JsonObject {
  const entries = Object.entries(fields);
  return {
    type: "object",
    properties: Object.fromEntries(entries.map(([name, { schema }]) => [name, schema])),
    required: entries.filter(([, { required }]) => required).map(([name]) => name),
  };
}

/** Constraints that contradict each other are found now, not by the first caller. */
function checkFields(name: string, fields: Fields): void {
  for (const [key, { schema }] of Object.entries(fields)) {
    const where = `signature \`${name}\`, field \`${key}\``;
    for (const [low, high] of [
      ["minLength", "maxLength"],
      ["minimum", "maximum"],
      ["minItems", "maxItems"],
    ] as const) {
      const [min, max] = [schema[low], schema[high]];
      if (typeof min === "number" && typeof max === "number" && min > max) {
        throw new DefinitionError(`${where}: ${low} ${min} is greater than ${high} ${max}`);
      }
    }
    let compiled: Schema;
    try {
      compiled = new Schema(schema);
    } catch (error) {
      throw new DefinitionError(`${where}: ${(error as Error).message}`, { cause: error });
    }
    const shown = [
      ...(schema.default === undefined ? [] : [schema.default]),
      ...((schema.examples as JsonValue[]) ?? []),
    ];
    for (const value of shown) {
      const verdict = compiled.validateNow(value);
      if (verdict?.ok === false) {
        const [problem] = verdict.problems;
        throw new DefinitionError(`${where}: the default or example ${JSON.stringify(value)} ${problem?.message}`);
      }
    }
  }
}

export type FromSchema<S, Root = S> = S extends boolean
  ? S extends false
    ? never
    : JsonValue
  : S extends { readonly $ref: infer R extends string }
    ? FromSchema<Target<Root, R>, Root>
    : S extends { readonly const: infer C }
      ? C
      : S extends { readonly enum: readonly (infer E)[] }
        ? E
        : S extends { readonly anyOf: infer B extends readonly unknown[] }
          ? OneOf<B, Root> & Beside<S, "anyOf", Root>
          : S extends { readonly oneOf: infer B extends readonly unknown[] }
            ? OneOf<B, Root> & Beside<S, "oneOf", Root>
            : S extends { readonly allOf: infer B extends readonly unknown[] }
              ? AllOf<B, Root> & Beside<S, "allOf", Root>
              : S extends { readonly type: infer T }
                ? T extends readonly (infer Each)[]
                  ? OfType<Each, S, Root>
                  : OfType<T, S, Root>
                : S extends { readonly properties: object }
                  ? ObjectOf<S, Root>
                  : JsonValue;

type OfType<T, S, Root> = T extends "string"
  ? string
  : T extends "number" | "integer"
    ? number
    : T extends "boolean"
      ? boolean
      : T extends "null"
        ? null
        : T extends "array"
          ? ArrayOf<S, Root>
          : T extends "object"
            ? ObjectOf<S, Root>
            : JsonValue;

type ArrayOf<S, Root> = S extends { readonly prefixItems: infer P extends readonly unknown[] }
  ? [...Each<P, Root>, ...(S extends { readonly items: false } ? [] : Rest<S, Root>[])]
  : S extends { readonly items: infer P extends readonly unknown[] }
    ? [...Each<P, Root>, ...JsonValue[]]
    : Rest<S, Root>[];

type Rest<S, Root> = S extends { readonly items: infer I } ? FromSchema<I, Root> : JsonValue;

type Each<P extends readonly unknown[], Root> = { -readonly [K in keyof P]: FromSchema<P[K], Root> };

type ObjectOf<S, Root> = S extends { readonly properties: infer P }
  ? Flat<
      { -readonly [K in keyof P as K extends RequiredName<S> ? K : never]: FromSchema<P[K], Root> } & {
        -readonly [K in keyof P as K extends RequiredName<S> ? never : K]?: FromSchema<P[K], Root>;
      }
    >
  : S extends { readonly additionalProperties: infer A }
    ? { [name: string]: A extends boolean ? JsonValue : FromSchema<A, Root> }
    : JsonObject;

type RequiredName<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;

type OneOf<B extends readonly unknown[], Root> = B[number] extends infer Branch
  ? Branch extends unknown
    ? FromSchema<Branch, Root>
    : never
  : never;

type AllOf<B extends readonly unknown[], Root> = B extends readonly [infer First, ...infer Others]
  ? FromSchema<First, Root> & AllOf<Others, Root>
  : unknown;

/** What stands beside a combination narrows it, if it says anything about the shape. */
type Beside<S, K extends string, Root> = S extends { readonly type: unknown } | { readonly properties: unknown }
  ? FromSchema<Omit<S, K>, Root>
  : unknown;

type Target<Root, R extends string> = R extends "#"
  ? Root
  : R extends `#/$defs/${infer Name}`
    ? Root extends { readonly $defs: infer D }
      ? Member<D, Name>
      : true
    : R extends `#/definitions/${infer Name}`
      ? Root extends { readonly definitions: infer D }
        ? Member<D, Name>
        : true
      : true;

type Member<D, Name extends string> = Name extends keyof D ? D[Name] : true;

/** Shows a computed object type as if it had been written down. */
type Flat<T> = { [K in keyof T]: T[K] } & {};
