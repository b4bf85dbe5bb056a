import { splitReference } from "../../schema/documents/index.js";
import { type Budget, BudgetExceeded } from "../errors.js";
import { type InclusionDocument, isObject, type Place } from "./document.js";
import { unevaluatedKeywords } from "./evaluated.js";
import { type Formula, type Formulas, KIND } from "./formula.js";
import {
  arrayKeywords,
  constantFormula,
  numberKeywords,
  objectKeywords,
  oneOfValues,
  stringKeywords,
  typeKeyword,
} from "./keywords.js";

interface CompileOptions {
  /** Whether a format is only an annotation. Otherwise it is an unknown predicate, the same for the same name. */
  readonly ignoresFormat: (name: string) => boolean;
  readonly reading: Reading;
}

/** What the keyword modules see of the compiler. */
export interface Scope {
  readonly f: Formulas;
  readonly place: Place;
  readonly keywords: { readonly [keyword: string]: unknown };
  readonly options: CompileOptions;
  /** Resources entered so far, outermost first; only kept when a document has dynamic anchors. */
  readonly entered: readonly string[];
  compile(schema: unknown): Formula;
  compilePlace(place: Place): Formula;
  /** The scope of a schema below this one or in another document; undefined when it is not an object. */
  inside(schema: unknown): Scope | undefined;
  at(place: Place): Scope | undefined;
  resolve(reference: string): Place | undefined;
  resolveDynamic(reference: string): Place | undefined;
  opaque(what: string): Formula;
  /** How this compilation reads a keyword on which validators differ. */
  reads(what: keyof Reading): boolean;
}

/** How a validator reads what validators are known to read differently. */
export interface Reading {
  /** Keywords beside `$ref` apply in draft-07. */
  readonly refSiblings: boolean;
  /** `dependencies` applies in 2020-12. */
  readonly dependencies: boolean;
  /** `nullable: true` adds null to the types. */
  readonly nullable: boolean;
  /** An item that `contains` found counts as evaluated. */
  readonly contains: boolean;
  /** An empty array passes `contains` when rules for positions stand beside it (seen in Ajv 8.20). */
  readonly emptyContains: boolean;
  /** What a branch evaluated may count for `unevaluated…` even if the branch failed (seen in Ajv 8.20). */
  readonly failedBranches: boolean;
}

/** What the specifications say. */
export const BY_THE_BOOK: Reading = {
  refSiblings: false,
  dependencies: false,
  nullable: false,
  contains: true,
  emptyContains: false,
  failedBranches: false,
};

/** Well below what the call stack holds, so that the answer does not depend on the engine. */
const MAX_OPEN = 500;

/** Turns schemas into formulas. Recursive places become references, everything else is written out and shared. */
export class Compiler {
  readonly #f: Formulas;
  readonly #documents: readonly InclusionDocument[];
  readonly #options: CompileOptions;
  readonly #budget: Budget;
  readonly #done = new Map<string, Formula>();
  readonly #open = new Set<string>();
  readonly #numbers = new Map<string, number>();
  readonly #names: string[] = [];
  readonly #dynamic: boolean;
  /** Documents by number; two copies of one text have the same, so that the same path in both is the same schema. */
  readonly #copies = new Map<InclusionDocument, number>();
  /** Readings that made a difference to what was compiled. */
  readonly consulted = new Set<keyof Reading>();

  constructor(f: Formulas, documents: readonly InclusionDocument[], options: CompileOptions, budget: Budget) {
    this.#f = f;
    this.#documents = documents;
    this.#options = options;
    this.#budget = budget;
    this.#dynamic = documents.some((document) => document.hasDynamicAnchors);
    for (const document of documents) {
      this.#copies.set(
        document,
        documents.findIndex((other) => other.fingerprint === document.fingerprint),
      );
    }
  }

  compile(document: InclusionDocument): Formula {
    return this.#compile(document.place(document.root, document.address), []);
  }

  /** What a reference stands for. */
  definition(to: number): Formula {
    return this.#done.get(this.#names[to] ?? "") ?? this.#f.yes;
  }

  #compile(place: Place, outer: readonly string[]): Formula {
    const { schema, document } = place;
    if (typeof schema === "boolean") return schema ? this.#f.yes : this.#f.no;
    if (!isObject(schema)) return this.#f.atom({ is: "opaque", key: `no schema: ${JSON.stringify(schema)}` });
    const entered = this.#entering(place, outer);
    const name = `${entered.join()} ${this.#copies.get(document)}${document.pathOf(schema)}`;
    const done = this.#done.get(name);
    if (done !== undefined) return done;
    if (this.#open.has(name)) return this.#f.ref(this.#number(name));
    this.#budget.spend();
    if (this.#open.size >= MAX_OPEN) throw new BudgetExceeded(`schemas lead to each other more than ${MAX_OPEN} deep`);
    this.#open.add(name);
    const formula = this.#keywords(this.#scope(place, schema, entered));
    this.#open.delete(name);
    this.#done.set(name, formula);
    return formula;
  }

  #number(name: string): number {
    let number = this.#numbers.get(name);
    if (number === undefined) {
      number = this.#names.push(name) - 1;
      this.#numbers.set(name, number);
    }
    return number;
  }

  #entering(place: Place, outer: readonly string[]): readonly string[] {
    return !this.#dynamic || outer.includes(place.base) ? outer : [...outer, place.base];
  }

  #enter(place: Place, outer: readonly string[]): Scope | undefined {
    return isObject(place.schema) ? this.#scope(place, place.schema, this.#entering(place, outer)) : undefined;
  }

  #scope(place: Place, keywords: Scope["keywords"], entered: readonly string[]): Scope {
    const inside = (schema: unknown): Place => place.document.place(schema, place.base);
    return {
      f: this.#f,
      place,
      keywords,
      options: this.#options,
      entered,
      compile: (schema) => this.#compile(inside(schema), entered),
      compilePlace: (target) => this.#compile(target, entered),
      inside: (schema) => this.#enter(inside(schema), entered),
      at: (target) => this.#enter(target, entered),
      resolve: (reference) => this.#resolve(reference, place),
      resolveDynamic: (reference) => this.#resolveDynamic(reference, place, entered),
      opaque: (what) => this.#f.atom({ is: "opaque", key: what }),
      reads: (what) => {
        this.consulted.add(what);
        return this.#options.reading[what];
      },
    };
  }

  #resolve(reference: string, place: Place): Place | undefined {
    const { address, fragment } = splitReference(reference, place.base);
    const own = place.document.find(address, fragment);
    if (own !== undefined) return own;
    for (const document of this.#documents) {
      // Undeclared addresses are private to their document.
      if (document === place.document || address.startsWith("https://schema.invalid/")) continue;
      const found = document.find(address, fragment);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** The outermost resource entered so far that has the same dynamic anchor, if the reference starts at one. */
  #resolveDynamic(reference: string, place: Place, entered: readonly string[]): Place | undefined {
    const start = this.#resolve(reference, place);
    const { address, fragment } = splitReference(reference, place.base);
    if (start === undefined || !start.document.isDynamic(address, fragment)) return start;
    for (const resource of entered) {
      const holder = this.#documents.find((document) => document.isDynamic(resource, fragment));
      if (holder !== undefined) return holder.find(resource, fragment);
    }
    return start;
  }

  #keywords(scope: Scope): Formula {
    const { f, keywords } = scope;
    const reference = keywords.$ref === undefined ? f.yes : this.#reference(scope, keywords.$ref, scope.resolve);
    if (keywords.$ref === undefined || scope.place.document.dialect === "2020-12") {
      return f.and(reference, this.#assertions(scope));
    }
    const siblings = this.#assertions(scope);
    return siblings === f.yes || !scope.reads("refSiblings") ? reference : f.and(reference, siblings);
  }

  #reference(scope: Scope, reference: unknown, resolve: Scope["resolve"]): Formula {
    const target = typeof reference === "string" ? resolve(reference) : undefined;
    if (target !== undefined) return scope.compilePlace(target);
    const { address, fragment } = splitReference(String(reference), scope.place.base);
    const owner = address.startsWith("https://schema.invalid/") ? scope.place.document.fingerprint : "";
    return scope.opaque(`$ref ${owner} ${address}#${fragment}`);
  }

  #assertions(scope: Scope): Formula {
    const { f, keywords, place } = scope;
    const parts: Formula[] = [];
    const list = (keyword: string): Formula[] | undefined => {
      const value = keywords[keyword];
      if (value === undefined) return undefined;
      if (Array.isArray(value)) return value.map((part) => scope.compile(part));
      parts.push(scope.opaque(`${keyword} ${JSON.stringify(value)}`));
      return undefined;
    };
    const type = typeKeyword(scope);
    const nullable = keywords.nullable === true && type !== f.yes && scope.reads("nullable");
    parts.push(nullable ? f.or(type, f.kind(KIND.null)) : type);
    if ("const" in keywords) parts.push(constantFormula(f, keywords.const));
    if (Array.isArray(keywords.enum)) parts.push(oneOfValues(f, keywords.enum));
    parts.push(numberKeywords(scope), stringKeywords(scope), arrayKeywords(scope));
    parts.push(objectKeywords(scope));
    const allOf = list("allOf");
    if (allOf !== undefined) parts.push(...allOf);
    const anyOf = list("anyOf");
    if (anyOf !== undefined) parts.push(f.or(...anyOf));
    const oneOf = list("oneOf");
    if (oneOf !== undefined) parts.push(f.one(oneOf));
    if (keywords.not !== undefined) parts.push(f.not(scope.compile(keywords.not)));
    if (keywords.if !== undefined) {
      const test = scope.compile(keywords.if);
      const yes = keywords.then === undefined ? f.yes : scope.compile(keywords.then);
      const no = keywords.else === undefined ? f.yes : scope.compile(keywords.else);
      parts.push(f.or(f.not(test), yes), f.or(test, no));
    }
    if (place.document.dialect === "2020-12") {
      if (keywords.$dynamicRef !== undefined) {
        parts.push(this.#reference(scope, keywords.$dynamicRef, scope.resolveDynamic));
      }
      parts.push(unevaluatedKeywords(scope));
    }
    return f.and(...parts);
  }
}
