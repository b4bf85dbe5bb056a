// What is generated from: the answer to tools/list, however it was saved.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import { CodegenError } from "./errors.js";
import type { CodegenLimits } from "./limits.js";

export interface ManifestTool {
  readonly name: string;
  readonly description: string | undefined;
  readonly inputSchema: JsonValue;
  readonly outputSchema: JsonValue | undefined;
}

export interface Manifest {
  /** The name the server is generated under. */
  readonly name: string;
  readonly version: string;
  readonly tools: readonly ManifestTool[];
}

/** Reads a manifest: `{ tools }`, a whole JSON-RPC answer, or a bare list of tools. */
export function readManifest(source: unknown, name: string | undefined, limits: CodegenLimits): Manifest {
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
        `\`${key}\` of the tool \`${name}\` is no schema; it must be an object`,
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
