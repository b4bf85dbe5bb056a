//

import { readFileSync } from "node:fs";
import { isAbsolute, join, win32 } from "node:path";
import { parseEnv } from "node:util";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import {
  type CredentialSpan,
  credentialsInArguments,
  credentialsInText,
  credentialsInUrl,
  hasCredentialForm,
  isCredentialHeader,
  isCredentialName,
  replaceSpans,
  type ServerEntry,
} from "../../storage/index.js";
import { type FoundServer, isLiteral } from "./read.js";
import type { Expanded, Variables } from "./variables.js";

export interface Lifted {
  readonly name: string;
  /** Never shown, never written anywhere but into the store, sealed. */
  readonly value: string;
  /** Where it stood, for the printed difference. */
  readonly from: string;
}

const SCHEME = /^(?:Bearer|Basic|Token|ApiKey)\s+(?=\S)/i;

class Lifter {
  readonly lifted: Lifted[] = [];
  readonly #server: string;

  constructor(server: string) {
    this.#server = server;
  }

  env(name: string, value: string, isSecret: boolean): string {
    return this.#isPlain(value, isSecret || isCredentialName(name)) ? value : this.take(name, value, `env ${name}`);
  }

  header(name: string, value: string, isSecret: boolean): string {
    if (this.#isPlain(value, isSecret || isCredentialHeader(name) || isCredentialName(name))) return value;
    // The scheme says how it is used and may be seen.
    const scheme = SCHEME.exec(value)?.[0] ?? "";
    return `${scheme}${this.take(name, value.slice(scheme.length), `header ${name}`)}`;
  }

  args(values: readonly { text: string; isSecret: boolean }[]): string[] {
    const found = credentialsInArguments(values);
    return values.map(({ text }, i) => this.#lift(text, found[i] ?? [], `arg-${i + 1}`));
  }

  /** The program to start; some write its arguments behind it. */
  command(text: string): string {
    return this.#lift(text, credentialsInText(text), "command");
  }

  url(text: string, isSecret: boolean): string {
    const out = this.#lift(text, credentialsInUrl(text), "url");
    return out === text && isSecret ? this.take("url", text, "url") : out;
  }

  take(name: string, value: string, from: string): string {
    const cleaned = name.replace(/[^A-Za-z0-9_-]+/g, "-").replace(/^-+|-+$/g, "") || "secret";
    const same = this.lifted.find((each) => each.value === value);
    if (same) return `\${secret:${same.name}}`;
    const wanted = `${this.#server}.${cleaned}`.slice(0, 120);
    let free = wanted;
    for (let n = 2; this.lifted.some((each) => each.name === free); n++) free = `${wanted}-${n}`;
    this.lifted.push({ name: free, value, from });
    return `\${secret:${free}}`;
  }

  #lift(text: string, spans: readonly CredentialSpan[], fallback: string): string {
    return replaceSpans(text, spans, ({ name, from }, value) => this.take(name || fallback, value, from));
  }

  #isPlain(value: string, isKnown: boolean): boolean {
    return value === "" || !(isKnown || hasCredentialForm(value) || credentialsInText(value).length > 0);
  }
}

export interface Converted {
  /** As the application knows it. */
  readonly name: string;
  readonly found: FoundServer;
  readonly entry: ServerEntry;
  readonly lifted: readonly Lifted[];
  /** What was left out. */
  readonly notes: readonly string[];
  /** Why it cannot be taken over; then the rest does not count. */
  readonly problems: readonly string[];
}

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));
const KNOWN = words(
  "type transport command args env envFile cwd url serverUrl httpUrl headers disabled enabled timeout " +
    "http_headers env_http_headers bearer_token_env_var bearerToken env_vars tool_timeout_sec",
);
/** Of no consequence here: how the client shows it, and how long it waits for it to start. */
const SILENT = words("description icon gallery version name uuid source startup_timeout_sec startup_timeout_ms");

export function convert(found: FoundServer, name: string, variables: Variables): Converted {
  const reader = new Conversion(found, name, variables);
  const entry = reader.entry();
  return { name, found, entry, lifted: reader.lifter.lifted, notes: reader.notes, problems: reader.problems };
}

class Conversion {
  readonly problems: string[] = [];
  readonly notes: string[] = [];
  readonly lifter: Lifter;
  readonly #found: FoundServer;
  readonly #fields: JsonObject;
  readonly #variables: Variables;
  readonly #name: string;

  constructor(found: FoundServer, name: string, variables: Variables) {
    this.#found = found;
    this.#fields = found.fields;
    this.#variables = variables;
    this.#name = name;
    this.lifter = new Lifter(name);
  }

  entry(): ServerEntry {
    const { command, url, serverUrl, httpUrl } = this.#fields;
    const address = url ?? serverUrl ?? httpUrl;
    if ((command === undefined) === (address === undefined)) {
      this.problems.push("it needs either `command` or `url`");
      return {};
    }
    for (const field of Object.keys(this.#fields)) {
      if (!KNOWN.has(field) && !SILENT.has(field)) this.notes.push(`\`${field}\` is left out`);
    }
    const timeoutMs = this.#timeoutMs();
    return {
      ...(command === undefined ? this.#address(address as JsonValue) : this.#process(command)),
      // Its names stay the same when another server comes beside it.
      prefix: this.#name,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      noGuardrail: ["*"],
      ...(this.#fields.disabled === true || this.#fields.enabled === false ? { disabled: true } : {}),
    };
  }

  #process(command: JsonValue): ServerEntry {
    const { args, cwd } = this.#fields;
    const env = { ...this.#envFile(), ...this.#texts("env"), ...this.#forwarded() };
    const sealed = mapped(env, (name, { text, isSecret }) => this.lifter.env(name, text, isSecret));
    const given = cwd === undefined ? undefined : this.#text("cwd", cwd).text;
    // A client starts a project's server in the project's directory, and so does the gateway.
    const directory = given === undefined ? this.#found.project : this.#absolute(given);
    const list = args === undefined ? [] : args;
    if (!Array.isArray(list)) this.problems.push("`args` is not a list");
    const texts = Array.isArray(list) ? list.map((each, i) => this.#text(`args.${i}`, each)) : [];
    return {
      command: this.lifter.command(this.#text("command", command).text),
      ...(texts.length === 0 ? {} : { args: this.lifter.args(texts) }),
      ...(Object.keys(sealed).length === 0 ? {} : { env: sealed }),
      ...(directory === undefined ? {} : { cwd: directory }),
    };
  }

  #address(address: JsonValue): ServerEntry {
    const { text, isSecret } = this.#text("url", address);
    const headers = { ...this.#texts("headers"), ...this.#texts("http_headers"), ...this.#headersFromEnv() };
    const sealed = mapped(headers, (name, value) => this.lifter.header(name, value.text, value.isSecret));
    const token = this.#bearer();
    const transport = this.#transport();
    return {
      url: this.lifter.url(text, isSecret),
      ...(transport === undefined ? {} : { transport }),
      ...(Object.keys(sealed).length === 0 ? {} : { headers: sealed }),
      ...(token === undefined ? {} : { auth: { type: "bearer" as const, token } }),
    };
  }

  #transport(): ServerEntry["transport"] {
    const { type, transport } = this.#fields;
    const named = String(type ?? transport ?? "").toLowerCase();
    if (named === "sse") return "sse";
    if (named === "ws" || named === "websocket") return "websocket";
    if (named !== "" && !["http", "streamable-http", "streamablehttp", "streamable_http"].includes(named)) {
      this.problems.push(`unknown transport \`${named}\``);
    }
    return undefined;
  }

  /** Codex: the name of the variable that holds the token. MetaMCP: the token. */
  #bearer(): string | undefined {
    const { bearer_token_env_var: name, bearerToken } = this.#fields;
    if (typeof bearerToken === "string" && bearerToken !== "") {
      return this.lifter.take("bearerToken", this.#text("bearerToken", bearerToken).text, "bearerToken");
    }
    if (typeof name !== "string") return undefined;
    const value = this.#variables.named(name);
    return value && this.lifter.take(name, value.text, `variable ${name}`);
  }

  #headersFromEnv(): Record<string, Expanded> {
    const named = this.#plain("env_http_headers");
    const out: Record<string, Expanded> = {};
    for (const [header, name] of Object.entries(named)) {
      const value = this.#variables.named(name);
      if (value) out[header] = { ...value, isSecret: true };
    }
    return out;
  }

  /** Codex: names of variables that the server gets from the client's own environment. */
  #forwarded(): Record<string, Expanded> {
    const { env_vars: names } = this.#fields;
    const out: Record<string, Expanded> = {};
    for (const each of Array.isArray(names) ? names : []) {
      const name = isJsonObject(each) ? each.name : each;
      if (typeof name !== "string") continue;
      const value = this.#variables.named(name);
      if (value) out[name] = value;
    }
    return out;
  }

  #envFile(): Record<string, Expanded> {
    const { envFile } = this.#fields;
    if (envFile === undefined) return {};
    const file = this.#absolute(this.#text("envFile", envFile).text);
    try {
      const parsed = parseEnv(readFileSync(file, "utf8").replace(/^\uFEFF/, ""));
      return mapped(parsed as Record<string, string>, (_name, text) => ({ text, isSecret: false }));
    } catch (error) {
      this.problems.push(`\`envFile\` cannot be read (${(error as NodeJS.ErrnoException).code})`);
      return {};
    }
  }

  /** Codex counts seconds, others milliseconds. */
  #timeoutMs(): number | undefined {
    const { tool_timeout_sec: seconds, timeout } = this.#fields;
    const ms = typeof seconds === "number" ? seconds * 1_000 : timeout;
    if (typeof ms !== "number" || !(ms >= 1)) return undefined;
    return Math.min(Math.round(ms), 3_600_000);
  }

  #texts(field: string): Record<string, Expanded> {
    return mapped(this.#plain(field), (name, text) => this.#text(`${field}.${name}`, text));
  }

  #plain(field: string): Record<string, string> {
    const value = this.#fields[field];
    if (value === undefined || value === null) return {};
    if (!isJsonObject(value)) {
      this.problems.push(`\`${field}\` holds no names and values`);
      return {};
    }
    const out: [string, string][] = [];
    for (const [name, each] of Object.entries(value)) {
      // VS Code: a variable without a value is not handed on.
      if (each === null) continue;
      if (typeof each === "string" || typeof each === "number" || typeof each === "boolean")
        out.push([name, String(each)]);
      else this.problems.push(`\`${field}.${name}\` is not text`);
    }
    return Object.fromEntries(out);
  }

  #text(field: string, value: JsonValue | undefined): Expanded {
    if (typeof value !== "string") {
      this.problems.push(`\`${field}\` is not text`);
      return { text: "", isSecret: false };
    }
    const literal = isLiteral(this.#found.dialect);
    const expanded = literal ? { text: value, isSecret: false } : this.#variables.expand(value);
    // Whatever it came from, in the store it would be taken for a reference.
    if (/\$\{(secret|env):/.test(expanded.text) && (literal || this.#variables.missing.size === 0)) {
      this.problems.push(`\`${field}\` would be read as a reference to a secret or a variable`);
    }
    return expanded;
  }

  #absolute(path: string): string {
    return isAbsolute(path) || win32.isAbsolute(path) ? path : join(this.#found.project ?? process.cwd(), path);
  }
}

function mapped<T, U>(record: Readonly<Record<string, T>>, change: (name: string, value: T) => U): Record<string, U> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(name, value)]));
}
