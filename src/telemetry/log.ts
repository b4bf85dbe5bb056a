// Structured lines on stderr. What a caller sends can be in a line but can never make one: every value is JSON, and
// what JSON leaves raw (bidirectional marks, C1 controls, line separators) is escaped as well.

import { visible } from "../lib/visible.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] as const;
/** The level names of MCP. */
export type Level = (typeof LEVELS)[number];

type Fields = Readonly<Record<string, unknown>>;

export interface Logger {
  log(level: Level, message: string, fields?: Fields, traceId?: string): void;
  debug(message: string, fields?: Fields, traceId?: string): void;
  info(message: string, fields?: Fields, traceId?: string): void;
  notice(message: string, fields?: Fields, traceId?: string): void;
  warning(message: string, fields?: Fields, traceId?: string): void;
  error(message: string, fields?: Fields, traceId?: string): void;
  critical(message: string, fields?: Fields, traceId?: string): void;
  /** Ask before building fields that cost something. */
  enabled(level: Level): boolean;
  /** Takes effect for the next line. */
  level: Level;
  /** Lines that were not written: too many in a second, or a reader that is too slow. */
  readonly dropped: number;
}

/** The part of a stream that a log needs; `process.stderr` is one. */
interface LogStream {
  write(text: string): unknown;
  on?(event: "error", listener: () => void): unknown;
  readonly isTTY?: boolean;
  readonly writableLength?: number;
}

export interface LogOptions {
  level?: Level;
  stream?: LogStream;
  /** `auto`: text on a terminal, JSON otherwise. */
  format?: "json" | "text" | "auto";
  color?: boolean;
  /** Field names whose values are never written, besides the usual ones; case, `-` and `_` do not matter. */
  redact?: readonly string[];
  maxLineChars?: number;
  /** Lines below `error` that one second may bring. */
  maxLinesPerSecond?: number;
  /** Bytes that may wait for a slow reader of stderr. */
  maxBufferedBytes?: number;
  env?: Readonly<Record<string, string | undefined>>;
  now?: () => number;
}

/** A field whose name contains one of these holds a secret. */
const SECRET_NAMES = [
  "password",
  "passwd",
  "secret",
  "token",
  "authorization",
  "cookie",
  "apikey",
  "credential",
  "privatekey",
];
const REDACTED = "[redacted]";
/** Secrets that stand inside a text: a bearer credential, the password of a URL. */
const BEARER = /\b(bearer|basic)\s+[\w\-.~+/]{8,}=*/gi;
const URL_PASSWORD = /(\b[a-z][a-z0-9+.-]{1,30}:\/\/[^\s/:@]{0,256}:)[^\s/@]{1,256}@/gi;

const MAX_MESSAGE_CHARS = 2_048;
const MAX_VALUE_CHARS = 1_024;
const MAX_DEPTH = 4;
const MAX_ITEMS = 32;

export function createLogger(options: LogOptions = {}): Logger {
  return new LineLogger(options);
}

class LineLogger implements Logger {
  #least: number;
  #second = 0;
  #linesThisSecond = 0;
  #suppressed = 0;
  #dropped = 0;
  readonly #stream: LogStream;
  readonly #text: boolean;
  readonly #color: boolean;
  readonly #secretNames: readonly string[];
  readonly #maxLine: number;
  readonly #maxPerSecond: number;
  readonly #maxBuffered: number;
  readonly #now: () => number;

  constructor(options: LogOptions) {
    const env = options.env ?? process.env;
    this.#least = LEVELS.indexOf(options.level ?? "info");
    this.#stream = options.stream ?? process.stderr;
    const terminal = this.#stream.isTTY === true;
    const format = options.format ?? "auto";
    this.#text = format === "text" || (format === "auto" && terminal);
    this.#color = options.color ?? (terminal && !env.NO_COLOR && env.TERM !== "dumb");
    this.#secretNames = [...SECRET_NAMES, ...(options.redact ?? []).map(plainName)];
    this.#maxLine = options.maxLineChars ?? 8_192;
    this.#maxPerSecond = options.maxLinesPerSecond ?? 1_000;
    this.#maxBuffered = options.maxBufferedBytes ?? 1024 * 1024;
    this.#now = options.now ?? Date.now;
    surviveErrors(this.#stream);
  }

  get level(): Level {
    return LEVELS[this.#least] as Level;
  }
  set level(level: Level) {
    this.#least = LEVELS.indexOf(level);
  }
  get dropped(): number {
    return this.#dropped;
  }
  enabled(level: Level): boolean {
    return LEVELS.indexOf(level) >= this.#least;
  }

  debug(message: string, fields?: Fields, traceId?: string): void {
    this.log("debug", message, fields, traceId);
  }
  info(message: string, fields?: Fields, traceId?: string): void {
    this.log("info", message, fields, traceId);
  }
  notice(message: string, fields?: Fields, traceId?: string): void {
    this.log("notice", message, fields, traceId);
  }
  warning(message: string, fields?: Fields, traceId?: string): void {
    this.log("warning", message, fields, traceId);
  }
  error(message: string, fields?: Fields, traceId?: string): void {
    this.log("error", message, fields, traceId);
  }
  critical(message: string, fields?: Fields, traceId?: string): void {
    this.log("critical", message, fields, traceId);
  }

  log(level: Level, message: string, fields?: Fields, traceId?: string): void {
    if (!this.enabled(level)) return;
    const now = this.#now();
    if (!this.#mayWrite(level, now)) {
      this.#dropped++;
      return;
    }
    // Logging is never the reason why a call fails, whatever was handed to it.
    try {
      const safe = fields === undefined ? undefined : (this.#clean(fields, 0) as Fields);
      this.#stream.write((this.#text ? this.#line : this.#json).call(this, level, now, message, safe, traceId));
    } catch {
      this.#dropped++;
    }
  }

  /** A flood of calls must not become a flood of lines, nor a slow reader a heap of them. */
  #mayWrite(level: Level, now: number): boolean {
    if ((this.#stream.writableLength ?? 0) > this.#maxBuffered) return false;
    const second = Math.floor(now / 1000);
    if (second !== this.#second) {
      const suppressed = this.#suppressed;
      this.#second = second;
      this.#linesThisSecond = 0;
      this.#suppressed = 0;
      if (suppressed > 0) this.log("warning", `${suppressed} lines of this log were left out: too many in a second`);
    }
    if (LEVELS.indexOf(level) >= LEVELS.indexOf("error") || this.#linesThisSecond < this.#maxPerSecond) {
      this.#linesThisSecond++;
      return true;
    }
    this.#suppressed++;
    return false;
  }

  #json(level: Level, now: number, message: string, fields: Fields | undefined, traceId: string | undefined): string {
    const head = { ts: new Date(now).toISOString(), level, msg: hideSecrets(clip(message, MAX_MESSAGE_CHARS)) };
    const line = JSON.stringify({ ...head, trace_id: traceId, fields });
    const bounded =
      line.length <= this.#maxLine ? line : JSON.stringify({ ...head, trace_id: traceId, fields: { truncated: true } });
    return `${visible(bounded)}\n`;
  }

  #line(level: Level, now: number, message: string, fields: Fields | undefined, traceId: string | undefined): string {
    let rest = "";
    for (const [name, value] of Object.entries(fields ?? {})) {
      if (value === undefined) continue;
      const bare = typeof value === "string" && /^[\w./:@-]+$/.test(value);
      rest += ` ${visible(name)}=${bare ? value : visible(JSON.stringify(value) ?? "")}`;
    }
    if (traceId !== undefined) rest += ` trace=${visible(traceId)}`;
    const time = new Date(now).toISOString().slice(11, 23);
    const text = visible(hideSecrets(clip(message, MAX_MESSAGE_CHARS)));
    const more = clip(rest, this.#maxLine);
    if (!this.#color) return `${time} ${level.padEnd(9)} ${text}${more}\n`;
    return `\x1b[2m${time}\x1b[0m ${COLORS[level]}${level.padEnd(9)}\x1b[0m ${text}\x1b[2m${more}\x1b[0m\n`;
  }

  /** A copy with bounds: depth, items, length of texts; secrets gone; nothing that could throw in `JSON.stringify`. */
  #clean(value: unknown, depth: number): unknown {
    switch (typeof value) {
      case "string":
        return hideSecrets(clip(value, MAX_VALUE_CHARS));
      case "number":
      case "boolean":
      case "undefined":
        return value;
      case "bigint":
        return value.toString();
      case "object":
        return value === null ? null : this.#cleanObject(value, depth);
      default:
        return `[${typeof value}]`;
    }
  }

  #cleanObject(value: object, depth: number): unknown {
    if (value instanceof Error) return this.#cleanError(value);
    if (depth >= MAX_DEPTH) return "[too deep]";
    if (Array.isArray(value)) {
      const items = value.slice(0, MAX_ITEMS).map((item) => this.#clean(item, depth + 1));
      return value.length > MAX_ITEMS ? [...items, `[${value.length - MAX_ITEMS} more]`] : items;
    }
    const out: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
    let count = 0;
    for (const name in value) {
      if (!Object.hasOwn(value, name)) continue;
      if (++count > MAX_ITEMS) {
        out["…"] = "more fields were left out";
        break;
      }
      const key = clip(name, 128);
      out[key] = this.#isSecret(name) ? REDACTED : this.#clean((value as Record<string, unknown>)[name], depth + 1);
    }
    return out;
  }

  #cleanError(error: Error): unknown {
    const code = (error as { code?: unknown }).code;
    return {
      name: clip(String(error.name), 128),
      message: hideSecrets(clip(String(error.message), MAX_VALUE_CHARS)),
      ...(typeof code === "string" ? { code: clip(code, 128) } : {}),
      ...(this.#least === 0 ? { stack: hideSecrets(clip(String(error.stack), 4 * MAX_VALUE_CHARS)) } : {}),
    };
  }

  #isSecret(name: string): boolean {
    const plain = plainName(name.slice(0, 256));
    return this.#secretNames.some((secret) => plain.includes(secret));
  }
}

const survivors = new WeakSet<LogStream>();

/** A reader of stderr that closes must not end the gateway: an `error` event without a listener ends a process. */
function surviveErrors(stream: LogStream): void {
  if (stream.on === undefined || survivors.has(stream)) return;
  survivors.add(stream);
  stream.on("error", () => {});
}

const COLORS: Readonly<Record<Level, string>> = {
  debug: "\x1b[2m",
  info: "\x1b[32m",
  notice: "\x1b[36m",
  warning: "\x1b[33m",
  error: "\x1b[31m",
  critical: "\x1b[1;31m",
  alert: "\x1b[1;31m",
  emergency: "\x1b[1;31m",
};

function plainName(name: string): string {
  return name.toLowerCase().replace(/[-_.\s]/g, "");
}

export function hideSecrets(text: string): string {
  return text.replace(BEARER, `$1 ${REDACTED}`).replace(URL_PASSWORD, `$1${REDACTED}@`);
}

function clip(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max)}… (${text.length - max} characters more)`;
}
