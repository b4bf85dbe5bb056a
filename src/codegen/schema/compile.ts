// A schema becomes nodes in a table. References become edges, dialects one form. Every keyword ends as a field of a
// node or as a report; none is lost on the way.

import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { equalityKey, flagsFor, unescapePointer } from "../../schema/documents/index.js";
import type { CodegenLimits, Reports } from "../report.js";
import { ContractDocument, formatPatterns } from "./document.js";
import { type About, type Node, type NodeId, type NodeTable, ONE_SCHEMA, type Pattern, type TypeName } from "./node.js";

const TYPES: readonly string[] = ["null", "boolean", "integer", "number", "string", "array", "object"];
const SILENT = new Set(
  "$schema $id $anchor $dynamicAnchor $recursiveAnchor $comment $defs definitions $vocabulary title description default examples deprecated readOnly writeOnly contentMediaType contentEncoding contentSchema".split(
    " ",
  ),
);
const NUMBERS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"] as const;
const COUNTS = [
  "minLength",
  "maxLength",
  "minProperties",
  "maxProperties",
  "minItems",
  "maxItems",
  "minContains",
  "maxContains",
] as const;
const LISTS = { anyOf: "any", oneOf: "one" } as const;

const NOT_IN = {
  "draft-07": new Set(
    "prefixItems dependentRequired dependentSchemas minContains maxContains unevaluatedItems unevaluatedProperties $dynamicRef $recursiveRef".split(
      " ",
    ),
  ),
  "2020-12": new Set(["dependencies"]),
};

/** Compiles one schema into the table and answers the node of its root. */
export function compileNodes(
  table: NodeTable,
  schema: JsonValue,
  where: string,
  limits: CodegenLimits,
  reports: Reports,
): NodeId {
  const compiler = new Compiler(table, new ContractDocument(schema, where, limits), limits, reports);
  return compiler.run();
}

class Compiler {
  readonly #table: NodeTable;
  readonly #document: ContractDocument;
  readonly #limits: CodegenLimits;
  readonly #reports: Reports;
  readonly #known = new Map<object, NodeId>();
  readonly #pending: { schema: JsonObject; node: Node }[] = [];
  readonly #constants: { true?: NodeId; false?: NodeId } = {};

  constructor(table: NodeTable, document: ContractDocument, limits: CodegenLimits, reports: Reports) {
    this.#table = table;
    this.#document = document;
    this.#limits = limits;
    this.#reports = reports;
  }

  run(): NodeId {
    const first = this.#table.nodes.length;
    if (this.#document.foreign !== undefined) {
      this.#reports.unsupported(
        "/$schema",
        `the dialect \`${clip(this.#document.foreign)}\` is read as ${this.#document.dialect}; keywords of its own are not honoured`,
      );
    }
    const root = this.#node(this.#document.root, "");
    for (let item = this.#pending.pop(); item !== undefined; item = this.#pending.pop()) {
      this.#fill(item.schema, item.node);
    }
    this.#breakCircles(first);
    return root;
  }

  /** The node of a schema, now or as soon as its turn comes. Without recursion: references may go round. */
  #node(schema: JsonValue, pointer: string): NodeId {
    if (typeof schema === "boolean") return this.#constant(schema);
    if (!isJsonObject(schema)) {
      this.#reports.unsupported(pointer, "is not a schema (an object, true or false); anything is accepted there");
      return this.#constant(true);
    }
    const known = this.#known.get(schema);
    if (known !== undefined) return known;
    const place = this.#document.pointerOf(schema);
    const definition = /\/(?:\$defs|definitions)\/([^/]+)$/.exec(place)?.[1];
    const about: About = {
      ...this.#reports.owner,
      pointer: place,
      ...(definition !== undefined && { definition: unescapePointer(definition) }),
    };
    const node: Node = { about };
    const id = this.#table.nodes.push(node) - 1;
    this.#known.set(schema, id);
    this.#pending.push({ schema, node });
    return id;
  }

  #constant(value: boolean): NodeId {
    const key = value ? "true" : "false";
    const about = { ...this.#reports.owner, pointer: "" };
    this.#constants[key] ??= this.#table.nodes.push(value ? { about } : { never: true, about }) - 1;
    return this.#constants[key];
  }

  #both(...all: NodeId[]): NodeId {
    return this.#table.nodes.push({ all, about: { ...this.#reports.owner, pointer: "" } }) - 1;
  }

  #fill(schema: JsonObject, node: Node): void {
    const left = new Set(Object.keys(schema).filter((key) => schema[key] !== undefined && !SILENT.has(key)));
    const take = (key: string): JsonValue | undefined => {
      // What a dialect does not know is not a keyword there; it stays among the leftovers.
      const isKept = key === "dependencies" && this.#document.isUndeclared;
      if (NOT_IN[this.#document.dialect].has(key) && !isKept) return undefined;
      left.delete(key);
      return Object.hasOwn(schema, key) ? schema[key] : undefined;
    };
    this.#describe(schema, node);
    const all: NodeId[] = [];
    for (const key of ["$ref", "$dynamicRef", "$recursiveRef"] as const) {
      const target = this.#reference(key, take(key), schema, node);
      if (target !== undefined) all.push(target);
    }
    if (all.length > 0 && this.#document.dialect === "draft-07" && schema.$ref !== undefined) {
      node.all = all;
      if (left.size > 0)
        this.#reports.note(node.about.pointer, `draft-07 ignores what stands beside \`$ref\`: ${[...left].join(", ")}`);
      return;
    }
    this.#values(node, take);
    this.#scalars(node, take);
    this.#objects(node, take);
    this.#arrays(node, take);
    this.#combinations(node, take, all);
    for (const key of left) {
      this.#reports.note(
        `${node.about.pointer}/${key}`,
        "is not a keyword of this dialect; validators ignore it, and so do we",
      );
    }
  }

  #describe(schema: JsonObject, { about }: Node): void {
    if (typeof schema.title === "string") about.title = schema.title;
    if (typeof schema.description === "string") about.description = schema.description;
    if (schema.default !== undefined) about.default = schema.default;
    if (schema.deprecated === true) about.deprecated = true;
  }

  #reference(key: string, value: JsonValue | undefined, schema: JsonObject, node: Node): NodeId | undefined {
    if (value === undefined) return undefined;
    const at = `${node.about.pointer}/${key}`;
    if (typeof value !== "string") {
      this.#malformed(node, key, "a string");
      return undefined;
    }
    if (key !== "$ref" && this.#document.hasSeveralResources) {
      this.#reports.unsupported(at, "depends on the way that leads here; it is read as a plain `$ref`");
    }
    const target = this.#document.resolve(value, schema);
    if (target !== undefined) return this.#node(target, at);
    this.#reports.unsupported(
      at,
      `\`${clip(value)}\` is not in this document, and nothing is fetched; anything is accepted there`,
    );
    return undefined;
  }

  #values(node: Node, take: Take): void {
    const type = take("type");
    if (type !== undefined) {
      const names = Array.isArray(type) ? type : [type];
      if (names.length > 0 && names.every((name) => typeof name === "string" && TYPES.includes(name))) {
        node.types = [...new Set(names as TypeName[])];
      } else this.#malformed(node, "type", `one or more of ${TYPES.join(", ")}`);
    }
    const values = take("enum");
    if (Array.isArray(values)) {
      node.values = values.slice(0, this.#limits.maxEnum);
      if (values.length > this.#limits.maxEnum) {
        delete node.values;
        this.#reports.unsupported(
          `${node.about.pointer}/enum`,
          `has ${values.length} values, more than ${this.#limits.maxEnum} (maxEnum); they are not checked`,
        );
      }
    } else if (values !== undefined) this.#malformed(node, "enum", "an array");
    const constant = take("const");
    if (constant === undefined) return;
    // Both must hold: what is in the list and equals the constant.
    const key = equalityKey(constant);
    node.values =
      node.values === undefined || node.values.some((value) => equalityKey(value) === key) ? [constant] : [];
  }

  #scalars(node: Node, take: Take): void {
    for (const key of NUMBERS) {
      const value = take(key);
      if (value === undefined) continue;
      if (typeof value === "number" && (key !== "multipleOf" || value > 0)) node[key] = value;
      else this.#malformed(node, key, key === "multipleOf" ? "a number above 0" : "a number");
    }
    for (const key of COUNTS) {
      const value = take(key);
      if (value === undefined) continue;
      if (typeof value === "number" && Number.isInteger(value) && value >= 0) node[key] = value;
      else this.#malformed(node, key, "an integer of at least 0");
    }
    const patterns: number[] = [];
    const pattern = take("pattern");
    if (pattern !== undefined) {
      const id = this.#pattern(node, "pattern", pattern);
      if (id !== undefined) patterns.push(id);
    }
    const format = take("format");
    if (typeof format === "string") {
      node.about.format = format;
      const check = formatPatterns(format);
      if (check === undefined)
        this.#reports.note(`${node.about.pointer}/format`, `\`${clip(format)}\` is not a format that is checked here`);
      else if (check.kind === "built-in") node.format = check.format;
      else if (check.kind === "patterns") patterns.push(...check.patterns.map((each) => this.#intern(each)));
    } else if (format !== undefined) this.#malformed(node, "format", "a string");
    if (patterns.length > 0) node.patterns = patterns;
  }

  #objects(node: Node, take: Take): void {
    const properties = this.#named(node, "properties", take("properties"));
    if (properties !== undefined) node.properties = properties;
    const byPattern = this.#named(node, "patternProperties", take("patternProperties"));
    if (byPattern !== undefined) {
      node.patternProperties = [...byPattern].flatMap(([source, id]) => {
        const pattern = this.#pattern(node, "patternProperties", source);
        return pattern === undefined ? [] : [[pattern, id] as const];
      });
    }
    const required = take("required");
    if (Array.isArray(required) && required.every((name) => typeof name === "string")) {
      node.required = [...new Set(required as string[])];
    } else if (required !== undefined) this.#malformed(node, "required", "an array of strings");
    const needed = new Map<string, readonly string[]>();
    const schemas = new Map<string, NodeId>(this.#named(node, "dependentSchemas", take("dependentSchemas")) ?? []);
    for (const [keyword, given] of [
      ["dependentRequired", take("dependentRequired")],
      ["dependencies", take("dependencies")],
    ] as const) {
      if (given === undefined) continue;
      if (!isJsonObject(given)) this.#malformed(node, keyword, "an object");
      else {
        for (const [name, value] of Object.entries(given)) {
          if (Array.isArray(value)) needed.set(name, [...(needed.get(name) ?? []), ...value.map(String)]);
          else {
            const id = this.#node(value as JsonValue, `${node.about.pointer}/${keyword}/${name}`);
            const other = schemas.get(name);
            schemas.set(name, other === undefined ? id : this.#both(other, id));
          }
        }
      }
    }
    if (needed.size > 0) node.dependentRequired = needed;
    if (schemas.size > 0) node.dependentSchemas = schemas;
  }

  #arrays(node: Node, take: Take): void {
    const unique = take("uniqueItems");
    if (unique === true) node.uniqueItems = true;
    else if (unique !== undefined && unique !== false) this.#malformed(node, "uniqueItems", "true or false");
    const prefix = take("prefixItems");
    const items = take("items");
    const additional = take("additionalItems");
    const list = Array.isArray(prefix) ? prefix : Array.isArray(items) ? items : undefined;
    if (prefix !== undefined && !Array.isArray(prefix)) this.#malformed(node, "prefixItems", "an array of schemas");
    if (list !== undefined) {
      node.prefixItems = list.map((item, i) => this.#node(item, `${node.about.pointer}/prefixItems/${i}`));
      const rest = Array.isArray(items) ? additional : items;
      if (rest !== undefined) node.items = this.#node(rest, `${node.about.pointer}/items`);
    } else if (items !== undefined && !Array.isArray(items))
      node.items = this.#node(items, `${node.about.pointer}/items`);
  }

  #combinations(node: Node, take: Take, all: NodeId[]): void {
    for (const key of ONE_SCHEMA) {
      const value = take(key);
      if (value !== undefined) node[key] = this.#node(value, `${node.about.pointer}/${key}`);
    }
    const both = take("allOf");
    if (Array.isArray(both)) all.push(...both.map((item, i) => this.#node(item, `${node.about.pointer}/allOf/${i}`)));
    else if (both !== undefined) this.#malformed(node, "allOf", "an array of schemas");
    if (all.length > 0) node.all = all;
    for (const [key, field] of Object.entries(LISTS) as ["anyOf" | "oneOf", "any" | "one"][]) {
      const value = take(key);
      if (Array.isArray(value) && value.length > 0) {
        node[field] = value.map((item, i) => this.#node(item, `${node.about.pointer}/${key}/${i}`));
      } else if (value !== undefined) this.#malformed(node, key, "a list of schemas that is not empty");
    }
  }

  #named(node: Node, keyword: string, value: JsonValue | undefined): Map<string, NodeId> | undefined {
    if (value === undefined) return undefined;
    if (!isJsonObject(value)) {
      this.#malformed(node, keyword, "an object of schemas");
      return undefined;
    }
    return new Map(
      Object.entries(value).map(([name, schema]) => [
        name,
        this.#node(schema as JsonValue, `${node.about.pointer}/${keyword}/${name}`),
      ]),
    );
  }

  #pattern(node: Node, keyword: string, value: JsonValue): number | undefined {
    const flags = typeof value === "string" ? flagsFor(value) : undefined;
    if (typeof value === "string" && flags !== undefined) return this.#intern({ source: value, flags });
    this.#malformed(node, keyword, "a regular expression of ECMAScript");
    return undefined;
  }

  #intern(pattern: Pattern): number {
    const { patterns } = this.#table;
    const known = patterns.findIndex(({ source, flags }) => source === pattern.source && flags === pattern.flags);
    return known >= 0 ? known : patterns.push(pattern) - 1;
  }

  #malformed(node: Node, keyword: string, wanted: string): void {
    this.#reports.unsupported(`${node.about.pointer}/${keyword}`, `must be ${wanted}; it is not honoured`);
  }

  /** A schema that comes back to itself for the same value says nothing that ends; the last edge is cut. */
  #breakCircles(first: NodeId): void {
    const { nodes } = this.#table;
    const state = new Map<NodeId, "open" | "done">();
    for (let start = first; start < nodes.length; start++) {
      const stack: { id: NodeId; next: NodeId[] }[] = [];
      const enter = (id: NodeId): void => {
        state.set(id, "open");
        stack.push({ id, next: inPlace(nodes[id] as Node) });
      };
      if (!state.has(start)) enter(start);
      for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
        const target = top.next.pop();
        if (target === undefined) {
          state.set(top.id, "done");
          stack.pop();
        } else if (state.get(target) === "open") {
          const node = nodes[top.id] as Node;
          cut(node, target, this.#constant(true));
          this.#reports.unsupported(
            node.about.pointer,
            "comes back to itself without going deeper; that part is not honoured",
          );
        } else if (!state.has(target)) enter(target);
      }
    }
  }
}

type Take = (key: string) => JsonValue | undefined;

/** The nodes that look at the same value as this one. */
function inPlace(node: Node): NodeId[] {
  const single = [node.not, node.if, node.then, node.else].filter((id) => id !== undefined);
  return [
    ...(node.all ?? []),
    ...(node.any ?? []),
    ...(node.one ?? []),
    ...single,
    ...(node.dependentSchemas?.values() ?? []),
  ];
}

function cut(node: Node, target: NodeId, instead: NodeId): void {
  const swap = (id: NodeId): NodeId => (id === target ? instead : id);
  for (const key of ["all", "any", "one"] as const) if (node[key]) node[key] = node[key].map(swap);
  for (const key of ["not", "if", "then", "else"] as const) if (node[key] !== undefined) node[key] = swap(node[key]);
  if (node.dependentSchemas) {
    node.dependentSchemas = new Map([...node.dependentSchemas].map(([name, id]) => [name, swap(id)]));
  }
}

function clip(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
