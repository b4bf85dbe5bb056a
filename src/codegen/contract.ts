// The intermediate form: everything a target needs to know about a server, and nothing of how a language writes it.

import type { JsonObject } from "../mcp/index.js";
import { CodegenError } from "./errors.js";
import { type CodegenLimits, DEFAULT_CODEGEN_LIMITS } from "./limits.js";
import { readManifest } from "./manifest.js";
import { Names, pascal } from "./names.js";
import { type Report, Reports } from "./report.js";
import { compileSchema } from "./schema/compile.js";
import type { Node, NodeId, NodeTable } from "./schema/node.js";
import { commentLines } from "./text.js";
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
  /** Tools whose author says that no guardrail is required. Never read from the manifest: a hint is no proof. */
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
        compileSchema(table, schema, `\`${key}\` of the tool \`${tool.name}\``, limits, reports),
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
