import { type Dialect, HOME, knownDialect, type ResourceRules, SchemaResources } from "../../schema/documents/index.js";
import { BudgetExceeded } from "../errors.js";

export type SchemaValue = boolean | { readonly [keyword: string]: unknown };

/** The dialect a schema declares, `fallback` when it declares none, undefined when it is one not handled here. */
export function dialectOf(schema: unknown, fallback: Dialect): Dialect | undefined {
  const declared = isObject(schema) ? schema.$schema : undefined;
  return declared === undefined ? fallback : knownDialect(declared);
}

export function isObject(value: unknown): value is { readonly [key: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The size of a schema is bounded where it is read; the budget of the question bounds the rest. */
const LIMITS: ResourceRules = {
  maxDepth: 256,
  maxValues: Number.POSITIVE_INFINITY,
  exceeded(_, max) {
    throw new BudgetExceeded(`the schema is nested deeper than ${max} levels`);
  },
};

/** One place in a document: what stands there and the address that relative references there start from. */
export interface Place {
  readonly schema: unknown;
  readonly base: string;
  readonly document: InclusionDocument;
}

/** One schema document with its embedded resources and anchors, so that references can be followed inside it. */
export class InclusionDocument {
  readonly root: unknown;
  readonly dialect: Dialect;
  readonly address: string;
  /** Equal text, equal meaning: what makes places in two copies of one document the same. */
  readonly fingerprint: string;
  readonly #resources: SchemaResources;

  constructor(root: unknown, dialect: Dialect, address = HOME) {
    this.root = root;
    this.dialect = dialect;
    this.fingerprint = `${dialect} ${JSON.stringify(root)}`;
    this.#resources = new SchemaResources(root, dialect, LIMITS, address);
    this.address = this.#resources.baseOf(root) ?? address;
  }

  get hasDynamicAnchors(): boolean {
    return this.#resources.hasDynamicAnchors;
  }

  addresses(): Iterable<string> {
    return this.#resources.addresses();
  }

  place(schema: unknown, fallback: string): Place {
    return { schema, base: this.#resources.baseOf(schema) ?? fallback, document: this };
  }

  /** The path from the root, as it would stand in a reference. */
  pathOf(schema: object): string {
    return this.#resources.pointerOf(schema);
  }

  find(address: string, fragment: string): Place | undefined {
    const found = this.#resources.find(address, fragment);
    return found === undefined ? undefined : this.place(found.value, found.base);
  }

  isDynamic(address: string, fragment: string): boolean {
    return this.#resources.isDynamic(address, fragment);
  }
}
