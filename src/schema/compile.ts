// A schema becomes a tree of closures: no code is generated from a stranger's text, compiling takes time in
// proportion to the schema, and every closure counts what it costs.

import type { JsonObject } from "../mcp/index.js";
import { type Located, SchemaDocument } from "./document.js";
import { type Dialect, escapePointer } from "./documents/index.js";
import * as array from "./keywords/array.js";
import * as combine from "./keywords/combine.js";
import type { Keyword, KeywordContext } from "./keywords/context.js";
import * as object from "./keywords/object.js";
import * as scalar from "./keywords/scalar.js";
import { createMatcher, type Matcher } from "./pattern/matcher.js";
import { type KeywordCheck, SeenRefs } from "./run.js";
import { type JsonSchema, SchemaError, type SchemaLimits } from "./types.js";

// biome-ignore format: a table reads best by groups
const COMMON: readonly Keyword[] = [
  scalar.type, scalar.enumeration, scalar.constKeyword,
  scalar.minimum, scalar.maximum, scalar.exclusiveMinimum, scalar.exclusiveMaximum, scalar.multipleOf,
  scalar.pattern, scalar.minLength, scalar.maxLength, scalar.format,
  array.items, array.contains, array.minItems, array.maxItems, array.uniqueItems,
  object.requiredKeyword, object.properties, object.minProperties, object.maxProperties, object.propertyNames,
  combine.reference, combine.allOf, combine.anyOf, combine.oneOfKeyword, combine.not, combine.conditional,
];

const KEYWORDS: Readonly<Record<Dialect, readonly Keyword[]>> = {
  "draft-07": [...COMMON, object.dependencies],
  "2020-12": [...COMMON, combine.dynamicReference, object.dependentRequired, object.dependentSchemas],
};

/** These look at the same value again; a circle of them would never end. */
const IN_PLACE = new Set("allOf anyOf oneOf not if then else dependentSchemas dependencies".split(" "));

/** Work that may go into proving the patterns of one document. */
const PATTERN_EFFORT = 1_000_000;

interface Node {
  readonly located: Located;
  check: KeywordCheck;
  readonly again: Node[];
}

export interface Compiled {
  readonly check: KeywordCheck;
  readonly document: SchemaDocument;
}

export function compileSchema(schema: JsonSchema, limits: SchemaLimits): Compiled {
  const document = new SchemaDocument(schema, limits);
  const compiler = new Compiler(document, limits);
  return { document, check: compiler.run() };
}

class Compiler {
  readonly #document: SchemaDocument;
  readonly #limits: SchemaLimits;
  readonly #nodes = new Map<JsonObject, Node>();
  /** References are compiled one after the other, so that a long chain of them costs no stack. */
  readonly #pending: Node[] = [];
  readonly #effort = { left: PATTERN_EFFORT };
  #patterns = 0;

  constructor(document: SchemaDocument, limits: SchemaLimits) {
    this.#document = document;
    this.#limits = limits;
  }

  run(): KeywordCheck {
    const root = this.#node(this.#document.root);
    for (let node = this.#pending.pop(); node !== undefined; node = this.#pending.pop()) {
      node.check = this.#compile(node);
    }
    refuseCircles(this.#nodes.values());
    return (value, at, run, seen) => root.check(value, at, run, seen);
  }

  #node(located: Located): Node {
    const { schema } = located;
    if (typeof schema === "boolean") return { located, check: schema ? always : never, again: [] };
    const known = this.#nodes.get(schema);
    if (known !== undefined) return known;
    const node: Node = { located, check: always, again: [] };
    this.#nodes.set(schema, node);
    this.#pending.push(node);
    return node;
  }

  #compile(node: Node): KeywordCheck {
    const { located } = node;
    const schema = located.schema as JsonObject;
    const context: KeywordContext = {
      schema,
      located,
      dialect: this.#document.dialect,
      check: (...path) => {
        const child = this.#node(this.#document.child(located, ...path));
        if (IN_PLACE.has(String(path[0]))) node.again.push(child);
        return (value, at, run, seen) => child.check(value, at, run, seen);
      },
      reference: (keyword) => {
        const target = this.#node(this.#target(keyword, located));
        node.again.push(target);
        return (value, at, run, seen) => target.check(value, at, run, seen);
      },
      matcher: (source, keyword) => this.#matcher(source, `${located.pointer}/${escapePointer(keyword)}`),
    };
    // In draft-07 a reference stands alone, whatever is written beside it.
    const alone = this.#document.dialect === "draft-07" && schema.$ref !== undefined;
    const known = KEYWORDS[this.#document.dialect];
    // Most schemas name no dialect and many were written for draft-07. 2020-12 only split this keyword in two.
    const all = this.#document.isUndeclared ? [...known, object.dependencies] : known;
    const keywords = alone ? [combine.reference] : all;
    const checks = keywords.map((keyword) => keyword(context)).filter((check) => check !== undefined);
    const body = counted(checks);
    if (this.#document.dialect === "draft-07") return body;
    const last = [object.unevaluatedProperties(context), array.unevaluatedItems(context)];
    const rest = last.filter((check) => check !== undefined);
    return rest.length === 0 ? body : withRest(body, combine.allOfKeyword(rest));
  }

  #target(keyword: "$ref" | "$dynamicRef", located: Located): Located {
    const reference = (located.schema as JsonObject)[keyword];
    if (typeof reference !== "string") throw new SchemaError(`${located.pointer}/${keyword}`, "must be a string");
    if (keyword === "$ref") return this.#document.resolve(reference, located);
    return this.#document.resolveDynamic(reference, located);
  }

  #matcher(source: string, pointer: string): Matcher {
    if (++this.#patterns > this.#limits.maxPatterns) {
      throw new SchemaError(pointer, `is one of more than ${this.#limits.maxPatterns} patterns`);
    }
    const outcome = createMatcher(source, this.#effort);
    if (outcome.ok) return outcome.matcher;
    throw new SchemaError(pointer, `the pattern ${outcome.reason}`);
  }
}

const always: KeywordCheck = () => true;
const never: KeywordCheck = (_value, at, run) =>
  run.fail(at, () => ({ message: "is not allowed here", suggestion: "Remove it" }));

function counted(checks: readonly KeywordCheck[]): KeywordCheck {
  const all = combine.allOfKeyword(checks);
  const price = 1 + checks.length;
  return (value, at, run, seen) => {
    run.spend(price);
    return all(value, at, run, seen);
  };
}

function withRest(body: KeywordCheck, rest: KeywordCheck): KeywordCheck {
  return (value, at, run, seen) => {
    const own = new SeenRefs();
    const ok = body(value, at, run, own) && rest(value, at, run, own);
    if (ok) seen?.merge(own, run);
    return ok;
  };
}

/** A schema that comes back to itself without moving into the value says nothing and would never finish. */
function refuseCircles(nodes: Iterable<Node>): void {
  const finished = new Set<Node>();
  for (const start of nodes) {
    const path: { node: Node; next: number }[] = [{ node: start, next: 0 }];
    const open = new Set([start]);
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const child = finished.has(top.node) ? undefined : top.node.again[top.next++];
      if (child === undefined) {
        finished.add(top.node);
        open.delete(top.node);
        path.pop();
      } else if (open.has(child)) {
        const { pointer } = child.located;
        throw new SchemaError(pointer, "refers back to itself for the same value, so it can never be decided");
      } else if (!finished.has(child)) {
        open.add(child);
        path.push({ node: child, next: 0 });
      }
    }
  }
}
