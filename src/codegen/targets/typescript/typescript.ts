// A TypeScript module: types, decoders, a typed caller, handlers to fill in, and the capability type of the server.

import { type Checks, encodeChecks } from "../../checks.js";
import type { Contract, ToolContract } from "../../contract.js";
import { DEFAULT_CODEGEN_LIMITS } from "../../limits.js";
import { camel, Names } from "../../names.js";
import { compilePattern } from "../../schema/pattern.js";
import { countFields, type GeneratedFile, HEADER, type Target } from "../target.js";
import { CHECK_TS } from "./runtime.js";
import { comment, declarationText, literal, propertyName } from "./types.js";

export const typescript: Target = {
  reserved: {
    types: [
      "Json",
      "JsonObject",
      "Problem",
      "DecodeError",
      "Promise",
      "CallAnswer",
      "ToolCaller",
      "ToolFailed",
      "ToolNotFound",
    ],
    resultSuffix: "Result",
    toolNames: () => [],
    serverNames: (title) => ["Tools", "Caps", "Caller", "Handlers"].map((suffix) => `${title}${suffix}`),
  },
  emit(contract) {
    const methods = methodNames(contract);
    const checks = encodeChecks(contract);
    const files: GeneratedFile[] = [
      { path: "types.ts", text: typesFile(contract) },
      { path: "table.ts", text: tableFile(checks) },
      { path: "check.ts", text: `// ${HEADER}\n${CHECK_TS}` },
      { path: "decode.ts", text: decodeFile(contract, checks) },
      { path: "definitions.ts", text: definitionsFile(contract) },
      { path: "caller.ts", text: callerFile(contract, methods) },
      { path: "server.ts", text: serverFile(contract, methods) },
      { path: "handlers.ts", text: handlersFile(contract, methods), once: true },
      { path: "index.ts", text: indexFile() },
    ];
    return { files, reports: [], fields: countFields(contract) };
  },
};

/** What the language itself asks of any object: a tool of that name would run when somebody awaits or prints its caller. */
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
  const rows = patterns.map((pattern) => {
    const program = compilePattern(pattern, DEFAULT_CODEGEN_LIMITS.maxPatternSize);
    const compiled = typeof program === "string" ? "undefined" : JSON.stringify(program);
    return `  { source: ${literal(pattern.source)}, flags: ${literal(pattern.flags)}, program: ${compiled} },\n`;
  });
  return [
    `// ${HEADER}\n`,
    `import type { CheckNode, CheckPattern } from "./check.js";\n`,
    `export const NODES = JSON.parse(\n  ${data},\n) as readonly CheckNode[];\n`,
    `export const PATTERNS: readonly CheckPattern[] = [\n${rows.join("")}];\n`,
  ].join("\n");
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
  const sides = contract.tools.flatMap(({ args, result }) => [args, ...(result ? [result] : [])]);
  const types = [...new Set(sides.map((side) => side.type))];
  return [
    `// ${HEADER}\n`,
    `import { decode } from "./check.js";`,
    importTypes(types),
    ...sides.map(
      ({ type, node }) =>
        `export function decode${type}(value: unknown): ${type} {\n  return decode<${type}>(${literal(type)}, ${place(node)}, value);\n}\n`,
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
  const types = tools.flatMap(({ args, result }) => [args.type, ...(result ? [result.type] : [])]);
  const calls = tools.map((tool) => {
    const args = `decode${tool.args.type}(args)`;
    const method = methods.get(tool);
    const body = tool.result
      ? `    const answer = await this.#ask(${literal(tool.name)}, ${args});\n    return decode${tool.result.type}(answer.structuredContent);\n`
      : `    return await this.#ask(${literal(tool.name)}, ${args});\n`;
    return `${comment(tool.docs, "  ")}  async ${method}(args: ${tool.args.type}): Promise<${tool.result?.type ?? "CallAnswer"}> {\n${body}  }\n`;
  });
  return `// ${HEADER}

import type { JsonObject } from "./check.js";
${types.length > 0 ? `import { ${unique(types.map((type) => `decode${type}`))} } from "./decode.js";` : ""}
${importTypes(types)}
/** What a server answers to tools/call. */
export interface CallAnswer {
  readonly content?: readonly unknown[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
}

/** Anything that can call a tool by name; the client of portcullis and of the official SDK both can, with a line around them. */
export interface ToolCaller {
  callTool(name: string, args: JsonObject): Promise<CallAnswer>;
}

/** The tool ran and said that it failed. */
export class ToolFailed extends Error {
  readonly code = "TOOL_FAILED";
  readonly answer: CallAnswer;
  constructor(tool: string, answer: CallAnswer) {
    super("the tool " + tool + " failed");
    this.name = "ToolFailed";
    this.answer = answer;
  }
}

/** Arguments are checked before they are sent, answers before they are handed out. */
export class ${title}Caller {
  readonly #caller: ToolCaller;

  constructor(caller: ToolCaller) {
    this.#caller = caller;
  }

${calls.join("\n")}${calls.length > 0 ? "\n" : ""}  ${calls.length > 0 ? "async #ask" : "protected async ask"}(name: string, args: object): Promise<CallAnswer> {
    const answer = await this.#caller.callTool(name, args as JsonObject);
    if (answer.isError === true) throw new ToolFailed(name, answer);
    return answer;
  }
}
`;
}

/** In an interface a bare `new(…)` is no method, but says what is constructed. */
function signatureName(method: string): string {
  return method === "new" ? literal(method) : propertyName(method);
}

function serverFile(contract: Contract, methods: ReadonlyMap<ToolContract, string>): string {
  const { title, tools } = contract;
  const types = tools.flatMap(({ args, result }) => [args.type, ...(result ? [result.type] : [])]);
  const entries = tools.map(
    (tool) =>
      `${comment(tool.docs, "  ")}  ${signatureName(methods.get(tool) as string)}(args: ${tool.args.type}, context: Context): Promise<${tool.result?.type ?? "unknown"}>;\n`,
  );
  const cases = tools.map((tool) => {
    const call = `await handlers.${methods.get(tool)}(decode${tool.args.type}(args), context)`;
    return `    case ${literal(tool.name)}:\n      return ${tool.result ? `decode${tool.result.type}(${call})` : call};\n`;
  });
  return `// ${HEADER}

${types.length > 0 ? `import { ${unique(types.map((type) => `decode${type}`))} } from "./decode.js";` : ""}
${importTypes(types)}
/** One method for each tool. \`Context\` is whatever your server hands to them. */
export interface ${title}Handlers<Context = unknown> {
${entries.join("")}}

export class ToolNotFound extends Error {
  readonly code = "TOOL_NOT_FOUND";
}

/** Arguments in, result out; both are checked. Throws a DecodeError when they do not fit. */
export async function dispatch<Context>(
  handlers: ${title}Handlers<Context>,
  tool: string,
  args: unknown,
  context: Context,
): Promise<unknown> {
${tools.length === 0 ? "  void [handlers, args, context];\n" : ""}  switch (tool) {
${cases.join("")}    default:
      throw new ToolNotFound("there is no tool " + tool);
  }
}
`;
}

function handlersFile(contract: Contract, methods: ReadonlyMap<ToolContract, string>): string {
  const { title, tools } = contract;
  const types = tools.flatMap(({ args, result }) => [args.type, ...(result ? [result.type] : [])]);
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
  const rooms = ["types", "decode", "definitions", "caller", "server"];
  return [
    `// ${HEADER}\n`,
    `export { check, DecodeError, type Json, type JsonObject, type Problem } from "./check.js";`,
    ...rooms.map((room) => (room === "types" ? `export type * from "./types.js";` : `export * from "./${room}.js";`)),
    "",
  ].join("\n");
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
