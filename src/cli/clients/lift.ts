// Credentials are lifted out of texts: the text keeps a reference, the value goes to be sealed.

import { hasCredentialForm, isCredentialHeader, isCredentialName } from "./credentials.js";

export interface Lifted {
  readonly name: string;
  /** Never shown, never written anywhere but into the store, sealed. */
  readonly value: string;
  /** Where it stood, for the person who reads the difference. */
  readonly from: string;
}

const SCHEME = /^(Bearer|Basic|Token|ApiKey)\s+(\S.*)$/i;
const FLAG = /^(--?[A-Za-z][A-Za-z0-9_-]*)(?:=([\s\S]*))?$/;

export class Lifter {
  readonly lifted: Lifted[] = [];
  readonly #server: string;

  constructor(server: string) {
    this.#server = server;
  }

  env(name: string, value: string, isSecret: boolean): string {
    if (value === "" || !(isSecret || isCredentialName(name) || hasCredentialForm(value))) return value;
    return this.take(name, value, `env ${name}`);
  }

  header(name: string, value: string, isSecret: boolean): string {
    if (value === "") return value;
    if (!(isSecret || isCredentialHeader(name) || isCredentialName(name) || hasCredentialForm(value))) return value;
    // The scheme says how it is used and may be seen.
    const [, scheme, rest] = SCHEME.exec(value) ?? [];
    const from = `header ${name}`;
    return scheme === undefined ? this.take(name, value, from) : `${scheme} ${this.take(name, rest as string, from)}`;
  }

  /** `--api-key X`, `--api-key=X`, `Authorization: Bearer X`, or something that has the form by itself. */
  args(values: readonly { text: string; isSecret: boolean }[]): string[] {
    let before = "";
    return values.map(({ text, isSecret }, i) => {
      const flag = before;
      const [, name, value] = FLAG.exec(text) ?? [];
      before = name !== undefined && value === undefined ? name : "";
      if (name !== undefined && value !== undefined && value !== "") {
        const isOne = isSecret || isCredentialName(name) || hasCredentialForm(value);
        return isOne
          ? `${name}=${this.take(bare(name), value, `argument ${name}`)}`
          : `${name}=${this.#within(value, i)}`;
      }
      if (name !== undefined) return text;
      const header = /^([A-Za-z0-9-]{1,64}):\s*(\S[\s\S]*)$/.exec(text);
      if (header && !text.includes("://")) {
        return `${header[1]}: ${this.header(header[1] as string, header[2] as string, isSecret)}`;
      }
      if (isSecret || isCredentialName(flag))
        return this.take(bare(flag) || `arg-${i + 1}`, text, `argument ${flag || i + 1}`);
      return this.#within(text, i);
    });
  }

  /** Only what is secret in it: a person should see where it leads. */
  url(text: string, isSecret: boolean): string {
    let parts: URL;
    try {
      parts = new URL(text);
    } catch {
      return isSecret ? this.take("url", text, "url") : text;
    }
    let out = text;
    const lift = (name: string, raw: string, from: string): void => {
      if (raw !== "") out = out.replace(raw, () => this.take(name, raw, from));
    };
    if (parts.password !== "") lift("url-password", parts.password, "the password in the url");
    for (const pair of parts.search.slice(1).split("&")) {
      const [name = "", value = ""] = pair.split("=", 2);
      if (isCredentialName(name) || hasCredentialForm(value)) lift(name, value, `url parameter ${name}`);
    }
    for (const part of parts.pathname.split("/")) {
      if (hasCredentialForm(part)) lift("url-path", part, "the path of the url");
    }
    if (out === text && isSecret) return this.take("url", text, "url");
    return out;
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

  #within(text: string, i: number): string {
    if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return this.url(text, false);
    return hasCredentialForm(text) ? this.take(`arg-${i + 1}`, text, `argument ${i + 1}`) : text;
  }
}

function bare(flag: string): string {
  return flag.replace(/^-+/, "");
}
