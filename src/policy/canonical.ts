// RFC 8785 canonical JSON. One value has one text, so one text can be hashed, decided, approved, recorded and sent.

import { type JsonValue, StrictJsonError } from "../mcp/index.js";

/** Deeper than any message the codec lets in; here it guards values built in memory. */
const MAX_DEPTH = 512;

/** A string that needs no escaping and no surrogate check: most keys and most values. */
const PLAIN = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

export function canonicalize(value: JsonValue): string {
  return write(value, 0);
}

function write(value: JsonValue | undefined, depth: number): string {
  switch (typeof value) {
    case "string":
      return quote(value);
    case "number":
      if (!Number.isFinite(value)) throw new StrictJsonError(`${value} has no JSON form`);
      return value === 0 ? "0" : String(value);
    case "boolean":
      return value ? "true" : "false";
    case "object":
      if (value === null) return "null";
      if (depth >= MAX_DEPTH) throw new StrictJsonError(`nesting is deeper than ${MAX_DEPTH} levels`);
      return Array.isArray(value) ? writeArray(value, depth) : writeObject(value, depth);
    default:
      throw new StrictJsonError(`a value of type ${typeof value} has no JSON form`);
  }
}

function writeArray(items: JsonValue[], depth: number): string {
  let out = "[";
  for (let i = 0; i < items.length; i++) out += (i === 0 ? "" : ",") + write(items[i], depth + 1);
  return `${out}]`;
}

function writeObject(object: { [key: string]: JsonValue }, depth: number): string {
  const prototype = Object.getPrototypeOf(object);
  if (prototype !== Object.prototype && prototype !== null) {
    throw new StrictJsonError(`an instance of ${prototype?.constructor?.name ?? "a class"} has no JSON form`);
  }
  // Default string order compares UTF-16 code units, which is what the RFC asks for.
  const keys = Object.keys(object).sort();
  let out = "{";
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string;
    out += `${i === 0 ? "" : ","}${quote(key)}:${write(object[key], depth + 1)}`;
  }
  return `${out}}`;
}

function quote(text: string): string {
  if (text.length < 64 && PLAIN.test(text)) return `"${text}"`;
  if (!text.isWellFormed()) throw new StrictJsonError("a string contains a lone surrogate, which has no UTF-8 form");
  return JSON.stringify(text);
}
