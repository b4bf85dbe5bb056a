// Formats as their RFCs have them: date, time and date-time of RFC 3339, host names of RFC 1123 and RFC 5890.

import { domainToUnicode } from "node:url";

export const RFC_FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
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
