// What a handler returned, as the JSON that will be sent. It is checked and sent in this form: an object with `toJSON`,
// a member that is undefined or a NaN would otherwise pass as one thing and arrive as another.

import { DEFAULT_MAX_DEPTH, Fault } from "../index.js";
import type { ContentBlock, ToolResult } from "./types.js";

/** Two levels of a message stand around a result. */
const MAX_DEPTH = DEFAULT_MAX_DEPTH - 2;

/** The same object when it is JSON as it stands, which is nearly always. */
export function jsonOf<T extends object>(tool: string, returned: T): T {
  if (isJson(returned, MAX_DEPTH)) return returned;
  let copy: T;
  try {
    copy = JSON.parse(JSON.stringify(returned, refuse)) as T;
  } catch (error) {
    throw invalid(tool, (error as Error).message);
  }
  if (!isJson(copy, MAX_DEPTH)) throw invalid(tool, `it is nested deeper than ${MAX_DEPTH} levels`);
  return copy;
}

function isJson(value: unknown, levels: number): boolean {
  switch (typeof value) {
    case "string":
    case "boolean":
      return true;
    case "number":
      return Number.isFinite(value);
    case "object":
      return value === null || (levels > 0 && isPlain(value, levels - 1));
    default:
      return false;
  }
}

function isPlain(value: object, levels: number): boolean {
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length; at++) if (!isJson(value[at], levels)) return false;
    return true;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  for (const key in value) if (!isJson((value as Record<string, unknown>)[key], levels)) return false;
  return true;
}

/** `JSON.stringify` would leave these out or make null of them, without a word. */
function refuse(this: unknown, key: string, value: unknown): unknown {
  const type = typeof value;
  const lost = (type === "number" && !Number.isFinite(value)) || type === "bigint" || type === "symbol";
  if (lost || type === "function" || (value === undefined && Array.isArray(this))) {
    throw new TypeError(`\`${key}\` is ${type === "number" ? value : `of type ${type}`}, which has no JSON form`);
  }
  return value;
}

/** Clients read blocks by the protocol's schema, and one that is no block costs them the whole answer. */
export function checkBlocks(tool: string, result: ToolResult): ToolResult {
  for (const [at, block] of result.content.entries()) {
    const problem = blockProblem(block);
    if (problem !== undefined) throw invalid(tool, `content block ${at} ${problem}`, `/content/${at}`);
  }
  if (result.isError !== undefined && typeof result.isError !== "boolean") {
    throw invalid(tool, "`isError` must be true or false", "/isError");
  }
  return result;
}

function blockProblem(block: ContentBlock): string | undefined {
  if (typeof block !== "object" || block === null) return "is no object";
  switch (block.type) {
    case "text":
      return needs(block, "text");
    case "image":
    case "audio":
      return needs(block, "data", "mimeType");
    case "resource_link":
      return needs(block, "uri", "name");
    case "resource": {
      const { resource } = block;
      if (typeof resource !== "object" || resource === null) return "of type `resource` needs an object `resource`";
      return needs(resource, "uri") ?? needs(resource, resource.text === undefined ? "blob" : "text");
    }
    default:
      return "must have a `type`: text, image, audio, resource or resource_link";
  }
}

function needs(block: object, ...fields: readonly string[]): string | undefined {
  const missing = fields.find((field) => typeof (block as Record<string, unknown>)[field] !== "string");
  return missing === undefined ? undefined : `needs \`${missing}\` as a string`;
}

function invalid(tool: string, why: string, field?: string): Fault {
  return new Fault("OutputInvalid", `\`${tool}\` answered with what cannot be sent: ${why}`, {
    ...(field === undefined ? {} : { field }),
    suggestions: ["Mend what the tool's handler returns"],
  });
}
