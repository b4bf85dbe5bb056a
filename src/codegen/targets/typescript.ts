// A TypeScript module: types, decoders, a typed caller, handlers to fill in, and the capability type of the server.

import { type Checks, encodeChecks } from "../checks.js";
import { type Contract, sidesOf, type ToolContract } from "../contract.js";
import { camel, literal, Names } from "../names.js";
import type { Declaration, Type } from "../types/type.js";
import { countFields, errorRows, HEADER, type Target, withRuntime } from "./target.js";

export const typescript: Target = {
  reserved: {
    types: [
      "Json",
      "JsonObject",
      "Problem",
      "DecodeError",
      "ErrorType",
      "ERRORS",
      "McpError",
      "Promise",
      "CALL",
      "CallAnswer",
      "Caller",
      "ToolCaller",
      "ToolFailed",
      "ToolNotFound",
    ],
    resultSuffix: "Result",
    toolNames: () => [],
    serverNames: (title) => ["Tools", "Caps", "Caller", "Handlers"].map((suffix) => `${title}${suffix}`),
  },
  runtime: "typescript",
  emit(contract, runtime) {
    const methods = methodNames(contract);
    const checks = encodeChecks(contract);
    const files = withRuntime(runtime, [
      { path: "types.ts", text: typesFile(contract) },
      { path: "table.ts", text: tableFile(checks) },
      { path: "error-table.ts", text: errorTableFile() },
      { path: "decode.ts", text: decodeFile(contract, checks) },
      { path: "definitions.ts", text: definitionsFile(contract) },
      { path: "caller.ts", text: callerFile(contract, methods) },
      { path: "server.ts", text: serverFile(contract, methods) },
      { path: "handlers.ts", text: handlersFile(contract, methods), once: true },
      { path: "index.ts", text: indexFile() },
    ]);
    return { files, reports: [], fields: countFields(contract) };
  },
};

/** What the language itself asks of any object: a tool of that name would run when code awaits or prints its caller. */
const OBJECT_MEMBERS = [
  "constructor",
  "hasOwnProperty",
  "isPrototypeOf",
  "propertyIsEnumerable",
  "then",
  "toJSON",
  "toLocaleString",
  "toString",
  "valueOf",
];

function methodNames({ tools }: Contract): ReadonlyMap<ToolContract, string> {
  const names = new Names(OBJECT_MEMBERS);
  return new Map(tools.map((tool) => [tool, names.take(camel(tool.name, "tool"))]));
}

function typesFile(contract: Contract): string {
  const { title, tools } = contract;
  const entries = tools.map(
    (tool) =>
      `${comment(tool.docs, "  ")}  ${literal(tool.name)}: { args: ${tool.args.type}; result: ${tool.result?.type ?? "unknown"} };\n`,
  );
  return [
    `// ${HEADER}\n`,
    ...contract.declarations.map(declarationText),
    `/** Every tool of ${plain(contract.server)}, with what it takes and what it answers: its capability set as a type. */\n` +
      `export interface ${title}Tools {\n${entries.join("")}}\n`,
    `/** The names in the capability set. */\nexport type ${title}Caps = keyof ${title}Tools;\n`,
  ].join("\n");
}

function tableFile({ nodes, patterns }: Checks): string {
  // Parsed from text, not written as code: a field named __proto__ stays a field.
  const data = literal(JSON.stringify(nodes));
  const rows = patterns.map(({ source, flags, program }) => {
    const compiled = typeof program === "string" ? "undefined" : JSON.stringify(program);
    return `  { source: ${literal(source)}, flags: ${literal(flags)}, program: ${compiled} },\n`;
  });
  return [
    `// ${HEADER}\n`,
    `import type { CheckNode, CheckPattern } from "./check.js";\n`,
    `export const NODES = JSON.parse(\n  ${data},\n) as readonly CheckNode[];\n`,
    `export const PATTERNS: readonly CheckPattern[] = [\n${rows.join("")}];\n`,
  ].join("\n");
}

function errorTableFile(): string {
  const rows = errorRows().map(([type, { code, legacy, modern, http, retryable, forModel, message }]) => {
    const cells = { code, legacy, modern, http, retryable, forModel, message };
    return `  ${type}: { ${Object.entries(cells)
      .map(([name, cell]) => `${name}: ${literal(cell)}`)
      .join(", ")} },\n`;
  });
  return `// ${HEADER}

/** Every error of a gateway: JSON-RPC codes up to revision 2025-11-25 (\`legacy\`) and since 2026-07-28 (\`modern\`). */
export const ERRORS = {
${rows.join("")}} as const;

export type ErrorType = keyof typeof ERRORS;
`;
}

function definitionsFile({ title, tools }: Contract): string {
  const data = literal(JSON.stringify(tools.map((tool) => tool.definition)));
  return `// ${HEADER}

import type { JsonObject } from "./check.js";
import type { ${title}Caps } from "./types.js";

/** The names in the capability set, for the run time. */
export const TOOL_NAMES: readonly ${title}Caps[] = [${tools.map((tool) => literal(tool.name)).join(", ")}];

/** The tools as the server publishes them, to serve them again. */
export const DEFINITIONS = JSON.parse(
  ${data},
) as readonly {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: JsonObject;
  readonly outputSchema?: JsonObject;
}[];
`;
}

function decodeFile(contract: Contract, { place }: Checks): string {
  const sides = contract.tools.flatMap(({ args, result }) => [
    { ...args, error: "ValidationError" },
    ...(result ? [{ ...result, error: "OutputInvalid" }] : []),
  ]);
  const types = [...new Set(sides.map((side) => side.type))];
  return [
    `// ${HEADER}\n`,
    sides.length > 0 ? `import { decode } from "./check.js";` : "",
    importTypes(types),
    ...sides.map(
      ({ type, node, error }) =>
        `export function decode${type}(value: unknown): ${type} {\n  return decode<${type}>("${error}", ${literal(type)}, ${place(node)}, value);\n}\n`,
    ),
    `/** What decides about each tool's arguments and results, by its name. */`,
    `export const CHECKS: ReadonlyMap<string, { readonly args: number; readonly result: number | undefined }> = new Map([`,
    ...contract.tools.map(
      ({ name, args, result }) =>
        `  [${literal(name)}, { args: ${place(args.node)}, result: ${result ? place(result.node) : "undefined"} }],`,
    ),
    `]);\n`,
  ].join("\n");
}

function callerFile(contract: Contract, methods: ReadonlyMap<ToolContract, string>): string {
  const { title, tools } = contract;
  const types = sidesOf(tools).map(({ type }) => type);
  const calls = tools.map((tool) => {
    const args = `decode${tool.args.type}(args)`;
    const method = methods.get(tool);
    const body = tool.result
      ? `    const answer = await this[CALL](${literal(tool.name)}, ${args});\n    return decode${tool.result.type}(answer.structuredContent);\n`
      : `    return await this[CALL](${literal(tool.name)}, ${args});\n`;
    return `${comment(tool.docs, "  ")}  async ${method}(args: ${tool.args.type}): Promise<${tool.result?.type ?? "CallAnswer"}> {\n${body}  }\n`;
  });
  return `// ${HEADER}

import { ${tools.length > 0 ? "CALL, " : ""}${tools.some((tool) => !tool.result) ? "type CallAnswer, " : ""}Caller } from "./call.js";
${types.length > 0 ? `import { ${unique(types.map((type) => `decode${type}`))} } from "./decode.js";` : ""}
${importTypes(types)}
/** Arguments are checked before they are sent, results before they are returned. */
export class ${title}Caller extends Caller {
${calls.join("\n")}}
`;
}

/** In an interface a bare `new(…)` is not a method, but says what is constructed. */
function signatureName(method: string): string {
  return method === "new" ? literal(method) : propertyName(method);
}

function serverFile(contract: Contract, methods: ReadonlyMap<ToolContract, string>): string {
  const { title, tools } = contract;
  const types = sidesOf(tools).map(({ type }) => type);
  const entries = tools.map(
    (tool) =>
      `${comment(tool.docs, "  ")}  ${signatureName(methods.get(tool) as string)}(args: ${tool.args.type}, context: Context): Promise<${tool.result?.type ?? "unknown"}>;\n`,
  );
  const cases = tools.map((tool) => {
    const call = `await handlers.${methods.get(tool)}(decode${tool.args.type}(args), context)`;
    return `    case ${literal(tool.name)}:\n      return ${tool.result ? `decode${tool.result.type}(${call})` : call};\n`;
  });
  return `// ${HEADER}

import { ToolNotFound } from "./call.js";
${types.length > 0 ? `import { ${unique(types.map((type) => `decode${type}`))} } from "./decode.js";` : ""}
${importTypes(types)}
/** One method for each tool. \`Context\` is whatever your server hands to them. */
export interface ${title}Handlers<${tools.length > 0 ? "" : "_"}Context = unknown> {
${entries.join("")}}

/** Arguments in, result out; both are checked. Throws a DecodeError when they do not fit. */
export async function dispatch<Context>(
  handlers: ${title}Handlers<Context>,
  tool: string,
  args: unknown,
  context: Context,
): Promise<unknown> {
${tools.length === 0 ? "  void [handlers, args, context];\n" : ""}  switch (tool) {
${cases.join("")}    default:
      throw new ToolNotFound(tool);
  }
}
`;
}

function handlersFile(contract: Contract, methods: ReadonlyMap<ToolContract, string>): string {
  const { title, tools } = contract;
  const types = sidesOf(tools).map(({ type }) => type);
  const bodies = tools.map(
    (tool) =>
      `${comment(tool.docs, "  ")}  async ${methods.get(tool)}(args: ${tool.args.type}): Promise<${tool.result?.type ?? "unknown"}> {\n    void args;\n    throw new Error(${literal(`${tool.name} is not implemented`)});\n  },\n`,
  );
  return `// Yours to fill in: \`portcullis gen\` writes this file once and never again.

import type { ${title}Handlers } from "./server.js";
${importTypes(types)}
export const handlers: ${title}Handlers = {
${bodies.join("")}};
`;
}

function indexFile(): string {
  return `// ${HEADER}

export { type CallAnswer, type ToolCaller, ToolFailed, ToolNotFound } from "./call.js";
export * from "./caller.js";
export { check, type Json, type JsonObject } from "./check.js";
export * from "./decode.js";
export * from "./definitions.js";
export * from "./error-table.js";
export * from "./errors.js";
export * from "./server.js";
export type * from "./types.js";
`;
}

function importTypes(types: readonly string[]): string {
  return types.length === 0 ? "" : `import type { ${unique(types)} } from "./types.js";\n`;
}

function unique(names: readonly string[]): string {
  return [...new Set(names)].sort().join(", ");
}

function plain(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]|\*\//g, "?");
}

const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

function typeText(type: Type): string {
  switch (type.kind) {
    case "any":
    case "opaque":
      return "unknown";
    case "never":
    case "null":
    case "boolean":
    case "number":
    case "string":
      return type.kind;
    case "integer":
      return "number";
    case "list":
      return `${inList(type.items)}[]`;
    case "tuple": {
      const items = type.items.map((item, i) => (i < type.min ? typeText(item) : `${inList(item)}?`));
      const rest = type.rest.kind === "never" ? [] : [`...${inList(type.rest)}[]`];
      return `[${[...items, ...rest].join(", ")}]`;
    }
    case "map":
      return `{ [name: string]: ${typeText(type.values)} }`;
    case "nullable":
      return `${typeText(type.of)} | null`;
    case "named":
      return type.name;
  }
}

function inList(type: Type): string {
  return type.kind === "nullable" ? `(${typeText(type)})` : typeText(type);
}

function declarationText(declaration: Declaration): string {
  const docs = comment(declaration.docs);
  const { name } = declaration;
  switch (declaration.kind) {
    case "object": {
      const lines = declaration.fields.map(
        (field) =>
          `${comment(field.docs, "  ")}  ${propertyName(field.name)}${field.required ? "" : "?"}: ${typeText(field.type)};\n`,
      );
      const { extra } = declaration;
      // An index signature has to cover the named fields too. Where anything may follow, none is written: it would hide
      // every misspelt name from the compiler.
      if (extra !== undefined && extra.kind !== "any" && extra.kind !== "opaque") {
        const all = [extra, ...declaration.fields.map((field) => field.type)].map(typeText);
        if (declaration.fields.some((field) => !field.required)) all.push("undefined");
        lines.push(`  [name: string]: ${[...new Set(all)].join(" | ")};\n`);
      }
      return `${docs}export interface ${name} {\n${lines.join("")}}\n`;
    }
    case "enum":
      return `${docs}export type ${name} = ${declaration.values.map(literal).join(" | ")};\n`;
    case "union":
      return `${docs}export type ${name} = ${declaration.variants.map((variant) => inList(variant.type)).join(" | ")};\n`;
    case "alias":
      return `${docs}export type ${name} = ${typeText(declaration.type)};\n`;
  }
}

function propertyName(name: string): string {
  return IDENTIFIER.test(name) ? name : literal(name);
}

function comment(lines: readonly string[], indent = ""): string {
  if (lines.length === 0) return "";
  const safe = lines.map((line) => line.replaceAll("*/", "*\\/"));
  if (safe.length === 1) return `${indent}/** ${safe[0]} */\n`;
  return `${indent}/**\n${safe.map((line) => `${indent} * ${line}`.trimEnd()).join("\n")}\n${indent} */\n`;
}
