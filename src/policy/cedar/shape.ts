// A tool's input schema as Cedar can see it. What Cedar has no type for is `open`: a rule may read it, but Cedar's
// validator cannot say in advance what it will find there.

export type ValueShape =
  | { readonly kind: "string" | "long" | "bool" | "decimal" | "open" }
  | { readonly kind: "set"; readonly element: ValueShape }
  | RecordShape;

export interface RecordShape {
  readonly kind: "record";
  readonly attrs: ReadonlyMap<string, { readonly shape: ValueShape; readonly required: boolean }>;
  /** True when the schema says that names beyond `attrs` may come. */
  readonly open: boolean;
}

export const OPEN_SHAPE: ValueShape = { kind: "open" };
export const OPEN_RECORD: RecordShape = { kind: "record", attrs: new Map(), open: true };

const SIMPLE: Readonly<Record<string, ValueShape>> = {
  string: { kind: "string" },
  integer: { kind: "long" },
  boolean: { kind: "bool" },
  number: { kind: "decimal" },
};

/** Names that Cedar's JSON form or JavaScript itself gives a meaning; callers cannot send the first three at all. */
const UNUSABLE = new Set(["__entity", "__extn", "__expr", "__proto__"]);

/** Schemas come from untrusted servers: anything past these limits is treated as open. */
const MAX_DEPTH = 12;
const MAX_ATTRS = 1000;
const MAX_SCHEMAS = 20_000;

type Schema = Readonly<Record<string, unknown>>;

/** Rules are loaded again and again against the same tools, and definitions do not change once they are made. */
const known = new WeakMap<object, RecordShape>();

/** The shape of a tool's arguments. */
export function shapeOfArguments(inputSchema: unknown): RecordShape {
  if (typeof inputSchema !== "object" || inputSchema === null) return OPEN_RECORD;
  let found = known.get(inputSchema);
  if (!found) {
    const shape = new Reader(inputSchema).shape(inputSchema, 0);
    found = shape.kind === "record" ? shape : OPEN_RECORD;
    known.set(inputSchema, found);
  }
  return found;
}

class Reader {
  readonly #root: unknown;
  readonly #following = new Set<string>();
  #budget = MAX_SCHEMAS;

  constructor(root: unknown) {
    this.#root = root;
  }

  shape(schema: unknown, depth: number): ValueShape {
    if (!isSchema(schema) || depth > MAX_DEPTH || this.#budget-- <= 0) return OPEN_SHAPE;
    const own = this.#own(schema, depth);
    const all = list(schema.allOf).map((part) => this.shape(part, depth + 1));
    if (typeof schema.$ref === "string") all.push(this.#reference(schema.$ref, depth));
    const alternatives = [...list(schema.anyOf), ...list(schema.oneOf)].filter((part) => !isNull(part));
    const shapes = own ? [own, ...all] : all;
    if (alternatives.length > 0) {
      const either = alternatives.map((part) => this.shape(part, depth + 1)).reduce(eitherShape);
      // `{ type: object, properties, anyOf: [{ required: [a] }, …] }` is common: alternatives that only constrain.
      if (!own || either.kind !== "open") shapes.push(either);
    }
    return shapes.length === 0 ? OPEN_SHAPE : shapes.reduce(bothShapes);
  }

  /** Only references inside the document; one that leads back to itself has no Cedar type. */
  #reference(ref: string, depth: number): ValueShape {
    if (!ref.startsWith("#") || this.#following.has(ref)) return OPEN_SHAPE;
    let target: unknown = this.#root;
    for (const step of ref.split("/").slice(1)) {
      const key = decode(step);
      target =
        typeof target === "object" && target !== null && Object.hasOwn(target, key)
          ? (target as Schema)[key]
          : undefined;
    }
    this.#following.add(ref);
    const shape = this.shape(target, depth + 1);
    this.#following.delete(ref);
    return shape;
  }

  /** What the schema says by itself; undefined when it says nothing about the type. */
  #own(schema: Schema, depth: number): ValueShape | undefined {
    const types = typesOf(schema);
    if (types.length === 0) return isSchema(schema.properties) ? this.#record(schema, depth) : undefined;
    if (types.length > 1)
      return types.every((type) => type === "integer" || type === "number") ? SIMPLE.number : OPEN_SHAPE;
    const type = types[0] ?? "";
    if (type === "object") return this.#record(schema, depth);
    if (type === "array") return this.#set(schema, depth);
    return SIMPLE[type] ?? OPEN_SHAPE;
  }

  #set(schema: Schema, depth: number): ValueShape {
    const items = [...list(schema.prefixItems), ...[schema.items ?? []].flat()];
    if (items.length === 0) return OPEN_SHAPE;
    const element = items.map((item) => this.shape(item, depth + 1)).reduce(eitherShape);
    return isTyped(element) ? { kind: "set", element } : OPEN_SHAPE;
  }

  #record(schema: Schema, depth: number): RecordShape {
    const properties = isSchema(schema.properties) ? schema.properties : undefined;
    const required = new Set(list(schema.required));
    const attrs = new Map<string, { shape: ValueShape; required: boolean }>();
    const named = Object.entries(properties ?? {});
    for (const [name, property] of named.slice(0, MAX_ATTRS)) {
      if (UNUSABLE.has(name)) continue;
      attrs.set(name, { shape: this.shape(property, depth + 1), required: required.has(name) });
    }
    const said = schema.additionalProperties;
    const saysOpen = said === true || isSchema(said) || isSchema(schema.patternProperties);
    const open = saysOpen || (!properties && said !== false) || named.length > MAX_ATTRS;
    let shape: RecordShape = { kind: "record", attrs, open };
    for (const part of [schema.then, schema.else, ...Object.values(schema.dependentSchemas ?? {})]) {
      const sometimes = isSchema(part) ? this.shape({ type: "object", properties: {}, ...part }, depth + 1) : undefined;
      if (sometimes?.kind === "record") shape = bothRecords(shape, optional(sometimes));
    }
    return shape;
  }
}

/** Both hold: attributes add up. */
function bothShapes(a: ValueShape, b: ValueShape): ValueShape {
  if (a.kind === "record" && b.kind === "record") return bothRecords(a, b);
  if (a.kind === "open") return b;
  return b.kind === "open" || sameShape(a, b) ? a : OPEN_SHAPE;
}

function bothRecords(a: RecordShape, b: RecordShape): RecordShape {
  const attrs = new Map(a.attrs);
  for (const [name, theirs] of b.attrs) {
    const ours = attrs.get(name);
    attrs.set(
      name,
      ours ? { shape: bothShapes(ours.shape, theirs.shape), required: ours.required || theirs.required } : theirs,
    );
  }
  return { kind: "record", attrs, open: a.open || b.open };
}

/** One of the two holds: what only one of them has is optional, and a type they differ in is open. */
export function eitherShape(a: ValueShape, b: ValueShape): ValueShape {
  if (a.kind !== "record" || b.kind !== "record") return sameShape(a, b) ? a : OPEN_SHAPE;
  const attrs = new Map<string, { shape: ValueShape; required: boolean }>();
  for (const name of new Set([...a.attrs.keys(), ...b.attrs.keys()])) {
    const ours = a.attrs.get(name);
    const theirs = b.attrs.get(name);
    const present = ours ?? theirs;
    if (ours && theirs) {
      attrs.set(name, { shape: eitherShape(ours.shape, theirs.shape), required: ours.required && theirs.required });
    } else if (present) attrs.set(name, { shape: present.shape, required: false });
  }
  return { kind: "record", attrs, open: a.open || b.open };
}

function optional(shape: RecordShape): RecordShape {
  const attrs = new Map([...shape.attrs].map(([name, attr]) => [name, { shape: attr.shape, required: false }]));
  return { kind: "record", attrs, open: shape.open };
}

/** True when Cedar has a type for all of it. */
export function isTyped(shape: ValueShape): boolean {
  if (shape.kind === "set") return isTyped(shape.element);
  if (shape.kind === "record") return !shape.open && [...shape.attrs.values()].every((attr) => isTyped(attr.shape));
  return shape.kind !== "open";
}

function sameShape(a: ValueShape, b: ValueShape): boolean {
  return shapeText(a) === shapeText(b);
}

const texts = new WeakMap<RecordShape, string>();

/** Equal texts, equal shapes. */
export function shapeText(shape: ValueShape): string {
  if (shape.kind === "set") return `[${shapeText(shape.element)}]`;
  if (shape.kind !== "record") return shape.kind;
  const text = texts.get(shape) ?? recordText(shape);
  texts.set(shape, text);
  return text;
}

function recordText(shape: RecordShape): string {
  const attrs = [...shape.attrs].map(
    ([name, attr]) => `${JSON.stringify(name)}${attr.required ? "" : "?"}:${shapeText(attr.shape)}`,
  );
  return `{${attrs.sort().join(",")}${shape.open ? ",…" : ""}}`;
}

function typesOf(schema: Schema): string[] {
  if (typeof schema.type === "string") return [schema.type];
  if (Array.isArray(schema.type)) return schema.type.filter((type): type is string => type !== "null");
  const all = Array.isArray(schema.enum) ? schema.enum : "const" in schema ? [schema.const] : [];
  const values = all.filter((value) => value !== null);
  const types = values.map((value) => {
    if (Array.isArray(value)) return "array";
    return typeof value === "number" ? (Number.isInteger(value) ? "integer" : "number") : typeof value;
  });
  return [...new Set(types)];
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isNull(schema: unknown): boolean {
  return isSchema(schema) && (schema.type === "null" || ("const" in schema && schema.const === null));
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function decode(step: string): string {
  try {
    return decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
  } catch {
    return step;
  }
}
