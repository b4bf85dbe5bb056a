// Position of credentials in a text: in arguments, addresses, scripts. Removing one keeps every other character
// unchanged, and the server's command or address stays visible.

import { hasCredentialForm, isCredentialHeader, isCredentialName, markedTokens } from "./hide.js";

export interface CredentialSpan {
  readonly start: number;
  readonly end: number;
  /** What it goes by; empty when it has no name. */
  readonly name: string;
  readonly from: string;
}

/** One of the arguments a program is started with. */
export interface Argument {
  readonly text: string;
  /** Known to be secret, by where it came from. */
  readonly isSecret: boolean;
}

const REFERENCE = /\$\{(?:secret|env):[^}]*\}/g;
/** Stands for a reference while credentials are looked for; no text has it. */
const REFERRED = "\u0000";

/** `--api-key X`, `--api-key=X`, `-e NAME=X`, `Authorization: Bearer X`, `https://u:X@h`, or what has the form by itself. */
export function credentialsInArguments(values: readonly Argument[]): CredentialSpan[][] {
  let before = "";
  return values.map(({ text, isSecret }, i) => {
    const after = before;
    before = text;
    const masked = mask(text);
    const finder = new Finder(masked, `argument ${i + 1}`);
    finder.argument(isSecret, OPTION.test(after) || SCRIPT_FOLLOWS.test(after) ? after : "");
    return finder.spans();
  });
}

/** In a text of any kind: a script, a value of the environment, a file that is handed over as JSON. */
export function credentialsInText(text: string): CredentialSpan[] {
  const finder = new Finder(mask(text), "text");
  finder.within(0, text.length);
  return finder.spans();
}

export function credentialsInUrl(text: string): CredentialSpan[] {
  const finder = new Finder(mask(text), "url");
  finder.url(0, text.length);
  return finder.spans();
}

/** The text with each of them replaced. */
export function replaceSpans(
  text: string,
  spans: readonly CredentialSpan[],
  replacement: (span: CredentialSpan, value: string) => string,
) {
  let out = "";
  let at = 0;
  for (const span of spans) {
    out += text.slice(at, span.start) + replacement(span, text.slice(span.start, span.end));
    at = span.end;
  }
  return out + text.slice(at);
}

function mask(text: string): string {
  return text.replace(REFERENCE, (whole) => REFERRED.repeat(whole.length));
}

const OPTION = /^--?[A-Za-z][A-Za-z0-9_-]*$/;
const OPTION_AND_VALUE = /^(--?[A-Za-z][A-Za-z0-9_.-]*)=/;
/** As `docker run` takes it: the option and its value in one argument. */
const SHORT_ENV = /^-e(?=[A-Za-z_][A-Za-z0-9_]*=)/;
/** What comes next is read by a shell, which splits it into words. */
const SCRIPT_FOLLOWS = /^(-[a-z]*c|\/[ck]|-command)$/i;
const PAIR = /^([A-Za-z_][A-Za-z0-9_.-]{0,127})=/;
const HEADER = /^([A-Za-z0-9_-]{1,64}):[ \t]*(?=\S)/;
const SCHEME = /^(?:Bearer|Basic|Token|ApiKey)\s+(?=\S)/i;
const URL_BEGINS = /^[a-z][a-z0-9+.-]*:\/\//i;

const URLS = /[a-z][a-z0-9+.-]{0,31}:\/\/[^\s"'`<>]+/gi;
const VALUE = `"([^"]*)"|'([^']*)'|([^\\s"';&|]+)`;
const PAIRS = new RegExp(`(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_.-]{0,127})=(?:${VALUE})`, "dg");
const OPTIONS = new RegExp(`(?<![\\w-])(--?[A-Za-z][A-Za-z0-9_-]{0,127})(?:=|[ \\t]+)(?!-)(?:${VALUE})`, "dg");
const HEADERS =
  /(?<![\w./\\-])([A-Za-z][A-Za-z0-9-]{0,63}):[ \t]*(?:(?:Bearer|Basic|Token|ApiKey)[ \t]+)?([^\s"'`;&|/\\][^\s"'`;&|]*)/dgi;
const BEARERS = /(?<!\w)Bearer[ \t]+([A-Za-z0-9._~+/=-]{8,})/dgi;
const FIELDS = /"([^"\\]{1,128})"\s*:\s*"(?:(?:Bearer|Basic|Token|ApiKey) +)?((?:[^"\\]|\\.)+)"/dgi;

class Finder {
  readonly #text: string;
  readonly #place: string;
  readonly #found: CredentialSpan[] = [];

  constructor(text: string, place: string) {
    this.#text = text;
    this.#place = place;
  }

  /** In order, none inside of another, and nothing that is a reference already. */
  spans(): CredentialSpan[] {
    const sorted = this.#found.toSorted((a, b) => a.start - b.start || b.end - a.end);
    const out: CredentialSpan[] = [];
    for (const span of sorted) {
      const last = out.at(-1);
      if (!last || span.start >= last.end) out.push(span);
      // Two ways to see it that overlap: all of it goes.
      else if (span.end > last.end) out[out.length - 1] = { ...last, end: span.end };
    }
    return out;
  }

  argument(isSecret: boolean, option: string): void {
    const { length } = this.#text;
    if (!isSecret && SCRIPT_FOLLOWS.test(option)) return this.within(0, length);
    const short = SHORT_ENV.exec(this.#text)?.[0].length;
    if (short !== undefined) return this.#value(short, isSecret, "");
    const [whole, name = ""] = OPTION_AND_VALUE.exec(this.#text) ?? [];
    if (whole !== undefined) {
      if (isSecret || isCredentialName(name)) return this.#take(whole.length, length, bare(name), `argument ${name}`);
      return this.#value(whole.length, false, bare(name));
    }
    // An option that is given no value here. What stands for a secret is none of them.
    if (OPTION.test(this.#text) && !isSecret) return this.#marked(0, length, "");
    this.#value(0, isSecret, option);
  }

  /** What an option is given, or what stands alone. */
  #value(start: number, isSecret: boolean, option: string): void {
    const { length } = this.#text;
    const rest = this.#text.slice(start);
    const [header, headerName = ""] = URL_BEGINS.test(rest) ? [] : (HEADER.exec(rest) ?? []);
    if (header !== undefined && isHeaderOption(option)) {
      return this.#header(headerName, start + header.length, isSecret);
    }
    if (isCredentialName(option)) return this.#take(start, length, bare(option), `argument ${option}`);
    const [pair, name = ""] = PAIR.exec(rest) ?? [];
    if (pair !== undefined) {
      const from = start + pair.length;
      const value = rest.slice(pair.length);
      const isOne = isSecret || isCredentialName(name) || (hasCredentialForm(value) && !URL_BEGINS.test(value));
      return isOne ? this.#take(from, length, name, `${this.#place}, ${name}`) : this.within(from, length);
    }
    // `secrets:/run/secrets` is a directory that a container is given.
    const isFolder = header?.endsWith(":") && /^[\\/]/.test(rest.slice(header.length));
    if (header !== undefined && !isFolder && (isCredentialHeader(headerName) || isCredentialName(headerName))) {
      return this.#header(headerName, start + header.length, isSecret);
    }
    if (isSecret) return this.#take(start, length, bare(option), `argument ${option || this.#place.slice(9)}`);
    this.within(start, length);
  }

  #header(name: string, start: number, isSecret: boolean): void {
    const value = this.#text.slice(start);
    const scheme = SCHEME.exec(value)?.[0].length ?? 0;
    const isOne = isSecret || isCredentialHeader(name) || isCredentialName(name) || hasCredentialForm(value);
    if (isOne) this.#take(start + scheme, this.#text.length, name, `header ${name}`);
    else this.within(start, this.#text.length);
  }

  within(start: number, end: number): void {
    const text = this.#text.slice(start, end);
    if (URL_BEGINS.test(text) && !/\s/.test(text)) return this.url(start, end);
    if (hasCredentialForm(text)) return this.#take(start, end, "", this.#place);
    for (const { index, 0: url } of text.matchAll(URLS)) this.url(start + index, start + index + url.length);
    for (const form of [PAIRS, OPTIONS, HEADERS, FIELDS]) {
      for (const match of text.matchAll(form)) this.#named(match, start);
    }
    for (const { indices } of text.matchAll(BEARERS)) {
      const [from, to] = indices?.[1] ?? [0, 0];
      this.#take(start + from, start + to, "", `${this.#place}, Bearer`);
    }
    this.#marked(start, end, "");
  }

  #named({ 1: name = "", indices }: RegExpExecArray, start: number): void {
    const place = indices?.slice(2).find((each) => each !== undefined);
    if (!place || !(isCredentialName(name) || isCredentialHeader(name))) return;
    // `https://…` is not a header named https, and `//host` is not a value.
    if (this.#text.startsWith("//", start + place[0]) && this.#text[start + place[0] - 1] === ":") return;
    this.#take(start + place[0], start + place[1], bare(name), `${this.#place}, ${name}`);
  }

  /** Only the secret part: an operator should see the rest of the address. */
  url(start: number, end: number): void {
    const text = this.#text.slice(start, end);
    const place = this.#place === "url" ? "" : `${this.#place}, `;
    const taken = (from: number, to: number, name: string, what: string): void =>
      this.#take(start + from, start + to, name, `${place}${what} of the url`);
    const scheme = URL_BEGINS.exec(text)?.[0].length ?? 0;
    const user = userInfo(text, scheme);
    if (user) {
      const colon = text.indexOf(":", scheme);
      if (colon >= 0 && colon < user) taken(colon + 1, user, "url-password", "the password");
      else if (hasCredentialForm(text.slice(scheme, user))) taken(scheme, user, "url-user", "the user");
    }
    const mark = text.search(/[?#]/);
    let at = mark < 0 ? text.length : mark;
    for (const part of partsOf(text, (user ?? scheme) + 1, at, "/")) {
      if (hasCredentialForm(part.text)) taken(part.start, part.end, "url-path", "the path");
    }
    for (const pair of partsOf(text, ++at, text.length, "&;#?")) {
      const equals = pair.text.indexOf("=");
      const name = equals < 0 ? "" : decoded(pair.text.slice(0, equals));
      if (isCredentialName(name) || hasCredentialForm(pair.text.slice(equals + 1)))
        taken(pair.start + equals + 1, pair.end, name, `parameter ${name}`);
    }
    this.#marked(start, end, "url");
  }

  #marked(start: number, end: number, name: string): void {
    for (const [from, to] of markedTokens(this.#text.slice(start, end))) {
      this.#take(start + from, start + to, name, this.#place);
    }
  }

  #take(start: number, end: number, name: string, from: string): void {
    if (start >= end || this.#text.slice(start, end).includes(REFERRED)) return;
    this.#found.push({ start, end, name, from });
  }
}

/** Where user and password end: at the last `@` before the path, or further on when the password holds a `/`. */
function userInfo(text: string, scheme: number): number | undefined {
  const authority = text.slice(scheme).split(/[/?#]/, 1)[0] as string;
  const at = authority.lastIndexOf("@");
  if (at >= 0) return scheme + at;
  const loose = /^[^:/?#@\s]+:(?!\d{1,5}(?:[/?#]|$))[^@]+(?=@)/.exec(text.slice(scheme))?.[0].length;
  return loose === undefined ? undefined : scheme + loose;
}

function* partsOf(text: string, start: number, end: number, separators: string) {
  for (let from = start; from < end; ) {
    let to = from;
    while (to < end && !separators.includes(text[to] as string)) to++;
    yield { start: from, end: to, text: text.slice(from, to) };
    from = to + 1;
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function isHeaderOption(option: string): boolean {
  return /^-{0,2}(h|headers?)$/i.test(option);
}

function bare(option: string): string {
  return option.replace(/^-+/, "");
}
