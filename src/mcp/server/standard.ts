// Schemas of other libraries, by the Standard Schema and Standard JSON Schema interfaces alone. The JSON Schema is
// what callers see and what decides; the library's own check runs after it, for refinements JSON Schema cannot say.

import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";
import { DefinitionError, equalityKey, escapePointer, Schema } from "../../schema/index.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../index.js";
import { examples } from "./examples.js";
import type { Problem } from "./types.js";

export type { StandardJSONSchemaV1, StandardSchemaV1 };

type Described = StandardSchemaV1["~standard"] & Partial<StandardJSONSchemaV1["~standard"]>;

export function isStandardSchema(value: unknown): value is StandardSchemaV1 {
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return false;
  const standard = (value as { "~standard"?: { validate?: unknown } })["~standard"];
  return typeof standard?.validate === "function";
}

/** Gives a library's schema the JSON Schema it cannot write itself. */
export function withJsonSchema<S extends StandardSchemaV1>(schema: S, json: JsonObject): S & StandardJSONSchemaV1 {
  const convert = () => structuredClone(json);
  const standard = { ...schema["~standard"], jsonSchema: { input: convert, output: convert } };
  return { "~standard": standard } as unknown as S & StandardJSONSchemaV1;
}

/** The JSON Schema of what callers send. Throws when there is none, or when the schema would change what they sent. */
export function jsonSchemaOf(schema: StandardSchemaV1, label: string): JsonObject {
  const standard: Described = schema["~standard"];
  const converter = standard.jsonSchema;
  if (converter === undefined) {
    const remedy = standard.vendor === "valibot" ? "`toStandardJsonSchema` of `@valibot/to-json-schema`, or with " : "";
    throw new DefinitionError(
      `${label}: the ${standard.vendor} schema offers no JSON Schema; wrap it with ${remedy}\`withJsonSchema(schema, { … })\``,
    );
  }
  const input = convert(converter.input, label, standard.vendor);
  refuseTransforms(standard, input, label);
  return input;
}

function convert(converter: StandardJSONSchemaV1.Converter["input"], label: string, vendor: string): JsonObject {
  let failure: unknown;
  for (const target of ["draft-2020-12", "draft-07"]) {
    try {
      return JSON.parse(JSON.stringify(converter({ target }))) as JsonObject;
    } catch (error) {
      failure ??= error;
    }
  }
  throw new DefinitionError(`${label}: the ${vendor} schema cannot be written as JSON Schema: ${reason(failure)}`, {
    cause: failure,
  });
}

/** The library's own verdict on arguments that fit the JSON Schema. */
export function standardProblems(schema: StandardSchemaV1, value: JsonValue): Problem[] | Promise<Problem[]> {
  const result = schema["~standard"].validate(value);
  return result instanceof Promise ? result.then(problemsOf) : problemsOf(result);
}

function problemsOf(result: StandardSchemaV1.Result<unknown>): Problem[] {
  return (result.issues ?? []).map(({ message, path = [] }) => ({
    path: path
      .map((segment) => (typeof segment === "object" ? segment.key : segment))
      .map((key) => `/${escapePointer(String(key))}`)
      .join(""),
    message,
  }));
}

/**
 * What was decided and recorded is what the caller sent, so a schema that turns it into something else cannot be
 * used. Found where the two JSON Schemas differ, or where an example comes back changed. A missing default that the
 * library would fill in, or an unknown key that it would drop, is not a change: the handler gets what was sent.
 */
function refuseTransforms(standard: Described, input: JsonObject, label: string): void {
  const refuse = (why: string) =>
    new DefinitionError(
      `${label}: the ${standard.vendor} schema changes its input (${why}); handlers get exactly what the caller sent, so move the transformation into the handler`,
    );
  let output: JsonObject | undefined;
  try {
    output = standard.jsonSchema?.output({ target: "draft-2020-12" }) as JsonObject | undefined;
  } catch (error) {
    throw refuse(reason(error));
  }
  if (output !== undefined && shape(input) !== shape(output)) throw refuse("input and output have different types");
  const compiled = new Schema(input);
  for (const example of examples(compiled, 3)) {
    for (const candidate of [example, disturbed(example)]) {
      if (compiled.validateNow(candidate)?.ok !== true) continue;
      const result = attempt(standard, candidate);
      if (result !== undefined && changed(candidate, result.value as JsonValue)) {
        throw refuse("an example came back changed");
      }
    }
  }
}

function attempt(standard: Described, value: JsonValue): { value: unknown } | undefined {
  try {
    const result = standard.validate(structuredClone(value));
    if (result instanceof Promise) {
      // An asynchronous check cannot be awaited while defining; whatever it says is said again at the first call.
      result.catch(() => {});
      return undefined;
    }
    return result.issues === undefined ? result : undefined;
  } catch {
    return undefined;
  }
}

/** The same value with strings that trimming or changing case would show up on. */
function disturbed(value: JsonValue): JsonValue {
  if (typeof value === "string") return ` Aa${value}`;
  if (Array.isArray(value)) return value.map(disturbed);
  if (isJsonObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, disturbed(item)]));
  return value;
}

function changed(sent: JsonValue, got: JsonValue): boolean {
  if (isJsonObject(sent)) {
    if (!isJsonObject(got)) return true;
    return Object.keys(sent).some(
      (key) => Object.hasOwn(got, key) && changed(sent[key] as JsonValue, got[key] as JsonValue),
    );
  }
  if (Array.isArray(sent)) {
    return (
      !Array.isArray(got) ||
      sent.length !== got.length ||
      sent.some((item, index) => changed(item, got[index] as JsonValue))
    );
  }
  return sent !== got;
}

/** A schema without what filling defaults and dropping unknown keys alone would alter. */
function shape(schema: JsonValue): string {
  const kept = JSON.stringify(schema, (key, value: JsonValue) => {
    if (key === "default" || key === "required") return undefined;
    if (key === "additionalProperties" && (value === false || equalityKey(value) === "{}")) return undefined;
    return value;
  });
  return equalityKey(JSON.parse(kept) as JsonValue);
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
