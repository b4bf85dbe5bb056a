import type { JsonObject, JsonValue } from "./json.js";

export type Path = readonly (string | number)[];

export interface ShapeProblem {
  readonly path: Path;
  readonly message: string;
  /** The problem lies with the key at `path`, not with its value. */
  readonly atKey?: boolean;
}

/** Checks without converting: a string of digits is not a number here. */
export interface Shape<T> {
  check(value: unknown, path: Path, problems: ShapeProblem[]): T | undefined;
  readonly schema: JsonObject;
}

export interface ShapeField<T> {
  readonly shape: Shape<T>;
  readonly presence: "required" | "optional" | "default";
  readonly fallback?: T;
}

export type Infer<S> = S extends Shape<infer T> ? T : never;
type FieldValue<F> = F extends { presence: "optional"; shape: Shape<infer T> }
  ? T | undefined
  : F extends { shape: Shape<infer T> }
    ? T
    : never;
type Fields = Record<string, ShapeField<unknown>>;
type OptionalNames<F extends Fields> = { [K in keyof F]: F[K] extends { presence: "optional" } ? K : never }[keyof F];
export type ObjectOf<F extends Fields> = { readonly [K in Exclude<keyof F, OptionalNames<F>>]: FieldValue<F[K]> } & {
  readonly [K in OptionalNames<F>]?: FieldValue<F[K]>;
};

type Required<T> = ShapeField<T> & { presence: "required" };
type Optional<T> = ShapeField<T> & { presence: "optional" };
type Defaulted<T> = ShapeField<T> & { presence: "default" };

export function required<T>(shape: Shape<T>): Required<T> {
  return { shape, presence: "required" };
}
export function optional<T>(shape: Shape<T>): Optional<T> {
  return { shape, presence: "optional" };
}
export function byDefault<T>(shape: Shape<T>, fallback: NoInfer<T>): Defaulted<T> {
  return { shape, presence: "default", fallback };
}

function typeName(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a map";
  return typeof value === "number" ? `the number ${value}` : `a ${typeof value}`;
}

export function textShape(
  about: string,
  rule: { min?: number; max: number; pattern?: string; patternSays?: string },
): Shape<string> {
  const pattern = rule.pattern === undefined ? undefined : new RegExp(rule.pattern, "u");
  const min = rule.min ?? 0;
  return {
    schema: {
      type: "string",
      description: about,
      ...(min > 0 ? { minLength: min } : {}),
      maxLength: rule.max,
      ...(rule.pattern === undefined ? {} : { pattern: rule.pattern }),
    },
    check(value, path, problems) {
      if (typeof value !== "string") {
        const hint = typeof value === "number" || typeof value === "boolean" ? "; write it in quotes" : "";
        problems.push({ path, message: `must be a string, not ${typeName(value)}${hint}` });
      } else if (value.length < min) {
        problems.push({ path, message: min === 1 ? "must not be empty" : `must have at least ${min} characters` });
      } else if (value.length > rule.max) {
        problems.push({ path, message: `has ${value.length} characters; at most ${rule.max} are allowed` });
      } else if (pattern !== undefined && !pattern.test(value)) {
        problems.push({ path, message: rule.patternSays ?? `must match ${rule.pattern}` });
      } else {
        return value;
      }
      return undefined;
    },
  };
}

export function integer(about: string, rule: { min: number; max: number }): Shape<number> {
  return {
    schema: { type: "integer", description: about, minimum: rule.min, maximum: rule.max },
    check(value, path, problems) {
      if (typeof value !== "number" || !Number.isSafeInteger(value)) {
        problems.push({ path, message: `must be a whole number, not ${typeName(value)}` });
      } else if (value < rule.min || value > rule.max) {
        problems.push({ path, message: `is ${value}; it must lie between ${rule.min} and ${rule.max}` });
      } else {
        return value;
      }
      return undefined;
    },
  };
}

export function flag(about: string): Shape<boolean> {
  return {
    schema: { type: "boolean", description: about },
    check(value, path, problems) {
      if (typeof value === "boolean") return value;
      problems.push({ path, message: `must be true or false, not ${typeName(value)}` });
      return undefined;
    },
  };
}

export function oneOf<const T extends string | number>(about: string, values: readonly T[]): Shape<T> {
  return {
    schema: { description: about, enum: [...values] },
    check(value, path, problems) {
      const found = values.find((candidate) => candidate === value);
      if (found !== undefined) return found;
      const near = typeof value === "string" ? nearest(value, values.map(String)) : undefined;
      const hint = near === undefined ? "" : `; did you mean ${near}?`;
      problems.push({ path, message: `must be one of ${values.join(", ")}${hint}` });
      return undefined;
    },
  };
}

export function list<T>(about: string, item: Shape<T>, rule: { max: number }): Shape<readonly T[]> {
  return {
    schema: { type: "array", description: about, items: item.schema, maxItems: rule.max },
    check(value, path, problems) {
      if (!Array.isArray(value)) {
        problems.push({ path, message: `must be a list, not ${typeName(value)}` });
        return undefined;
      }
      if (value.length > rule.max) {
        problems.push({ path, message: `has ${value.length} entries; at most ${rule.max} are allowed` });
        return undefined;
      }
      const before = problems.length;
      const checked = value.map((entry, i) => item.check(entry, [...path, i], problems));
      return problems.length === before ? (checked as T[]) : undefined;
    },
  };
}

export function textMap(about: string, item: Shape<string>, rule: { max: number }): Shape<ReadonlyMap<string, string>> {
  return {
    schema: { type: "object", description: about, additionalProperties: item.schema, maxProperties: rule.max },
    check(value, path, problems) {
      if (!isPlainObject(value)) {
        problems.push({ path, message: `must be a map of names to strings, not ${typeName(value)}` });
        return undefined;
      }
      const entries = Object.entries(value);
      if (entries.length > rule.max) {
        problems.push({ path, message: `has ${entries.length} entries; at most ${rule.max} are allowed` });
        return undefined;
      }
      const before = problems.length;
      // A Map, because a caller's key may be `__proto__`.
      const checked = new Map<string, string>();
      for (const [key, entry] of entries) checked.set(key, item.check(entry, [...path, key], problems) ?? "");
      return problems.length === before ? checked : undefined;
    },
  };
}

/** Names that are data: each fits the pattern, each value the shape. */
export function record<T>(
  about: string,
  item: Shape<T>,
  rule: { max: number; names: string; namesSay: string },
): Shape<Readonly<Record<string, T>>> {
  const names = new RegExp(rule.names, "u");
  return {
    schema: {
      type: "object",
      description: about,
      propertyNames: { pattern: rule.names },
      additionalProperties: item.schema,
      maxProperties: rule.max,
    },
    check(value, path, problems) {
      if (!isPlainObject(value)) {
        problems.push({ path, message: `must be a map, not ${typeName(value)}` });
        return undefined;
      }
      const entries = Object.entries(value);
      if (entries.length > rule.max) {
        problems.push({ path, message: `has ${entries.length} entries; at most ${rule.max} are allowed` });
        return undefined;
      }
      const before = problems.length;
      const checked: [string, T][] = [];
      for (const [key, entry] of entries) {
        const at = [...path, key];
        if (!names.test(key)) problems.push({ path: at, message: `as a name, ${rule.namesSay}`, atKey: true });
        checked.push([key, item.check(entry, at, problems) as T]);
      }
      // fromEntries defines properties, so that a key `__proto__` stays a key.
      return problems.length === before ? Object.fromEntries(checked) : undefined;
    },
  };
}

/** Any JSON object; its user knows what belongs in it. */
export function anyObject(about: string): Shape<JsonObject> {
  return {
    schema: { type: "object", description: about },
    check(value, path, problems) {
      if (isPlainObject(value)) return value as JsonObject;
      problems.push({ path, message: `must be a map, not ${typeName(value)}` });
      return undefined;
    },
  };
}

export function object<F extends Fields>(about: string, fields: F): Shape<ObjectOf<F>> {
  const names = Object.keys(fields);
  const requiredNames = names.filter((name) => fields[name]?.presence === "required");
  const properties: JsonObject = {};
  for (const [name, field] of Object.entries(fields)) {
    const schema = field.shape.schema;
    properties[name] = field.presence === "default" ? { ...schema, default: plain(field.fallback) } : schema;
  }
  return {
    schema: {
      type: "object",
      description: about,
      properties,
      ...(requiredNames.length > 0 ? { required: requiredNames } : {}),
      additionalProperties: false,
    },
    check(value, path, problems) {
      if (!isPlainObject(value)) {
        problems.push({ path, message: `must be a map, not ${typeName(value)}` });
        return undefined;
      }
      const before = problems.length;
      for (const key of Object.keys(value)) {
        if (names.includes(key)) continue;
        const near = nearest(key, names);
        const hint = near === undefined ? `; known are ${names.join(", ")}` : `; did you mean \`${near}\`?`;
        problems.push({ path: [...path, key], message: `unknown field${hint}`, atKey: true });
      }
      const checked: Record<string, unknown> = {};
      for (const [name, field] of Object.entries(fields)) {
        checked[name] = checkField(field, value, name, path, problems);
      }
      return problems.length === before ? (checked as ObjectOf<F>) : undefined;
    },
  };
}

/** A word, or a map that says more. */
export function wordOr<W extends string, M>(word: Shape<W>, map: Shape<M>): Shape<W | M> {
  return {
    schema: { description: word.schema.description as string, anyOf: [word.schema, map.schema] },
    check: (value, path, problems) => (typeof value === "string" ? word : map).check(value, path, problems),
  };
}

function checkField(
  field: ShapeField<unknown>,
  owner: Record<string, unknown>,
  name: string,
  path: Path,
  problems: ShapeProblem[],
): unknown {
  const value = Object.hasOwn(owner, name) ? owner[name] : undefined;
  if (value !== undefined) return field.shape.check(value, [...path, name], problems);
  if (field.presence === "required") problems.push({ path, message: `field \`${name}\` is missing` });
  return field.fallback;
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A default as JSON: shapes hold maps and frozen lists, a schema holds plain data. */
function plain(value: unknown): JsonValue {
  return JSON.parse(JSON.stringify(value instanceof Map ? Object.fromEntries(value) : value)) as JsonValue;
}

/** `commands[2].args.allow`, the way people write it. */
export function pathText(path: Path): string {
  let out = "";
  for (const part of path) {
    if (typeof part === "number") out += `[${part}]`;
    else out += out === "" ? part : `.${part}`;
  }
  return out;
}

/** Longer names and more of them are not compared: the cost is quadratic. */
const MAX_COMPARED_CHARS = 64;
const MAX_COMPARED_NAMES = 500;

/** `nearest` returns the known name that was probably meant, if one is near enough. */
export function nearest(wrong: string, known: Iterable<string>): string | undefined {
  if (wrong.length > MAX_COMPARED_CHARS) return undefined;
  const folded = fold(wrong);
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(wrong.length * 0.4)) + 1;
  let compared = 0;
  for (const name of known) {
    if (compared++ === MAX_COMPARED_NAMES) break;
    const other = fold(name);
    // The difference of the lengths is the least that two names can differ by.
    if (Math.abs(other.length - folded.length) >= bestDistance) continue;
    const distance = editDistance(folded, other);
    if (distance < bestDistance) [best, bestDistance] = [name, distance];
  }
  return best;
}

/** `tickerSymbol`, `ticker-symbol` and `TICKER_SYMBOL` are the same word. */
function fold(name: string): string {
  return name.toLowerCase().replaceAll(/[-_ ]/g, "");
}

/** `editDistance` counts characters added, removed, changed or exchanged with a neighbour. The cost is quadratic. */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isExchange = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const exchanged = isExchange ? (beforeLast[j - 2] ?? 0) + 1 : changed;
      row.push(Math.min(changed, exchanged, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length] ?? 0;
}
