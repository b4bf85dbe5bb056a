// URI templates, a part of RFC 6570: `{name}`, `{+path}`, `{/segment}` and, at the end, `{?a,b}`. Matching fills a
// table from the right, one row for each part of the template, so it takes time in proportion to the URI and never
// goes back.

import { DefinitionError } from "../../schema/index.js";

const MAX_TEMPLATE = 2_000;
const MAX_PARTS = 40;
const MAX_URI = 8_192;

type Part =
  | { kind: "literal"; text: string }
  /** `simple` stops at `/`, `?` and `#`; `segment` is `/` and such a value, or nothing; `reserved` takes anything. */
  | { kind: "simple" | "reserved" | "segment"; name: string };

export class UriTemplate {
  readonly template: string;
  readonly #parts: Part[] = [];
  readonly #query: string[] = [];

  constructor(template: string) {
    this.template = template;
    if (template.length > MAX_TEMPLATE) throw this.#error(`is longer than ${MAX_TEMPLATE} characters`);
    for (const piece of template.split(/(\{[^{}]*\})/)) {
      if (piece === "") continue;
      if (this.#query.length > 0) throw this.#error("must end with its query expression");
      if (piece.startsWith("{")) this.#expression(piece.slice(1, -1));
      else if (/[{}]/.test(piece)) throw this.#error("has a brace without its partner");
      else this.#parts.push({ kind: "literal", text: piece });
    }
    if (this.#parts.length > MAX_PARTS) throw this.#error(`has more than ${MAX_PARTS} parts`);
    this.#checkNames();
  }

  /** Names of the variables, in order. */
  get variables(): string[] {
    return [...this.#parts.flatMap((part) => (part.kind === "literal" ? [] : [part.name])), ...this.#query];
  }

  /** The variables of a URI, percent-decoded, or undefined when it does not match. */
  match(uri: string): Record<string, string> | undefined {
    if (uri.length > MAX_URI) return undefined;
    const [path, query] = this.#query.length === 0 ? [uri, undefined] : cut(uri, "?");
    const found = this.#matchPath(path);
    if (found === undefined || query === undefined) return found;
    for (const pair of query.split("&")) {
      const [key, value = ""] = cut(pair, "=");
      if (!this.#query.includes(key) || Object.hasOwn(found, key)) return undefined;
      const decoded = decode(value.replaceAll("+", "%20"));
      if (decoded === undefined) return undefined;
      found[key] = decoded;
    }
    return found;
  }

  expand(values: Readonly<Record<string, string | undefined>>): string {
    let uri = "";
    for (const part of this.#parts) {
      if (part.kind === "literal") uri += part.text;
      else {
        const value = values[part.name];
        if (value === undefined) continue;
        if (part.kind === "reserved") uri += encodeURI(value);
        else uri += (part.kind === "segment" ? "/" : "") + encodeURIComponent(value);
      }
    }
    const pairs = this.#query.flatMap((name) => {
      const value = values[name];
      return value === undefined ? [] : [`${name}=${encodeURIComponent(value)}`];
    });
    return pairs.length === 0 ? uri : `${uri}?${pairs.join("&")}`;
  }

  /** `fits[part][at]`: can the rest of the parts read the rest of the URI from here? Filled from the right. */
  #matchPath(uri: string): Record<string, string> | undefined {
    const rows = this.#parts.length + 1;
    const fits = Array.from({ length: rows }, () => new Uint8Array(uri.length + 2));
    (fits[rows - 1] as Uint8Array)[uri.length] = 1;
    for (let row = rows - 2; row >= 0; row--) {
      fill(this.#parts[row] as Part, uri, fits[row] as Uint8Array, fits[row + 1] as Uint8Array);
    }
    if (fits[0]?.[0] !== 1) return undefined;
    const found: Record<string, string> = {};
    let at = 0;
    for (const [row, part] of this.#parts.entries()) {
      const next = fits[row + 1] as Uint8Array;
      if (part.kind === "literal") {
        at += part.text.length;
        continue;
      }
      if (part.kind === "segment" && next[at] === 1) continue;
      const start = part.kind === "segment" ? at + 1 : at;
      let end = start + 1;
      while (next[end] !== 1) end++;
      const value = decode(uri.slice(start, end));
      if (value === undefined) return undefined;
      found[part.name] = value;
      at = end;
    }
    return found;
  }

  #expression(inside: string): void {
    const [, operator = "", names = ""] = /^([^A-Za-z0-9_]?)(.*)$/s.exec(inside) ?? [];
    const list = names.split(",");
    const bad = list.find((name) => !/^[A-Za-z0-9_.]{1,64}$/.test(name));
    if (bad !== undefined)
      throw this.#error(`has the expression {${inside}}, which is not one of {name} {+name} {/name} {?a,b}`);
    if (operator === "?") {
      this.#query.push(...list);
      return;
    }
    const kind = operator === "" ? "simple" : operator === "+" ? "reserved" : operator === "/" ? "segment" : undefined;
    const [name] = list;
    if (kind === undefined || name === undefined || list.length > 1) {
      throw this.#error(`has the expression {${inside}}; only {name}, {+name}, {/name} and {?a,b} are understood`);
    }
    const before = this.#parts.at(-1);
    if (before !== undefined && before.kind !== "literal" && kind !== "segment") {
      throw this.#error(`has {${inside}} right after another variable, so where one ends is anybody's guess`);
    }
    this.#parts.push({ kind, name });
  }

  #checkNames(): void {
    const { variables } = this;
    const twice = variables.find((name, index) => variables.indexOf(name) !== index);
    if (twice !== undefined) throw this.#error(`uses the variable ${twice} twice`);
    if (variables.length === 0) throw this.#error("has no variable; offer it as a plain resource");
  }

  #error(reason: string): DefinitionError {
    return new DefinitionError(`URI template \`${this.template.slice(0, 100)}\` ${reason}`);
  }
}

function fill(part: Part, uri: string, row: Uint8Array, next: Uint8Array): void {
  if (part.kind === "literal") {
    for (let at = 0; at + part.text.length <= uri.length; at++) {
      if (next[at + part.text.length] === 1 && uri.startsWith(part.text, at)) row[at] = 1;
    }
    return;
  }
  // `reach` at a place: a value of at least one character may start here and end where the next part fits.
  let reach = 0;
  for (let at = uri.length; at >= 0; at--) {
    if (part.kind === "segment") row[at] = next[at] === 1 || (uri[at] === "/" && reach === 1) ? 1 : 0;
    const allowed = at < uri.length && (part.kind === "reserved" || !"/?#".includes(uri[at] as string));
    reach = allowed && (next[at + 1] === 1 || reach === 1) ? 1 : 0;
    if (part.kind !== "segment") row[at] = reach;
  }
}

function cut(text: string, at: string): [string, string | undefined] {
  const index = text.indexOf(at);
  return index === -1 ? [text, undefined] : [text.slice(0, index), text.slice(index + 1)];
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
