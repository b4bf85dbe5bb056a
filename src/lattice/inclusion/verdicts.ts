import { isObject, type JsonSchema } from "./document.js";
import { FORMAT_REFUSED, isKnownFormat } from "./formats.js";
import type { InclusionValidator } from "./includes.js";
import { acceptsValue, type ValueType } from "./type.js";

/** What the validator says, undefined when it has no verdict. */
export class InclusionResults {
  readonly #validator: InclusionValidator | undefined;
  readonly #checks = new Map<JsonSchema, ((value: unknown) => boolean) | undefined>();
  /** A validator may take formats seriously in one dialect and not in another, so each one in use is asked. */
  readonly #dialects: readonly object[];
  readonly #formats = new Map<string, readonly JsonSchema[]>();
  readonly #ignored = new Map<string, boolean>();

  constructor(validator: InclusionValidator | undefined, schemas: readonly JsonSchema[]) {
    this.#validator = validator;
    const declared = new Set(schemas.map((schema) => (isObject(schema) ? schema.$schema : undefined)));
    this.#dialects = [...declared].map(($schema) => ($schema === undefined ? {} : { $schema }));
  }

  of(type: ValueType, value: unknown): boolean | undefined {
    return acceptsValue(type, value, (schema, v) => this.#check(schema, v));
  }

  /** On one string, a format is no secret. */
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

  #check(schema: JsonSchema, value: unknown): boolean | undefined {
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
