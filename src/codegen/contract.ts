// The intermediate form: everything a target needs to know about a server, and nothing of how a language writes it.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import { commentLines, Names, pascal } from "./names.js";
import { CodegenError, type CodegenLimits, DEFAULT_CODEGEN_LIMITS, type Report, Reports } from "./report.js";
import { compileNodes } from "./schema/compile.js";
import type { Node, NodeId, NodeTable } from "./schema/node.js";
import { Types } from "./types/derive.js";
import { shapeOf } from "./types/shape.js";
import type { Declaration } from "./types/type.js";

/** One side of a tool: the declaration its values have, and the node that decides about them. */
export interface Side {
  readonly type: string;
  readonly node: NodeId;
}

export interface ToolContract {
  /** As it travels. */
  readonly name: string;
  /** In PascalCase, and the only one of its contract. */
  readonly title: string;
  readonly docs: readonly string[];
  readonly args: Side;
  /** Undefined where the tool has no output schema. */
  readonly result: Side | undefined;
  /** The author says that it may run without a guardrail. */
  readonly unguarded: boolean;
  /** What the server publishes about it. */
  readonly definition: JsonObject;
}

/** Both sides of each tool. */
export function sidesOf(tools: readonly ToolContract[]): Side[] {
  return tools.flatMap(({ args, result }) => (result === undefined ? [args] : [args, result]));
}

export interface Contract {
  /** As the server calls itself. */
  readonly server: string;
  readonly version: string;
  /** In PascalCase. */
  readonly title: string;
  readonly tools: readonly ToolContract[];
  readonly declarations: readonly Declaration[];
  readonly table: NodeTable;
  readonly reports: readonly Report[];
}

export interface ContractOptions {
  /** The name to generate under, instead of the server's own. */
  readonly name?: string;
  /** Tools whose author says that no guardrail is required. Never read from the manifest: a hint is not a proof. */
  readonly unguarded?: readonly string[];
  readonly limits?: Partial<CodegenLimits>;
}

/** Names that a target uses itself. A type of the server that is called so gets a number. */
export interface Reserved {
  readonly types: readonly string[];
  /** What a result is called: `ReadFileSuccess`, `ReadFileResult`. */
  readonly resultSuffix: string;
  /** What is declared for each tool beside its types: `CanReadFile`. */
  toolNames(title: string): readonly string[];
  /** What is declared for the server as a whole: `FileManagerCaps`. */
  serverNames(title: string): readonly string[];
}

export function buildContract(source: unknown, reserved: Reserved, options: ContractOptions = {}): Contract {
  const limits = { ...DEFAULT_CODEGEN_LIMITS, ...options.limits };
  const manifest = readManifest(source, options.name, limits);
  const unguarded = new Set(options.unguarded ?? []);
  for (const name of unguarded) {
    if (!manifest.tools.some((tool) => tool.name === name)) {
      throw new CodegenError("CODEGEN_MANIFEST", `there is no tool \`${name}\` to leave unguarded`);
    }
  }
  const reports = new Reports();
  const table: NodeTable = { nodes: [], patterns: [] };
  const title = pascal(manifest.name, "Server");
  const names = new Names([...reserved.types, title, ...reserved.serverNames(title)]);
  // Names of tools first, so that no nested type can take one.
  const titles = titlesOf(
    manifest.tools.map((tool) => tool.name),
    reserved,
    names,
  );
  const types = new Types(table, names, limits, reports);
  const tools = manifest.tools.map((tool, i): ToolContract => {
    const own = titles[i] as string;
    const side = (key: "inputSchema" | "outputSchema", suffix: string): Side => {
      reports.enter(tool.name, key);
      const schema = tool[key] ?? true;
      const node = asObject(
        table,
        compileNodes(table, schema, `\`${key}\` of the tool \`${tool.name}\``, limits, reports),
        key,
      );
      const type = types.root(node, `${own}${suffix}`, own);
      return { type: type.kind === "named" ? type.name : `${own}${suffix}`, node };
    };
    return {
      name: tool.name,
      title: own,
      docs: commentLines(tool.description),
      args: side("inputSchema", "Args"),
      result: tool.outputSchema === undefined ? undefined : side("outputSchema", reserved.resultSuffix),
      unguarded: unguarded.has(tool.name),
      definition: {
        name: tool.name,
        ...(tool.description !== undefined && { description: tool.description }),
        inputSchema: tool.inputSchema,
        ...(tool.outputSchema !== undefined && { outputSchema: tool.outputSchema }),
      },
    };
  });
  return {
    server: manifest.name,
    version: manifest.version,
    title,
    tools,
    declarations: types.declarations,
    table,
    reports: reports.all(),
  };
}

function titlesOf(tools: readonly string[], { resultSuffix, toolNames }: Reserved, names: Names): string[] {
  const taken = new Names();
  return tools.map((tool) => {
    for (;;) {
      const title = taken.take(pascal(tool, "Tool"));
      const wanted = [...["", "Args", resultSuffix].map((suffix) => `${title}${suffix}`), ...toolNames(title)];
      if (wanted.every((name) => !names.has(name))) {
        for (const name of wanted) names.take(name);
        return title;
      }
    }
  });
}

/** The protocol sends objects as arguments, whatever else a schema would accept; of results only where it leaves that open. */
function asObject(table: NodeTable, id: NodeId, side: "inputSchema" | "outputSchema"): NodeId {
  const { types } = shapeOf(table.nodes, [{ id, spent: "" }]);
  const isObject = types?.length === 1 && types[0] === "object";
  if (isObject || (side === "outputSchema" && types !== undefined)) return id;
  const { about } = table.nodes[id] as Node;
  return (
    table.nodes.push({ types: ["object"], all: [id], about: { tool: about.tool, side: about.side, pointer: "" } }) - 1
  );
}

export interface ManifestTool {
  readonly name: string;
  readonly description: string | undefined;
  readonly inputSchema: JsonValue;
  readonly outputSchema: JsonValue | undefined;
}

interface Manifest {
  /** The name the server is generated under. */
  readonly name: string;
  readonly version: string;
  readonly tools: readonly ManifestTool[];
}

/** Reads a manifest: `{ tools }`, a whole JSON-RPC answer, or a bare list of tools. */
function readManifest(source: unknown, name: string | undefined, limits: CodegenLimits): Manifest {
  const answer = isJsonObject(source as JsonValue) ? (source as JsonObject) : { tools: source as JsonValue };
  const body = isJsonObject(answer.result) ? answer.result : answer;
  if (!Array.isArray(body.tools)) {
    throw new CodegenError("CODEGEN_MANIFEST", "a manifest must hold a list `tools`, as tools/list answers");
  }
  if (body.tools.length > limits.maxTools) {
    throw new CodegenError(
      "CODEGEN_TOO_LARGE",
      `the manifest lists ${body.tools.length} tools; the limit is ${limits.maxTools} (maxTools)`,
    );
  }
  const seen = new Set<string>();
  const tools = body.tools.map((tool, i) => {
    const read = readTool(tool, i);
    if (seen.has(read.name)) {
      throw new CodegenError(
        "CODEGEN_MANIFEST",
        `the manifest lists the tool \`${read.name}\` twice; names must be unique`,
      );
    }
    seen.add(read.name);
    return read;
  });
  const info = isJsonObject(body.serverInfo) ? body.serverInfo : body;
  const given = [name, info.name, body.package].find((each) => typeof each === "string" && each !== "");
  const version = typeof info.version === "string" ? info.version : "0.0.0";
  return { name: (given as string | undefined) ?? "server", version, tools };
}

function readTool(tool: JsonValue, i: number): ManifestTool {
  if (!isJsonObject(tool) || typeof tool.name !== "string" || tool.name === "") {
    throw new CodegenError("CODEGEN_MANIFEST", `tools[${i}] of the manifest has no name`);
  }
  const { name, description, inputSchema, outputSchema } = tool;
  for (const [key, schema] of Object.entries({ inputSchema, outputSchema })) {
    if (schema !== undefined && typeof schema !== "boolean" && !isJsonObject(schema)) {
      throw new CodegenError(
        "CODEGEN_MANIFEST",
        `\`${key}\` of the tool \`${name}\` is not a schema: expected an object`,
      );
    }
  }
  return {
    name,
    description: typeof description === "string" ? description : undefined,
    inputSchema: inputSchema ?? { type: "object" },
    outputSchema,
  };
}
