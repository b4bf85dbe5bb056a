import { BudgetExceeded } from "../budget.js";

export type JsonSchema = boolean | { readonly [keyword: string]: unknown };
export type Dialect = "draft-07" | "2020-12";

const DIALECTS: Record<string, Dialect> = {
  "http://json-schema.org/draft-07/schema": "draft-07",
  "https://json-schema.org/draft/2020-12/schema": "2020-12",
};

/** The dialect a schema declares, `fallback` when it declares none, undefined when it is one not handled here. */
export function dialectOf(schema: unknown, fallback: Dialect): Dialect | undefined {
  const declared = isObject(schema) ? schema.$schema : undefined;
  if (declared === undefined) return fallback;
  if (typeof declared !== "string") return undefined;
  return DIALECTS[declared.replace(/#$/, "")];
}

export function isObject(value: unknown): value is { readonly [key: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const SCHEMA = ["additionalProperties", "propertyNames", "items", "additionalItems", "contains", "not", "if", "then"];
const ONE = new Set([...SCHEMA, "else", "unevaluatedItems", "unevaluatedProperties", "contentSchema"]);
const MANY = new Set(["allOf", "anyOf", "oneOf", "prefixItems", "items"]);
const NAMED = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]);

const MAX_DEPTH = 256;
const ROOT = "https://schema.invalid/";

/** One place in a document: what stands there and the address that relative references there start from. */
export interface Place {
  readonly schema: unknown;
  readonly base: string;
  readonly document: SchemaDocument;
}

/** One schema document with its embedded resources and anchors, so that references can be followed inside it. */
export class SchemaDocument {
  readonly root: unknown;
  readonly dialect: Dialect;
  readonly address: string;
  /** Equal text, equal meaning: what makes places in two copies of one document the same. */
  readonly fingerprint: string;
  readonly #resources = new Map<string, object>();
  readonly #anchors = new Map<string, object>();
  readonly #dynamic = new Set<string>();
  readonly #bases = new Map<object, string>();
  readonly #paths = new Map<object, string>();

  constructor(root: unknown, dialect: Dialect, address = ROOT) {
    this.root = root;
    this.dialect = dialect;
    this.fingerprint = `${dialect} ${JSON.stringify(root)}`;
    if (isObject(root)) this.#resources.set(address, root);
    this.#walk(root, address, "", true, 0);
    this.address = isObject(root) ? (this.#bases.get(root) ?? address) : address;
  }

  get hasDynamicAnchors(): boolean {
    return this.#dynamic.size > 0;
  }

  addresses(): Iterable<string> {
    return this.#resources.keys();
  }

  #walk(value: unknown, base: string, path: string, isSchema: boolean, depth: number): void {
    if (typeof value !== "object" || value === null) return;
    if (depth > MAX_DEPTH) throw new BudgetExceeded(`the schema is nested deeper than ${MAX_DEPTH} levels`);
    const here = isSchema && isObject(value) ? this.#identify(value, base) : base;
    this.#bases.set(value, here);
    this.#paths.set(value, path);
    for (const [key, inner] of Object.entries(value)) {
      const at = `${path}/${key}`;
      if (isSchema && NAMED.has(key) && isObject(inner)) {
        this.#bases.set(inner, here);
        this.#paths.set(inner, at);
        for (const [name, part] of Object.entries(inner)) this.#walk(part, here, `${at}/${name}`, true, depth + 1);
      } else if (isSchema && MANY.has(key) && Array.isArray(inner)) {
        this.#bases.set(inner, here);
        for (const [i, part] of inner.entries()) this.#walk(part, here, `${at}/${i}`, true, depth + 1);
      } else {
        this.#walk(inner, here, at, isSchema && ONE.has(key), depth + 1);
      }
    }
  }

  #identify(schema: { readonly [key: string]: unknown }, base: string): string {
    let here = base;
    const ignored = this.dialect === "draft-07" && schema.$ref !== undefined;
    if (typeof schema.$id === "string" && !ignored) {
      const { address, fragment } = split(schema.$id, base);
      here = address;
      if (fragment === "") this.#resources.set(here, schema);
      else this.#anchors.set(`${here}#${fragment}`, schema);
      if (fragment !== "") here = base;
    }
    if (this.dialect === "2020-12") {
      if (typeof schema.$anchor === "string") this.#anchors.set(`${here}#${schema.$anchor}`, schema);
      if (typeof schema.$dynamicAnchor === "string") {
        this.#anchors.set(`${here}#${schema.$dynamicAnchor}`, schema);
        this.#dynamic.add(`${here}#${schema.$dynamicAnchor}`);
      }
    }
    return here;
  }

  place(schema: unknown, fallback: string): Place {
    const base = typeof schema === "object" && schema !== null ? this.#bases.get(schema) : undefined;
    return { schema, base: base ?? fallback, document: this };
  }

  /** The path from the root, as it would stand in a reference. */
  pathOf(schema: object): string {
    return this.#paths.get(schema) ?? "";
  }

  find(address: string, fragment: string): Place | undefined {
    const resource = this.#resources.get(address);
    if (fragment !== "" && !fragment.startsWith("/")) {
      const anchored = this.#anchors.get(`${address}#${fragment}`);
      return anchored === undefined ? undefined : this.place(anchored, address);
    }
    if (resource === undefined) return undefined;
    let at: unknown = resource;
    let base = address;
    for (const step of fragment === "" ? [] : fragment.slice(1).split("/")) {
      if (typeof at !== "object" || at === null) return undefined;
      base = this.#bases.get(at) ?? base;
      const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
      at = Object.hasOwn(at, key) ? (at as Record<string, unknown>)[key] : undefined;
      if (at === undefined) return undefined;
    }
    return this.place(at, base);
  }

  isDynamic(address: string, fragment: string): boolean {
    return this.#dynamic.has(`${address}#${fragment}`);
  }
}

/** An absolute address without its fragment, and the fragment decoded. */
export function split(reference: string, base: string): { address: string; fragment: string } {
  let url: URL;
  try {
    url = new URL(reference, base);
  } catch {
    return { address: reference, fragment: "" };
  }
  const fragment = url.hash.slice(1);
  url.hash = "";
  try {
    return { address: url.href, fragment: decodeURIComponent(fragment) };
  } catch {
    return { address: url.href, fragment };
  }
}
