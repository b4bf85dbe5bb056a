// What an expression evaluates to, and when two of these are equal. Records and sets compare by content.

import { DateTime, Decimal, Duration, IpAddress, isLong, type Long } from "./extensions.js";

export type Value =
  | boolean
  | string
  | Long
  | Entity
  | CedarSet
  | CedarRecord
  | Decimal
  | IpAddress
  | DateTime
  | Duration
  | Unencodable;

/** Why a rule could not be evaluated. In Cedar that skips the rule; here it denies the call. */
export class EvaluationError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "EvaluationError";
  }
}

export class Entity {
  readonly type: string;
  readonly id: string;
  constructor(type: string, id: string) {
    this.type = type;
    this.id = id;
  }
}

/** A caller's value that Cedar has no form for. A record may hold it unread; reading it is an error. */
export class Unencodable {
  readonly why: string;
  constructor(why: string) {
    this.why = why;
  }
}

export class CedarRecord {
  readonly attrs: ReadonlyMap<string, Value>;
  /** Why this record as a whole cannot be compared, when something inside it has no Cedar form. */
  readonly flaw: string | undefined;
  constructor(attrs: ReadonlyMap<string, Value>) {
    this.attrs = attrs;
    for (const value of attrs.values()) {
      if (value instanceof Unencodable) this.flaw = value.why;
      else if (value instanceof CedarRecord && value.flaw !== undefined) this.flaw = value.flaw;
    }
  }
}

/** Up to this many elements a scan beats building an index. */
const SCAN_LIMIT = 8;

export class CedarSet {
  readonly items: readonly Value[];
  #plain: Set<Value> | undefined;
  #keys: Set<string> | undefined;

  /** Whatever goes into a set is read, so a flawed element is an error here. */
  constructor(items: readonly Value[]) {
    for (const item of items) comparable(item);
    this.items = items;
  }

  has(value: Value): boolean {
    comparable(value);
    if (typeof value === "object") return this.#index().keys.has(valueKeyOf(value));
    if (this.items.length <= SCAN_LIMIT) return this.items.includes(value);
    return this.#index().plain.has(value);
  }
  hasAll(other: CedarSet): boolean {
    return other.items.every((item) => this.has(item));
  }
  hasAny(other: CedarSet): boolean {
    return other.items.some((item) => this.has(item));
  }
  equals(other: CedarSet): boolean {
    return this.hasAll(other) && other.hasAll(this);
  }

  #index(): { plain: Set<Value>; keys: Set<string> } {
    if (!this.#plain || !this.#keys) {
      this.#plain = new Set(this.items.filter((item) => typeof item !== "object"));
      this.#keys = new Set(this.items.filter((item) => typeof item === "object").map(valueKeyOf));
    }
    return { plain: this.#plain, keys: this.#keys };
  }
}

/** Throws when the value holds something without a Cedar form: comparing would read it. */
export function comparable(value: Value): void {
  if (value instanceof CedarRecord && value.flaw !== undefined) throw new EvaluationError(value.flaw);
  if (value instanceof Unencodable) throw new EvaluationError(value.why);
}

/** Values of different types are unequal, never an error. */
export function equal(a: Value, b: Value): boolean {
  if (typeof a !== "object" || typeof b !== "object") {
    comparable(a);
    comparable(b);
    return a === b;
  }
  if (a instanceof Entity) return b instanceof Entity && a.id === b.id && a.type === b.type;
  if (a instanceof CedarSet && b instanceof CedarSet) return a.equals(b);
  return valueKeyOf(a) === valueKeyOf(b);
}

/** One text per value: equal texts, equal values. Linear, so that a caller's large sets stay cheap to compare. */
function valueKeyOf(value: Value): string {
  comparable(value);
  if (typeof value === "string") return `s${JSON.stringify(value)}`;
  if (typeof value === "boolean") return value ? "true" : "false";
  if (isLong(value)) return `l${value}`;
  if (value instanceof Entity) return `e${JSON.stringify([value.type, value.id])}`;
  if (value instanceof CedarSet) return `[${[...new Set(value.items.map(valueKeyOf))].sort().join(",")}]`;
  if (value instanceof CedarRecord) {
    const attrs = [...value.attrs].map(([name, attr]) => `${JSON.stringify(name)}:${valueKeyOf(attr)}`);
    return `{${attrs.sort().join(",")}}`;
  }
  if (value instanceof Decimal) return `d${value.scaled}`;
  if (value instanceof IpAddress) return `i${value}`;
  if (value instanceof DateTime) return `t${value.ms}`;
  if (value instanceof Duration) return `u${value.ms}`;
  throw new EvaluationError(value.why);
}

export function typeName(value: Value): string {
  if (typeof value === "string") return "a string";
  if (typeof value === "boolean") return "a bool";
  if (isLong(value)) return "a long";
  if (value instanceof Entity) return `an entity of type ${value.type}`;
  if (value instanceof CedarSet) return "a set";
  if (value instanceof CedarRecord) return "a record";
  if (value instanceof Decimal) return "a decimal";
  if (value instanceof IpAddress) return "an ipaddr";
  if (value instanceof DateTime) return "a datetime";
  if (value instanceof Duration) return "a duration";
  return "a value without a Cedar form";
}
