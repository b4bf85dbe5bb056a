// Types and declarations as Rust writes them.

import type { Checks } from "../checks.js";
import { Names, pascal } from "../names.js";
import type { NodeId } from "../schema/node.js";
import type { Declaration, Match, Type } from "../types/type.js";
import { identifier, quote, raw, rustDocs } from "./rust-names.js";

export interface RustScope {
  readonly checks: Checks;
  /** Whether a value of the first type directly contains one of the second, and comes back. */
  readonly circle: (from: string, to: string) => boolean;
  /** The node that decides about a declaration, where it is one side of a tool. */
  readonly roots: ReadonlyMap<string, NodeId>;
}

const DERIVES = "#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]\n";

function typeText(type: Type, owner: string, scope: RustScope, direct = true): string {
  const inner = (each: Type, stays = false): string => typeText(each, owner, scope, stays && direct);
  switch (type.kind) {
    case "any":
    case "opaque":
      return "Value";
    case "never":
      return "Never";
    case "null":
      return "()";
    case "boolean":
      return "bool";
    case "integer":
      return "i64";
    case "number":
      return "f64";
    case "string":
      return "String";
    case "list":
      return `Vec<${inner(type.items)}>`;
    case "tuple":
      // Positions that may be missing have no tuple in Rust; then every position may hold what any of them may.
      if (!type.exact || type.items.length > 12) return `Vec<${inner(type.element)}>`;
      return `(${type.items.map((item) => `${inner(item, true)},`).join(" ")})`;
    case "map":
      return `BTreeMap<String, ${inner(type.values)}>`;
    case "nullable":
      return `OrNull<${inner(type.of, true)}>`;
    case "named":
      return direct && scope.circle(owner, type.name) ? `Box<${type.name}>` : type.name;
  }
}

export function rustDeclaration(declaration: Declaration, scope: RustScope): string {
  const { name } = declaration;
  const root = scope.roots.get(name);
  const head = rustDocs(declaration.docs);
  switch (declaration.kind) {
    case "object":
      return head + (root === undefined ? derivedStruct(declaration, scope) : checkedStruct(declaration, scope, root));
    case "enum":
      return (
        head +
        (declaration.values.every((value) => typeof value === "string")
          ? textEnum(declaration)
          : valueEnum(declaration))
      );
    case "union":
      return head + unionText(declaration, scope, root);
    case "alias":
      return head + aliasText(declaration, scope, root);
  }
}

interface StructField {
  readonly wire: string;
  readonly name: string;
  readonly type: string;
  readonly required: boolean;
  readonly docs: readonly string[];
}

function fieldsOf(
  declaration: Declaration & { kind: "object" },
  scope: RustScope,
): { fields: StructField[]; rest: string; restType: string | undefined } {
  const names = new Names();
  const fields = declaration.fields.map((field): StructField => {
    const type = typeText(field.type, declaration.name, scope);
    return {
      wire: field.name,
      name: raw(names.take(identifier(field.name, "field"), "_")),
      type: field.required ? type : `Option<${type}>`,
      required: field.required,
      docs: field.docs,
    };
  });
  const { extra } = declaration;
  const restType =
    extra === undefined ? undefined : `BTreeMap<String, ${typeText(extra, declaration.name, scope, false)}>`;
  return { fields, rest: names.take("extra", "_"), restType };
}

const REST_DOCS = "    /// Fields that the schema does not name; they travel on unchanged.\n";

/** Inside another type: serde reads and writes it; what encloses it has been checked. */
function derivedStruct(declaration: Declaration & { kind: "object" }, scope: RustScope): string {
  const { fields, rest, restType } = fieldsOf(declaration, scope);
  const lines = fields.map((field) => {
    const options = [`rename = ${quote(field.wire)}`];
    if (!field.required)
      options.push("default", `skip_serializing_if = "Option::is_none"`, `deserialize_with = "present"`);
    return `${rustDocs(field.docs, "    ")}    #[serde(${options.join(", ")})]\n    pub ${field.name}: ${field.type},\n`;
  });
  const closed = restType === undefined ? "#[serde(deny_unknown_fields)]\n" : "";
  if (restType !== undefined) lines.push(`${REST_DOCS}    #[serde(flatten)]\n    pub ${rest}: ${restType},\n`);
  return `${DERIVES}${closed}pub struct ${declaration.name} {\n${lines.join("")}}\n`;
}

/** One side of a tool: whatever is read into it has been checked as a whole. */
function checkedStruct(declaration: Declaration & { kind: "object" }, scope: RustScope, root: NodeId): string {
  const { fields, rest, restType } = fieldsOf(declaration, scope);
  const lines = fields.map((field) => `${rustDocs(field.docs, "    ")}    pub ${field.name}: ${field.type},\n`);
  if (restType !== undefined) lines.push(`${REST_DOCS}    pub ${rest}: ${restType},\n`);
  const reads = fields.map(
    (field) =>
      `            ${field.name}: ${field.required ? "required" : "optional"}(&mut fields, ${quote(field.wire)})?,\n`,
  );
  if (restType !== undefined) reads.push(`            ${rest}: others(fields)?,\n`);
  // The others first, so that none of them can replace a field.
  const writes = restType === undefined ? [] : [`        put_others(&mut fields, &self.${rest})?;\n`];
  writes.push(
    ...fields.map(
      (field) =>
        `        ${field.required ? "put" : "put_some"}(&mut fields, ${quote(field.wire)}, &self.${field.name})?;\n`,
    ),
  );
  const { name } = declaration;
  const used = fields.length > 0;
  return `#[derive(Clone, Debug, PartialEq)]
pub struct ${name} {
${lines.join("")}}

impl ${name} {
${constructorText(name, fields, restType === undefined ? undefined : rest)}
    fn read(value: Value) -> Result<Self, serde_json::Error> {
        let ${used ? "mut " : ""}fields = fields_of(value)?;
${restType === undefined && !used ? "        let _ = fields;\n" : ""}        Ok(${name} {
${reads.join("")}        })
    }

    fn write(&self) -> Result<Value, serde_json::Error> {
        let ${writes.length > 0 ? "mut " : ""}fields = Map::new();
${writes.join("")}        Ok(Value::Object(fields))
    }
}

checked!(${name}, ${scope.checks.place(root)});
`;
}

/** From what must be there; the rest is absent until it is set. */
function constructorText(name: string, fields: readonly StructField[], rest: string | undefined): string {
  const wanted = fields.filter((field) => field.required);
  const values = fields.map((field) => (field.required ? `${field.name}, ` : `${field.name}: None, `));
  if (rest !== undefined) values.push(`${rest}: BTreeMap::new(), `);
  const many = wanted.length > 7 ? "    #[allow(clippy::too_many_arguments)]\n" : "";
  const none = wanted.length === 0 ? "    #[allow(clippy::new_without_default)]\n" : "";
  return `${many}${none}    pub fn new(${wanted.map((field) => `${field.name}: ${field.type}`).join(", ")}) -> Self {
        ${name} { ${values.join("")}}
    }
`;
}

function aliasText(
  { name, type }: Declaration & { kind: "alias" },
  scope: RustScope,
  root: NodeId | undefined,
): string {
  const inner = typeText(type, name, scope);
  if (root === undefined) return `${DERIVES}#[serde(transparent)]\npub struct ${name}(pub ${inner});\n`;
  return `#[derive(Clone, Debug, PartialEq)]
pub struct ${name}(pub ${inner});

impl ${name} {
    fn read(value: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(value).map(${name})
    }

    fn write(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(&self.0)
    }
}

checked!(${name}, ${scope.checks.place(root)});
`;
}

function variantNames(values: readonly unknown[]): string[] {
  const names = new Names(["Self"]);
  return values.map((value) =>
    names.take(pascal(typeof value === "number" ? numberWords(value) : String(value), "Empty"), "V"),
  );
}

function numberWords(value: number): string {
  return `${value < 0 ? "minus " : ""}${Math.abs(value)}`.replace(".", " point ");
}

function textEnum({ name, values }: Declaration & { kind: "enum" }): string {
  const names = variantNames(values);
  const lines = values.map((value, i) => `    #[serde(rename = ${quote(String(value))})]\n    ${names[i]},\n`);
  return `#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]\npub enum ${name} {\n${lines.join("")}}\n`;
}

function valueEnum({ name, values }: Declaration & { kind: "enum" }): string {
  const names = variantNames(values);
  const variants = names.map((variant) => `    ${variant},\n`).join("");
  const all = names.map((variant) => `${name}::${variant}`).join(", ");
  const arms = values.map(
    (value, i) =>
      `            ${name}::${names[i]} => json!(${typeof value === "string" ? quote(value) : numberOrBool(value)}),\n`,
  );
  return `#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ${name} {
${variants}}

impl ${name} {
    pub const ALL: &'static [${name}] = &[${all}];

    pub fn to_value(self) -> Value {
        match self {
${arms.join("")}        }
    }
}

listed!(${name});
`;
}

function numberOrBool(value: number | boolean): string {
  if (typeof value === "boolean") return String(value);
  if (Number.isSafeInteger(value)) return `${value}i64`;
  return `${value}f64`.replace("e+", "e");
}

function unionText(
  { name, variants }: Declaration & { kind: "union" },
  scope: RustScope,
  root: NodeId | undefined,
): string {
  const names = new Names(["Self"]);
  const own = variants.map((variant) => names.take(pascal(variant.name, "Variant"), "V"));
  const lines = variants.map((variant, i) => `    ${own[i]}(${typeText(variant.type, name, scope)}),\n`);
  const tries = variants.map(
    (variant, i) => `        if ${condition(variant.match, scope)} {
            if let Ok(inner) = serde_json::from_value(value.clone()) {
                return Ok(${name}::${own[i]}(inner));
            }
        }
`,
  );
  const writes = variants.map((_, i) => `            ${name}::${own[i]}(inner) => serde_json::to_value(inner),\n`);
  return `#[derive(Clone, Debug, PartialEq)]
pub enum ${name} {
${lines.join("")}}

impl ${name} {
    /// The first variant that the value fits.
    fn read(value: Value) -> Result<Self, serde_json::Error> {
${tries.join("")}        Err(de::Error::custom("fits no variant of ${name}"))
    }

    fn write(&self) -> Result<Value, serde_json::Error> {
        match self {
${writes.join("")}        }
    }
}

${root === undefined ? `chosen!(${name});` : `checked!(${name}, ${scope.checks.place(root)});`}
`;
}

function condition(match: readonly Match[], { checks }: RustScope): string {
  const tests = match.map((each) =>
    "node" in each
      ? `check::fits(${checks.place(each.node)}, &value)`
      : each.types.map((type) => `check::has_type(&value, ${quote(type)})`).join(" || "),
  );
  return [...new Set(tests)].join(" || ");
}

/** The circle each declaration is in; a field needs a box when its type is in the same one. */
export function circles(declarations: readonly Declaration[]): (from: string, to: string) => boolean {
  const edges = new Map(declarations.map((declaration) => [declaration.name, held(declaration)]));
  const groups = components(edges);
  return (from, to) => groups.get(from) === groups.get(to) && (from !== to || (edges.get(from)?.includes(to) ?? false));
}

/** The named types that lie directly in a value, not behind a list or a map. */
function held(declaration: Declaration): string[] {
  const inside = (type: Type): string[] => {
    if (type.kind === "named") return [type.name];
    if (type.kind === "nullable") return inside(type.of);
    return type.kind === "tuple" && type.exact ? type.items.flatMap(inside) : [];
  };
  switch (declaration.kind) {
    case "object":
      return declaration.fields.flatMap((field) => inside(field.type));
    case "union":
      return declaration.variants.flatMap((variant) => inside(variant.type));
    case "alias":
      return inside(declaration.type);
    case "enum":
      return [];
  }
}

/** Strongly connected components by Tarjan's method, without recursion: their depth is not ours. */
function components(edges: ReadonlyMap<string, readonly string[]>): Map<string, number> {
  const group = new Map<string, number>();
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const open: string[] = [];
  for (const start of edges.keys()) {
    if (index.has(start)) continue;
    const stack: { name: string; next: number }[] = [{ name: start, next: 0 }];
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const { name } = top;
      if (top.next === 0) {
        index.set(name, index.size);
        low.set(name, index.get(name) as number);
        open.push(name);
      }
      const target = edges.get(name)?.[top.next++];
      if (target !== undefined) {
        if (!index.has(target)) stack.push({ name: target, next: 0 });
        else if (!group.has(target)) low.set(name, Math.min(low.get(name) as number, index.get(target) as number));
        continue;
      }
      stack.pop();
      const above = stack.at(-1)?.name;
      if (above !== undefined) low.set(above, Math.min(low.get(above) as number, low.get(name) as number));
      if (low.get(name) !== index.get(name)) continue;
      const id = group.size;
      for (let member = open.pop(); member !== undefined; member = member === name ? undefined : open.pop())
        group.set(member, id);
    }
  }
  return group;
}
