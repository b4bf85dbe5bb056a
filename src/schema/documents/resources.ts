import type { Dialect } from "./dialect.js";
import { escapePointer, unescapePointer } from "./pointer.js";
import { subschemas } from "./subschemas.js";

/** The address of a document that names none. */
export const HOME = "https://schema.invalid/";

export interface ResourceLimits {
  readonly maxDepth: number;
  readonly maxValues: number;
  /** Throws the error of the caller's module. */
  exceeded(limit: "maxDepth" | "maxValues", max: number): never;
}

interface Item {
  readonly value: unknown;
  readonly base: string;
  readonly pointer: string;
  readonly depth: number;
  readonly isSchema: boolean;
}

/** `SchemaResources` indexes a document: the resources and anchors in it, and the base and the place of every value. */
export class SchemaResources {
  readonly #dialect: Dialect;
  readonly #resources = new Map<string, object>();
  readonly #anchors = new Map<string, object>();
  readonly #dynamic = new Set<string>();
  readonly #bases = new Map<object, string>();
  readonly #pointers = new Map<object, string>();

  constructor(root: unknown, dialect: Dialect, limits: ResourceLimits, address = HOME) {
    this.#dialect = dialect;
    if (typeof root === "object" && root !== null) this.#resources.set(address, root);
    this.#index({ value: root, base: address, pointer: "", depth: 0, isSchema: true }, limits);
  }

  get hasDynamicAnchors(): boolean {
    return this.#dynamic.size > 0;
  }

  get hasSeveralResources(): boolean {
    return new Set(this.#resources.values()).size > 1;
  }

  addresses(): Iterable<string> {
    return this.#resources.keys();
  }

  /** The address that relative references in a value start from. */
  baseOf(value: unknown): string | undefined {
    return typeof value === "object" && value !== null ? this.#bases.get(value) : undefined;
  }

  pointerOf(value: object): string {
    return this.#pointers.get(value) ?? "";
  }

  isDynamic(address: string, fragment: string): boolean {
    return this.#dynamic.has(`${address}#${fragment}`);
  }

  /** What an address and a fragment point at in this document, with the base of the value around it. */
  find(address: string, fragment: string): { readonly value: unknown; readonly base: string } | undefined {
    if (fragment !== "" && !fragment.startsWith("/")) {
      const anchored = this.#anchors.get(`${address}#${fragment}`);
      return anchored === undefined ? undefined : { value: anchored, base: address };
    }
    let value: unknown = this.#resources.get(address);
    let base = address;
    for (const step of fragment === "" ? [] : fragment.slice(1).split("/")) {
      const key = unescapePointer(step);
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
      base = this.#bases.get(value) ?? base;
      value = (value as Record<string, unknown>)[key];
    }
    return value === undefined ? undefined : { value, base };
  }

  /** Iterative: the depth of a document is its author's choice. */
  #index(root: Item, limits: ResourceLimits): void {
    const pending: Item[] = [root];
    let values = 0;
    for (let item = pending.pop(); item !== undefined; item = pending.pop()) {
      const { value, pointer, depth } = item;
      if (++values + pending.length > limits.maxValues) limits.exceeded("maxValues", limits.maxValues);
      if (depth > limits.maxDepth) limits.exceeded("maxDepth", limits.maxDepth);
      if (typeof value !== "object" || value === null) continue;
      const isSchema = item.isSchema && !Array.isArray(value);
      const base = isSchema ? this.#identify(value as Record<string, unknown>, item.base) : item.base;
      this.#bases.set(value, base);
      this.#pointers.set(value, pointer);
      for (const [key, inner] of Object.entries(value)) {
        const at = `${pointer}/${escapePointer(key)}`;
        const schemas = isSchema ? [...subschemas(key, inner)] : [];
        const isDirect = schemas.length === 1 && schemas[0]?.[0].length === 1;
        if (schemas.length === 0 || isDirect) {
          pending.push({ value: inner, base, pointer: at, depth: depth + 1, isSchema: isDirect });
          continue;
        }
        // A list or an object that holds schemas is not one itself.
        values++;
        this.#bases.set(inner as object, base);
        this.#pointers.set(inner as object, at);
        for (const [[, name = ""], schema] of schemas) {
          const pointer = `${at}/${escapePointer(name)}`;
          pending.push({ value: schema, base, pointer, depth: depth + 2, isSchema: true });
        }
      }
    }
  }

  #identify(schema: Record<string, unknown>, base: string): string {
    let here = base;
    // In draft-07 nothing beside a `$ref` counts.
    if (typeof schema.$id === "string" && !(this.#dialect === "draft-07" && schema.$ref !== undefined)) {
      const { address, fragment } = splitReference(schema.$id, base);
      if (fragment === "") {
        here = address;
        this.#resources.set(here, schema);
      } else this.#anchors.set(`${address}#${fragment}`, schema);
    }
    if (this.#dialect === "2020-12") {
      for (const name of [schema.$anchor, schema.$dynamicAnchor]) {
        if (typeof name === "string") this.#anchors.set(`${here}#${name}`, schema);
      }
      if (typeof schema.$dynamicAnchor === "string") this.#dynamic.add(`${here}#${schema.$dynamicAnchor}`);
    }
    return here;
  }
}

/** An absolute address without its fragment, and the fragment decoded. */
export function splitReference(reference: string, base: string): { address: string; fragment: string } {
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
