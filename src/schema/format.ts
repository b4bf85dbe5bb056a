// Formats, as `ajv-formats` defines them, but for those where it accepts more than their RFC. Its expressions run under the same
// rule as any other pattern. Names that are not known here are annotations, as JSON Schema says.

import { fullFormats } from "ajv-formats/dist/formats.js";
import type { JsonValue } from "../mcp/index.js";
import { createMatcher } from "./pattern/matcher.js";
import { RFC_FORMATS } from "./rfc-formats.js";
import type { ValidationRun } from "./run.js";

export interface Format {
  holds(value: JsonValue, run: ValidationRun): boolean;
  /** A value that is right, to show and to build examples with. */
  readonly example: string | undefined;
}

export const FORMAT_EXAMPLES: Readonly<Record<string, string>> = {
  date: "2024-05-17",
  time: "13:45:30Z",
  "date-time": "2024-05-17T13:45:30Z",
  "iso-time": "13:45:30",
  "iso-date-time": "2024-05-17T13:45:30",
  duration: "PT15M",
  email: "someone@example.com",
  hostname: "example.com",
  ipv4: "192.0.2.1",
  ipv6: "2001:db8::1",
  uri: "https://example.com/",
  url: "https://example.com/",
  "uri-reference": "/path",
  "uri-template": "/items/{id}",
  uuid: "0f8fad5b-d9cb-469f-a165-70867728950e",
  "json-pointer": "/name",
  "relative-json-pointer": "0",
  "json-pointer-uri-fragment": "#/name",
  regex: "^[a-z]+$",
  byte: "aGVsbG8=",
};

const known = new Map<string, Format | undefined>();

export function formatCheck(name: string): Format | undefined {
  if (!Object.hasOwn(fullFormats, name)) return undefined;
  if (!known.has(name)) known.set(name, compile(name));
  return known.get(name);
}

function compile(name: string): Format | undefined {
  const own = RFC_FORMATS[name];
  if (own !== undefined) return ofText(own, FORMAT_EXAMPLES[name]);
  const entry: unknown = fullFormats[name as keyof typeof fullFormats];
  const example = FORMAT_EXAMPLES[name];
  if (entry instanceof RegExp) {
    const outcome = createMatcher(entry.source, { left: 1_000_000 }, entry.flags);
    if (!outcome.ok) return undefined;
    return { example, holds: (value, run) => typeof value !== "string" || run.matches(outcome.matcher, value) };
  }
  if (typeof entry === "function") return ofText(entry as (text: string) => boolean, example);
  if (typeof entry !== "object" || entry === null) return undefined;
  const { type, validate } = entry as { type?: string; validate?: unknown };
  if (typeof validate !== "function") return undefined;
  if (type !== "number") return ofText(validate as (text: string) => boolean, example);
  return { example, holds: (value) => typeof value !== "number" || validate(value) === true };
}

/** INVARIANT: the functions of `ajv-formats` work in linear time; the expressions they use are proved in its test. */
function ofText(validate: (text: string) => boolean, example: string | undefined): Format {
  return {
    example,
    holds(value, run) {
      if (typeof value !== "string") return true;
      run.spend(1 + (value.length >> 3));
      return validate(value) === true;
    },
  };
}
