// One schema document: its dialect, and what each reference in it points at.

import { fullFormats } from "ajv-formats/dist/formats.js";
import { isJsonObject, type JsonValue } from "../../mcp/index.js";
import { type Dialect, HOME, knownDialect, SchemaResources, splitReference } from "../../schema/documents/index.js";
import { CodegenError, type CodegenLimits } from "../report.js";
import { BUILT_IN_FORMATS, type BuiltInFormat, type Pattern } from "./node.js";

/** Dialects that are read as the nearest known one. */
const OLDER_THAN_2019 = /^https?:\/\/json-schema\.org\/draft-0[346]\/schema#?$/;

export class ContractDocument {
  readonly root: JsonValue;
  readonly dialect: Dialect;
  /** The schema names no dialect; `dependencies` of older ones holds in it too. */
  readonly isUndeclared: boolean;
  /** Set when the declared dialect is not one of the two, and the nearest was taken. */
  readonly foreign: string | undefined;
  readonly #resources: SchemaResources;

  constructor(root: JsonValue, where: string, limits: CodegenLimits) {
    const declared = isJsonObject(root) ? root.$schema : undefined;
    const known = knownDialect(declared);
    this.root = root;
    this.dialect = known ?? (OLDER_THAN_2019.test(String(declared)) ? "draft-07" : "2020-12");
    this.isUndeclared = declared === undefined;
    this.foreign = declared === undefined || known !== undefined ? undefined : String(declared);
    this.#resources = new SchemaResources(root, this.dialect, {
      ...limits,
      exceeded(limit, max) {
        const problem = limit === "maxDepth" ? `is nested deeper than ${max} levels` : `has more than ${max} values`;
        throw new CodegenError("CODEGEN_TOO_LARGE", `${where} ${problem} (${limit})`);
      },
    });
  }

  get hasSeveralResources(): boolean {
    return this.#resources.hasSeveralResources;
  }

  pointerOf(schema: object): string {
    return this.#resources.pointerOf(schema);
  }

  /** What a reference points at, or undefined when that is not in this document. */
  resolve(reference: string, from: object): JsonValue | undefined {
    const { address, fragment } = splitReference(reference, this.#resources.baseOf(from) ?? HOME);
    return this.#resources.find(address, fragment)?.value as JsonValue | undefined;
  }
}

type FormatCheck =
  | { readonly kind: "patterns"; readonly patterns: readonly Pattern[] }
  | { readonly kind: "built-in"; readonly format: BuiltInFormat }
  /** Known, but every value passes. */
  | { readonly kind: "nothing" };

const BASE64: Pattern = {
  source: "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
  flags: "m",
};

/** Undefined for names that are not known here: those are annotations, as JSON Schema says. */
export function formatPatterns(name: string): FormatCheck | undefined {
  if (name === "uri") return { kind: "patterns", patterns: [uri()] };
  if (name === "byte") return { kind: "patterns", patterns: [BASE64] };
  const builtIn = BUILT_IN_FORMATS.find((known) => known === name);
  if (builtIn !== undefined) return { kind: "built-in", format: builtIn };
  if (!Object.hasOwn(fullFormats, name)) return undefined;
  const entry: unknown = fullFormats[name as keyof typeof fullFormats];
  if (entry instanceof RegExp) return { kind: "patterns", patterns: [{ source: entry.source, flags: entry.flags }] };
  return { kind: "nothing" };
}

/** A reference whose scheme and path must be there, and which holds no quote: the library keeps this one to itself. */
function uri(): Pattern {
  const { source, flags } = fullFormats["uri-reference"] as RegExp;
  return {
    source: source.replace("*:)?", "*:)").replaceAll(`'"(`, "'(").replace(")?(?:\\?(?:", ")(?:\\?(?:"),
    flags,
  };
}
