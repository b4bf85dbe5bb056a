// Formats, as `ajv-formats` defines them, but for those where it accepts more than their RFC. Its expressions run under the same
// rule as any other pattern. Names that are not known here are annotations, as JSON Schema says.

import { domainToUnicode } from "node:url";
import { fullFormats } from "ajv-formats/dist/formats.js";
import type { JsonValue } from "../mcp/index.js";
import { createMatcher } from "./pattern/matcher.js";
import type { ValidationRun } from "./run.js";

interface Format {
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

const RFC_FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
  date: (text) => dateOf(text) !== undefined,
  time: (text) => timeOf(text) !== undefined,
  "date-time": isDateTime,
  hostname: isHostname,
};

const DATE = /^([0-9]{4})-([0-9]{2})-([0-9]{2})$/;
const TIME = /^([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))$/;
const DATE_CHARS = "2024-05-17".length;
const DAY_MINUTES = 1440;

/** Days since 1970 in the calendar. */
function dateOf(text: string): number | undefined {
  const [, year, month, day] = (DATE.exec(text) ?? []).map(Number);
  if (year === undefined || month === undefined || day === undefined) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  return date.getTime() / 86_400_000;
}

interface Time {
  /** Minutes after midnight in UTC; negative for the day before. */
  readonly minute: number;
  readonly isLeap: boolean;
}

/** A leap second is the last one of a day in UTC. */
function timeOf(text: string): Time | undefined {
  const match = TIME.exec(text);
  if (match === null) return undefined;
  const [hour, minute, second] = [Number(match[1]), Number(match[2]), Number(match[3])];
  const [offsetHour, offsetMinute] = [Number(match[5] ?? 0), Number(match[6] ?? 0)];
  if (hour > 23 || minute > 59 || second > 60 || offsetHour > 23 || offsetMinute > 59) return undefined;
  const offset = (match[4] === "-" ? -1 : 1) * (offsetHour * 60 + offsetMinute);
  const utc = hour * 60 + minute - offset;
  const isLeap = second === 60;
  if (isLeap && (utc + DAY_MINUTES) % DAY_MINUTES !== DAY_MINUTES - 1) return undefined;
  return { minute: utc, isLeap };
}

function isDateTime(text: string): boolean {
  if (text[DATE_CHARS] !== "T" && text[DATE_CHARS] !== "t") return false;
  const date = dateOf(text.slice(0, DATE_CHARS));
  const time = timeOf(text.slice(DATE_CHARS + 1));
  if (date === undefined || time === undefined) return false;
  if (!time.isLeap) return true;
  // Leap seconds are added at the end of a month.
  const nextDay = date + Math.floor(time.minute / DAY_MINUTES) + 1;
  return new Date(nextDay * 86_400_000).getUTCDate() === 1;
}

const MAX_HOSTNAME = 253;
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i;

function isHostname(text: string): boolean {
  return text.length <= MAX_HOSTNAME && text.split(".").every(isLabel);
}

/** Two hyphens in the third and fourth place are for internationalized labels alone. */
function isLabel(label: string): boolean {
  if (!LABEL.test(label)) return false;
  if (label.slice(2, 4) !== "--") return true;
  return /^xn--/i.test(label) && domainToUnicode(label) !== "";
}
