// From nodes to types. Everything that must hold together is merged, alternatives become unions, `null` is split off,
// and whatever stands in a circle gets a name.

import type { JsonPrimitive, JsonValue } from "../../mcp/index.js";
import { type Names, pascal } from "../names.js";
import type { CodegenLimits, Reports } from "../report.js";
import type { Node, NodeId, NodeTable, TypeName } from "../schema/node.js";
import { ALL_TYPES, type Choice, type Conjunct, conjunctKey, gather, shapeOf, type ValueForm } from "./shape.js";
import {
  ANY,
  type Declaration,
  docsOf,
  isSame,
  type Match,
  NEVER,
  OPAQUE,
  type Type,
  type TypeField,
  type Variant,
} from "./type.js";

const MAX_VARIANTS = 256;
const MAX_TUPLE = 64;
/** Deeper nesting than this is a schema that grows as it is merged; honest ones stay below 30. */
const MAX_NESTING = 150;

/** The types of one server. Each tool's are derived with its own limit on how many there may be. */
export class Types {
  readonly declarations: Declaration[] = [];
  readonly #table: NodeTable;
  readonly #names: Names;
  readonly #limits: CodegenLimits;
  readonly #reports: Reports;
  readonly #known = new Map<string, Type>();
  /** What is being built, by its nodes; `needed` once something refers to it by name. */
  readonly #open = new Map<string, { name: string; needed: boolean }>();
  readonly #declared = new Set<string>();
  #owner = "";
  /** Types that may still be declared, and places that may still be looked at. */
  #budget = 0;
  #steps = 0;

  constructor(table: NodeTable, names: Names, limits: CodegenLimits, reports: Reports) {
    this.#table = table;
    this.#names = names;
    this.#limits = limits;
    this.#reports = reports;
  }

  /** The type at the root of a schema, under exactly this name. */
  root(id: NodeId, name: string, owner: string): Type {
    this.#owner = owner;
    this.#budget = this.#limits.maxTypes;
    this.#steps = this.#limits.maxValues;
    const type = this.#derive([{ id, spent: "" }], name, 0, name);
    if (type.kind === "named" && type.name === name) return type;
    const unsaid = type.kind === "any" || type.kind === "opaque" || type.kind === "map";
    // Whatever else is not known, it is an object.
    if (unsaid)
      this.#declare({
        kind: "object",
        name,
        docs: [],
        fields: [],
        extra: type.kind === "map" ? type.values : ANY,
      });
    else this.#declare({ kind: "alias", name, docs: [], type });
    return { kind: "named", name };
  }

  #derive(start: readonly Conjunct[], hint: string, depth: number, root?: string): Type {
    const plain = this.#throughReferences(start);
    const key = conjunctKey(plain);
    const known = root === undefined ? this.#known.get(key) : undefined;
    if (known !== undefined) return known;
    const open = this.#open.get(key);
    if (open !== undefined) {
      open.needed = true;
      return { kind: "named", name: open.name };
    }
    if (depth > MAX_NESTING || --this.#steps < 0 || this.#budget <= 0)
      return this.#giveUp(plain, "is too large to express as types; it stays opaque");
    const name = root ?? this.#names.take(this.#nameFor(plain, hint));
    const entry = { name, needed: root !== undefined };
    this.#open.set(key, entry);
    const type = this.#build(plain, name, depth);
    this.#open.delete(key);
    let result = type;
    if (entry.needed && root === undefined && !(type.kind === "named" && type.name === name)) {
      this.#declare({ kind: "alias", name, docs: [], type });
      result = { kind: "named", name };
    } else if (root === undefined) this.#giveBack(name);
    this.#known.set(key, result);
    return result;
  }

  /** A node that does nothing but refer is the node it refers to, so that both have one type. */
  #throughReferences(start: readonly Conjunct[]): Conjunct[] {
    const seen = new Set<NodeId>();
    return start.map((conjunct) => {
      let at = conjunct;
      for (;;) {
        const { about: _, ...node } = this.#table.nodes[at.id] as Node;
        const [target, more] = node.all ?? [];
        if (target === undefined || more !== undefined || Object.keys(node).length > 1 || seen.has(at.id)) return at;
        seen.add(at.id);
        at = { id: target, spent: "" };
      }
    });
  }

  #nameFor(conjuncts: readonly Conjunct[], hint: string): string {
    const definition = conjuncts.length === 1 ? this.#table.nodes[conjuncts[0]?.id ?? 0]?.about.definition : undefined;
    return definition === undefined ? hint : `${this.#owner}${pascal(definition)}`;
  }

  #build(conjuncts: readonly Conjunct[], name: string, depth: number): Type {
    const shape = shapeOf(this.#table.nodes, conjuncts);
    if (shape.never) return NEVER;
    if (shape.values !== undefined) return this.#literals(shape, shape.values, name);
    const choice = shape.choices.find((each) => this.#tellsTypes(each, shape));
    if (choice !== undefined) return this.#choose(choice, shape, name, depth);
    if (shape.types === undefined) return ANY;
    return this.#byType(shape, shape.types, name, depth);
  }

  /** Whether the branches differ in what types can show. Most that do not only say which fields go together. */
  #tellsTypes({ branches }: Choice, shape: ValueForm): boolean {
    return branches.some((id) => {
      const branch = shapeOf(this.#table.nodes, [{ id, spent: "" }]);
      const types = branch.types?.filter((type) => !shape.types?.includes(type) || (shape.types?.length ?? 0) > 1);
      return (
        (types?.length ?? 0) > 0 ||
        branch.values !== undefined ||
        branch.choices.length > 0 ||
        branch.nodes.some(
          (node) =>
            node.properties ?? node.items ?? node.prefixItems ?? node.additionalProperties ?? node.patternProperties,
        )
      );
    });
  }

  #choose(choice: Choice, shape: ValueForm, name: string, depth: number): Type {
    if (choice.branches.length > MAX_VARIANTS)
      return this.#giveUp(shape.conjuncts, `has more than ${MAX_VARIANTS} alternatives; it stays opaque`);
    const rest = shape.conjuncts.map((conjunct): Conjunct => {
      if (conjunct.id !== choice.at.id) return conjunct;
      const spent = `${conjunct.spent}${choice.kind === "any" ? "a" : "o"}`;
      return { id: conjunct.id, spent: spent === "oa" ? "ao" : (spent as Conjunct["spent"]) };
    });
    // A node that says nothing beside its alternatives adds nothing to any of them, and without it they are what they
    // are in other places. Unless another leads back to it: then it has to state that its alternatives are taken.
    const others = rest.filter(({ id }) => id !== choice.at.id && this.#saysMore(id, choice));
    const led = gather(this.#table.nodes, others).some(({ id }) => id === choice.at.id);
    const said = rest.filter(
      (each) => others.includes(each) || (each.id === choice.at.id && (led || this.#saysMore(each.id, choice))),
    );
    const labels = this.#labels(choice.branches);
    const variants = choice.branches.map((id, i): Variant => {
      const label = labels[i] as string;
      const type = this.#derive([...said, { id, spent: "" }], `${name}${label}`, depth + 1);
      return { name: label, type, match: [{ node: id }] };
    });
    return this.#union(variants, name, shape);
  }

  #saysMore(id: NodeId, choice: Choice): boolean {
    const { about: _, ...node } = this.#table.nodes[id] as Node;
    delete node.all;
    if (id === choice.at.id) delete node[choice.kind];
    return Object.keys(node).length > 0;
  }

  /** What tells the branches apart, best first: a constant in a common field, where they are defined, titles, numbers. */
  #labels(branches: readonly NodeId[]): string[] {
    const shapes = branches.map((id) => shapeOf(this.#table.nodes, [{ id, spent: "" }]));
    const tags = this.#discriminator(shapes);
    const taken = new Set<string>();
    return branches.map((id, i) => {
      const [reached] = this.#throughReferences([{ id, spent: "" }]);
      const { about } = this.#table.nodes[reached?.id ?? id] as Node;
      const [only, other] = shapes[i]?.types ?? [];
      const typeName = only !== undefined && other === undefined && only !== "object" ? only : undefined;
      const text =
        tags?.[i] ??
        about.definition ??
        (about.title !== undefined && about.title.length < 40 ? about.title : undefined) ??
        typeName;
      const label = text === undefined ? "" : pascal(text, "");
      const free = label !== "" && !taken.has(label) ? label : `${label || "Option"}${i + 1}`;
      taken.add(free);
      return free;
    });
  }

  #discriminator(shapes: readonly ValueForm[]): string[] | undefined {
    const first = shapes[0];
    const candidates = new Set(first?.nodes.flatMap((node) => node.required ?? []));
    for (const field of candidates) {
      const tags = shapes.map((shape) => {
        if (!shape.nodes.some((node) => node.required?.includes(field))) return undefined;
        const ids = shape.nodes.flatMap((node) => node.properties?.get(field) ?? []);
        const { values } = shapeOf(
          this.#table.nodes,
          ids.map((id) => ({ id, spent: "" })),
        );
        return values?.length === 1 && ["string", "number"].includes(typeof values[0]) ? String(values[0]) : undefined;
      });
      const found = tags.filter((tag) => tag !== undefined);
      if (found.length === shapes.length && new Set(found).size === found.length) return found;
    }
    return undefined;
  }

  #literals(shape: ValueForm, values: readonly JsonValue[], name: string): Type {
    const hasNull = values.includes(null);
    const rest = values.filter((value) => value !== null);
    if (rest.length === 0) return { kind: "null" };
    if (rest.some((value) => typeof value === "object")) {
      return this.#giveUp(
        shape.conjuncts,
        "lists objects or arrays as values; the type stays opaque, the values are checked",
      );
    }
    const unique = [...new Set(rest)] as Exclude<JsonPrimitive, null>[];
    const own = hasNull && this.#isNeeded(name) ? this.#names.take(`${name}Value`) : name;
    this.#declare({ kind: "enum", name: own, docs: docsOf(this.#table, shape.nodes), values: unique });
    const type: Type = { kind: "named", name: own };
    return hasNull ? { kind: "nullable", of: type } : type;
  }

  #byType(shape: ValueForm, types: readonly TypeName[], name: string, depth: number): Type {
    const wanted = types.includes("number") ? types.filter((type) => type !== "integer") : types;
    if (ALL_TYPES.every((type) => wanted.includes(type))) return ANY;
    if (wanted.length === 1) return this.#single(shape, wanted[0] as TypeName, name, depth);
    const variants = wanted.map((type): Variant => {
      const label = pascal(type);
      const inner = type === "array" || type === "object" ? this.#names.take(`${name}${label}`) : name;
      const made = this.#single(shape, type, inner, depth);
      if (inner !== name) this.#giveBack(inner);
      return { name: label, type: made, match: [{ types: [type] }] };
    });
    return this.#union(variants, name, shape);
  }

  #single(shape: ValueForm, type: TypeName, name: string, depth: number): Type {
    switch (type) {
      case "array":
        return this.#array(shape, name, depth);
      case "object":
        return this.#object(shape, name, depth);
      default:
        return { kind: type };
    }
  }

  #union(all: readonly Variant[], name: string, shape: ValueForm): Type {
    let nullable = false;
    const kept: { name: string; type: Type; match: Match[] }[] = [];
    for (const variant of all) {
      let { type } = variant;
      if (type.kind === "nullable") {
        nullable = true;
        type = type.of;
      }
      if (type.kind === "null") nullable = true;
      else if (type.kind === "any" || type.kind === "opaque") return type;
      else if (type.kind !== "never") {
        const same = kept.find((other) => isSame(other.type, type));
        if (same) same.match.push(...variant.match);
        else kept.push({ name: variant.name, type, match: [...variant.match] });
      }
    }
    const [only, second] = kept;
    let type: Type;
    if (only === undefined) type = nullable ? { kind: "null" } : NEVER;
    else if (second === undefined) type = only.type;
    else {
      // A reference to this by name means null as well, so the name belongs to what includes it.
      const own = nullable && this.#isNeeded(name) ? this.#names.take(`${name}Value`) : name;
      this.#declare({ kind: "union", name: own, docs: docsOf(this.#table, shape.nodes), variants: kept });
      type = { kind: "named", name: own };
    }
    return nullable && only !== undefined ? { kind: "nullable", of: type } : type;
  }

  #isNeeded(name: string): boolean {
    return [...this.#open.values()].some((entry) => entry.name === name && entry.needed);
  }

  #array(shape: ValueForm, name: string, depth: number): Type {
    const longest = Math.max(0, ...shape.nodes.map((node) => node.prefixItems?.length ?? 0));
    const at = (i: number): Conjunct[] =>
      shape.nodes.flatMap((node) => {
        const id = node.prefixItems?.[i] ?? node.items;
        return id === undefined ? [] : [{ id, spent: "" as const }];
      });
    const rest = at(Infinity);
    const restType = rest.length === 0 ? ANY : this.#derive(rest, `${name}Item`, depth + 1);
    if (longest === 0) return { kind: "list", items: restType };
    if (longest > MAX_TUPLE)
      return {
        kind: "list",
        items: this.#giveUp(shape.conjuncts, `has more than ${MAX_TUPLE} positions; items stay opaque`),
      };
    const items = Array.from({ length: longest }, (_, i) => this.#derive(at(i), `${name}Item${i + 1}`, depth + 1));
    const max = Math.min(
      ...shape.nodes.map((node) => node.maxItems ?? Infinity),
      restType.kind === "never" ? longest : Infinity,
    );
    const min = Math.max(0, ...shape.nodes.map((node) => node.minItems ?? 0));
    const closed = max <= longest;
    const held = [...items.slice(0, max), ...(closed ? [] : [restType])];
    const elementName = this.#names.take(`${name}Element`);
    const element = this.#union(
      held.map((type, i) => ({ name: `Item${i + 1}`, type, match: this.#positional(i < items.length ? at(i) : rest) })),
      elementName,
      { ...shape, nodes: [] },
    );
    this.#giveBack(elementName);
    return {
      kind: "tuple",
      items: items.slice(0, max),
      rest: closed ? NEVER : restType,
      min: Math.min(min, longest),
      exact: closed && min === max,
      element,
    };
  }

  #positional(conjuncts: readonly Conjunct[]): Match[] {
    const [first] = conjuncts;
    return first === undefined ? [{ types: ALL_TYPES }] : [{ node: first.id }];
  }

  #object(shape: ValueForm, name: string, depth: number): Type {
    const required = new Set(shape.nodes.flatMap((node) => node.required ?? []));
    const names = new Set([...shape.nodes.flatMap((node) => [...(node.properties?.keys() ?? [])]), ...required]);
    const extra = this.#extra(shape, name, depth);
    // At the root a record even without fields: that is what handlers and callers are written against.
    if (names.size === 0 && extra !== undefined && depth > 0) return { kind: "map", values: extra };
    const fields: TypeField[] = [];
    for (const field of names) {
      const ids = shape.nodes.flatMap((node) => node.properties?.get(field) ?? []);
      const conjuncts = ids.map((id): Conjunct => ({ id, spent: "" }));
      const inner = shapeOf(this.#table.nodes, conjuncts);
      const type = ids.length === 0 ? ANY : this.#derive(conjuncts, `${name}${pascal(field)}`, depth + 1);
      // A field that nothing fits cannot be there; the check rejects it.
      if (type.kind === "never" && !required.has(field)) continue;
      fields.push({
        name: field,
        type,
        required: required.has(field),
        docs: docsOf(this.#table, inner.nodes),
        typed: inner.types !== undefined || inner.values !== undefined,
      });
    }
    this.#declare({ kind: "object", name, docs: docsOf(this.#table, shape.nodes), fields, extra });
    return { kind: "named", name };
  }

  /** What may stand in fields that have no name here. */
  #extra(shape: ValueForm, name: string, depth: number): Type | undefined {
    const isFalse = (id: NodeId | undefined): boolean => id !== undefined && this.#table.nodes[id]?.never === true;
    const closed = shape.nodes.find((node) => isFalse(node.additionalProperties));
    // Only patterns are left then, and only those beside the word that closes.
    const patterns = closed
      ? (closed.patternProperties ?? [])
      : shape.nodes.flatMap((node) => node.patternProperties ?? []);
    if (closed && patterns.length === 0) return undefined;
    const [first, ...more] = patterns.map(([, id]) => this.#derive([{ id, spent: "" }], `${name}Value`, depth + 1));
    if (first !== undefined) return closed && more.every((type) => isSame(type, first)) ? first : ANY;
    const ids = shape.nodes
      .filter((node) => node.additionalProperties !== undefined)
      .map((node): Conjunct => ({ id: node.additionalProperties as NodeId, spent: "" }));
    return ids.length === 0 ? ANY : this.#derive(ids, `${name}Value`, depth + 1);
  }

  #declare(declaration: Declaration): void {
    this.#budget--;
    this.#declared.add(declaration.name);
    this.declarations.push(declaration);
  }

  /** A name that was kept free for a declaration which turned out not to be needed. */
  #giveBack(name: string): void {
    if (!this.#declared.has(name)) this.#names.release(name);
  }

  #giveUp(conjuncts: readonly Conjunct[], message: string): Type {
    const pointer = this.#table.nodes[conjuncts[0]?.id ?? 0]?.about.pointer ?? "";
    this.#reports.note(pointer, message);
    return OPAQUE;
  }
}
