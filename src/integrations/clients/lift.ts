// Credentials are lifted out of texts: the text keeps a reference, the value goes to be sealed. Every other character
// stays as it was.

import {
  credentialsInArguments,
  credentialsInText,
  credentialsInUrl,
  hasCredentialForm,
  isCredentialHeader,
  isCredentialName,
  replaceSpans,
  type CredentialSpan,
} from "../../storage/index.js";

export interface Lifted {
  readonly name: string;
  /** Never shown, never written anywhere but into the store, sealed. */
  readonly value: string;
  /** Where it stood, for the person who reads the difference. */
  readonly from: string;
}

const SCHEME = /^(?:Bearer|Basic|Token|ApiKey)\s+(?=\S)/i;

export class Lifter {
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
