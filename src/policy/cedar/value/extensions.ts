// Cedar's 64-bit integers and its extension types: decimal, ipaddr, datetime, duration. Parsing is as narrow as Cedar's
// own; undefined means that Cedar would report an error.

import { isIP } from "node:net";

export type Long = number | bigint;

const MIN = -(2n ** 63n);
const MAX = 2n ** 63n - 1n;

export function isLong(value: unknown): value is Long {
  return typeof value === "number" || typeof value === "bigint";
}

/** Undefined when the value does not fit 64 bits. */
function longFrom(value: bigint): Long | undefined {
  if (value < MIN || value > MAX) return undefined;
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

export function add(a: Long, b: Long): Long | undefined {
  if (typeof a === "number" && typeof b === "number") {
    const sum = a + b;
    if (Number.isSafeInteger(sum)) return sum;
  }
  return longFrom(BigInt(a) + BigInt(b));
}

export function subtract(a: Long, b: Long): Long | undefined {
  if (typeof a === "number" && typeof b === "number") {
    const difference = a - b;
    if (Number.isSafeInteger(difference)) return difference;
  }
  return longFrom(BigInt(a) - BigInt(b));
}

export function multiply(a: Long, b: Long): Long | undefined {
  if (typeof a === "number" && typeof b === "number") {
    const product = a * b;
    if (Number.isSafeInteger(product)) return product;
  }
  return longFrom(BigInt(a) * BigInt(b));
}

/** Towards zero, as Cedar rounds. */
export function divide(a: Long, by: number): Long {
  return typeof a === "number" ? Math.trunc(a / by) : (longFrom(a / BigInt(by)) ?? 0);
}

/** The remainder that is never negative. */
function modulo(a: Long, by: number): number {
  const remainder = typeof a === "number" ? a % by : Number(a % BigInt(by));
  return remainder < 0 ? remainder + by : remainder;
}

/** A number with four digits after the point, held as that number times 10,000. */
export class Decimal {
  readonly scaled: Long;
  constructor(scaled: Long) {
    this.scaled = scaled;
  }

  static parse(text: string): Decimal | undefined {
    const [, sign, whole = "", fraction = ""] = /^(-?)([0-9]+)\.([0-9]{1,4})$/.exec(text) ?? [];
    if (sign === undefined) return undefined;
    const magnitude = digits(whole + fraction.padEnd(4, "0"));
    if (magnitude === undefined) return undefined;
    const scaled = longFrom(sign === "-" ? -magnitude : magnitude);
    return scaled === undefined ? undefined : new Decimal(scaled);
  }

  /** A JSON number whose shortest text has at most four digits after the point; anything else would be a guess. */
  static fromNumber(value: number): Decimal | undefined {
    const text = String(value);
    return Decimal.parse(text.includes(".") ? text : `${text}.0`);
  }

  toString(): string {
    const digits = String(this.scaled).replace("-", "").padStart(5, "0");
    return `${this.scaled < 0 ? "-" : ""}${digits.slice(0, -4)}.${digits.slice(-4)}`;
  }
}

/** Undefined past 20 digits, where no 64-bit number is; a caller's million digits are never multiplied out. */
function digits(text: string): bigint | undefined {
  const significant = text.replace(/^0+(?=.)/, "");
  return significant.length > 20 ? undefined : BigInt(significant);
}

/** An address or a range, held as the first and the last address in it. */
export class IpAddress {
  readonly version: 4 | 6;
  readonly address: bigint;
  readonly prefix: number;
  readonly first: bigint;
  readonly last: bigint;

  constructor(version: 4 | 6, address: bigint, prefix: number) {
    this.version = version;
    this.address = address;
    this.prefix = prefix;
    const hosts = (1n << BigInt((version === 4 ? 32 : 128) - prefix)) - 1n;
    this.first = address & ~hosts;
    this.last = address | hosts;
  }

  static parse(text: string): IpAddress | undefined {
    const [, address = "", prefixText] = /^([0-9a-fA-F:.]{2,39})(?:\/(0|[1-9][0-9]{0,2}))?$/.exec(text) ?? [];
    const version = isIP(address);
    // An IPv4 address inside an IPv6 one is refused by Cedar: it would read as neither.
    if (version === 0 || (version === 6 && address.includes("."))) return undefined;
    const bits = version === 4 ? 32 : 128;
    const prefix = prefixText === undefined ? bits : Number(prefixText);
    if (prefix > bits) return undefined;
    return new IpAddress(version as 4 | 6, version === 4 ? ipv4(address) : ipv6(address), prefix);
  }

  isIn(range: IpAddress): boolean {
    return this.version === range.version && range.first <= this.first && this.last <= range.last;
  }
  get isLoopback(): boolean {
    return this.version === 4
      ? this.address >> 24n === 127n && this.prefix >= 8
      : this.address === 1n && this.prefix === 128;
  }
  get isMulticast(): boolean {
    return this.version === 4
      ? this.address >> 28n === 14n && this.prefix >= 4
      : this.address >> 120n === 255n && this.prefix >= 8;
  }
  toString(): string {
    const hex = this.address.toString(16).padStart(32, "0");
    const address =
      this.version === 4
        ? [24n, 16n, 8n, 0n].map((shift) => (this.address >> shift) & 255n).join(".")
        : (hex.match(/.{4}/g) ?? []).join(":");
    return `${address}/${this.prefix}`;
  }
}

function ipv4(text: string): bigint {
  return text.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n);
}

function ipv6(text: string): bigint {
  const [head = "", tail] = text.split("::");
  const groups = (part: string): string[] => (part === "" ? [] : part.split(":"));
  const front = groups(head);
  const back = groups(tail ?? "");
  const zeros = tail === undefined ? 0 : 8 - front.length - back.length;
  return [...front, ...Array<string>(zeros).fill("0"), ...back].reduce(
    (sum, group) => sum * 65536n + BigInt(`0x${group}`),
    0n,
  );
}

const DAY_MS = 86_400_000;

/** Milliseconds since 1970 in UTC. */
/** What a JavaScript date can hold. */
const MAX_DATE_MS = 8.64e15;

export class DateTime {
  readonly ms: Long;
  constructor(ms: Long) {
    this.ms = ms;
  }

  static parse(text: string): DateTime | undefined {
    const pattern =
      /^([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{3}))?(?:Z|([+-])([0-9]{2})([0-9]{2})))?$/;
    const match = pattern.exec(text);
    if (!match) return undefined;
    const field = (index: number): number => Number(match[index] ?? 0);
    const [year, month, day, hour, minute, second] = [1, 2, 3, 4, 5, 6].map(field) as [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    const [offsetHour, offsetMinute] = [field(9), field(10)];
    const date = new Date(0);
    date.setUTCFullYear(year, month - 1, day);
    if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day || day === 0) return undefined;
    if (hour > 23 || minute > 59 || second > 59 || offsetHour > 23 || offsetMinute > 59) return undefined;
    const offsetMs = (match[8] === "-" ? -1 : 1) * (offsetHour * 60 + offsetMinute) * 60_000;
    return new DateTime(date.getTime() + ((hour * 60 + minute) * 60 + second) * 1000 + field(7) - offsetMs);
  }

  offset(duration: Duration): DateTime | undefined {
    const ms = add(this.ms, duration.ms);
    return ms === undefined ? undefined : new DateTime(ms);
  }
  since(other: DateTime): Duration | undefined {
    const ms = subtract(this.ms, other.ms);
    return ms === undefined ? undefined : new Duration(ms);
  }
  toDate(): DateTime | undefined {
    const ms = subtract(this.ms, modulo(this.ms, DAY_MS));
    return ms === undefined ? undefined : new DateTime(ms);
  }
  toTime(): Duration {
    return new Duration(modulo(this.ms, DAY_MS));
  }
  /** Cedar writes years of four digits; others only arithmetic leads to. */
  toString(): string {
    const text = Math.abs(Number(this.ms)) <= MAX_DATE_MS ? new Date(Number(this.ms)).toISOString() : `${this.ms}ms`;
    return `datetime(${JSON.stringify(text)})`;
  }
}

export class Duration {
  readonly ms: Long;
  constructor(ms: Long) {
    this.ms = ms;
  }

  static parse(text: string): Duration | undefined {
    const match = /^(-?)(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?$/.exec(text);
    if (!match || text === "" || text === "-") return undefined;
    let total = 0n;
    for (const [index, unit] of [86_400_000n, 3_600_000n, 60_000n, 1000n, 1n].entries()) {
      const count = digits(match[index + 2] ?? "0");
      if (count === undefined) return undefined;
      total += count * unit;
    }
    const ms = longFrom(match[1] === "-" ? -total : total);
    return ms === undefined ? undefined : new Duration(ms);
  }

  /** Whole units, rounded towards zero. */
  in(unitMs: number): Long {
    return divide(this.ms, unitMs);
  }
}
