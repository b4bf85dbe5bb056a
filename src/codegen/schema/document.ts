// One schema document: its dialect, and what each reference in it points at. Nothing is ever fetched.

import { isJsonObject, type JsonObject, type JsonValue } from "../../protocol/index.js";
import { CodegenError } from "../errors.js";
import type { CodegenLimits } from "../limits.js";

export type Dialect = "draft-07" | "2020-12";

const DIALECTS: readonly (readonly [RegExp, Dialect, exact: boolean])[] = [
  [/^https?:\/\/json-schema\.org\/draft-07\/schema#?$/, "draft-07", true],
  [/^https?:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/, "2020-12", true],
  [/^https?:\/\/json-schema\.org\/draft-0[346]\/schema#?$/, "draft-07", false],
  [/^https?:\/\/json-schema\.org\/schema#?$/, "2020-12", false],
  [/^https?:\/\/json-schema\.org\/draft\/2019-09\/schema#?$/, "2020-12", false],
];

const HOLDS_NAMED = new Set([
  "properties",
  "patternProperties",
  "$defs",
  "definitions",
  "dependentSchemas",
  "dependencies",
]);
const HOLDS_DATA = new Set(["enum", "const", "default", "examples", "example"]);

const HOME = "https://schema.invalid/";

export class SchemaDocument {
  readonly root: JsonValue;
  readonly dialect: Dialect;
  /** The schema names no dialect; `dependencies` of older ones holds in it too. */
  readonly isUndeclared: boolean;
  /** Set when the declared dialect is not one of the two, and the nearest was taken. */
  readonly foreign: string | undefined;
  readonly #resources = new Map<string, JsonValue>();
  readonly #anchors = new Map<string, JsonObject>();
  readonly #bases = new Map<object, string>();
  readonly #pointers = new Map<object, string>();

  constructor(root: JsonValue, where: string, limits: CodegenLimits) {
    const declared = isJsonObject(root) ? root.$schema : undefined;
    const known = typeof declared === "string" ? DIALECTS.find(([form]) => form.test(declared)) : undefined;
    this.root = root;
    this.dialect = known?.[1] ?? "2020-12";
    this.isUndeclared = declared === undefined;
    this.foreign = declared === undefined || known?.[2] === true ? undefined : String(declared);
    this.#resources.set(HOME, root);
    this.#index(where, limits);
  }

  get hasSeveralResources(): boolean {
    return new Set(this.#resources.values()).size > 1;
  }

  pointerOf(schema: object): string {
    return this.#pointers.get(schema) ?? "";
  }

  /** What a reference points at, or undefined when that is not in this document. */
  resolve(reference: string, from: object): JsonValue | undefined {
    const { address, fragment } = split(reference, this.#bases.get(from) ?? HOME);
    if (fragment !== "" && !fragment.startsWith("/")) return this.#anchors.get(`${address}#${fragment}`);
    let at: JsonValue | undefined = this.#resources.get(address);
    for (const step of fragment === "" ? [] : fragment.slice(1).split("/")) {
      const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
      if (typeof at !== "object" || at === null || !Object.hasOwn(at, key)) return undefined;
      at = (at as JsonObject)[key];
    }
    return at;
  }

  /** Notes every base, `$id` and anchor, and holds the document to its limits. Without recursion: depth is theirs. */
  #index(where: string, limits: CodegenLimits): void {
    type Item = { value: JsonValue; base: string; pointer: string; depth: number; holds: "schema" | "names" | "data" };
    const pending: Item[] = [{ value: this.root, base: HOME, pointer: "", depth: 0, holds: "schema" }];
    let values = 0;
    for (let item = pending.pop(); item !== undefined; item = pending.pop()) {
      const { value, pointer, depth, holds } = item;
      if (++values + pending.length > limits.maxValues) {
        throw new CodegenError("CODEGEN_TOO_LARGE", `${where} has more than ${limits.maxValues} values (maxValues)`);
      }
      if (depth > limits.maxDepth) {
        throw new CodegenError(
          "CODEGEN_TOO_LARGE",
          `${where} is nested deeper than ${limits.maxDepth} levels (maxDepth)`,
        );
      }
      if (typeof value !== "object" || value === null) continue;
      const base = holds === "schema" && isJsonObject(value) ? this.#identify(value, item.base) : item.base;
      this.#bases.set(value, base);
      this.#pointers.set(value, pointer);
      for (const [key, inner] of Object.entries(value)) {
        const next =
          holds === "names" || Array.isArray(value)
            ? "schema"
            : holds === "data" || HOLDS_DATA.has(key)
              ? "data"
              : HOLDS_NAMED.has(key)
                ? "names"
                : "schema";
        pending.push({
          value: inner as JsonValue,
          base,
          pointer: `${pointer}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`,
          depth: depth + 1,
          holds: holds === "data" ? "data" : next,
        });
      }
    }
  }

  #identify(schema: JsonObject, base: string): string {
    let here = base;
    // In draft-07 nothing beside a `$ref` counts.
    if (typeof schema.$id === "string" && !(this.dialect === "draft-07" && schema.$ref !== undefined)) {
      const { address, fragment } = split(schema.$id, base);
      if (fragment === "") {
        here = address;
        this.#resources.set(here, schema);
      } else this.#anchors.set(`${base}#${fragment}`, schema);
    }
    for (const name of [schema.$anchor, schema.$dynamicAnchor]) {
      if (typeof name === "string" && this.dialect === "2020-12") this.#anchors.set(`${here}#${name}`, schema);
    }
    return here;
  }
}

function split(reference: string, base: string): { address: string; fragment: string } {
  try {
    const url = new URL(reference, base);
    const fragment = url.hash.slice(1);
    url.hash = "";
    return { address: url.href, fragment: decodeURIComponent(fragment) };
  } catch {
    return { address: reference, fragment: "" };
  }
}
