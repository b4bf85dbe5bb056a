// One schema document: its dialect, and what each reference in it points at.

import { isJsonObject, type JsonValue } from "../../mcp/index.js";
import { type Dialect, HOME, knownDialect, SchemaResources, splitReference } from "../../schema/documents/index.js";
import { CodegenError } from "../errors.js";
import type { CodegenLimits } from "../limits.js";

/** Dialects that are read as the nearest known one. */
const OLDER_THAN_2019 = /^https?:\/\/json-schema\.org\/draft-0[346]\/schema#?$/;

export class SchemaDocument {
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
