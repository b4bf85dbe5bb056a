// Short ways to write content blocks and results.

import { DefinitionError } from "../../schema/index.js";
import { DEFAULT_MAX_DEPTH, Fault, type JsonObject, type JsonValue } from "../index.js";
import type {
  AudioContent,
  ContentBlock,
  EmbeddedResource,
  HandlerResult,
  ImageContent,
  ResourceContents,
  ResourceLink,
  TextContent,
  ToolResult,
} from "./types.js";

type Extra = Pick<TextContent, "annotations" | "_meta">;
type Bytes = Uint8Array | string;

export function text(value: string, extra: Extra = {}): TextContent {
  return { type: "text", text: value, ...extra };
}

/** Bytes, or a string that is base64 already. */
export function image(data: Bytes, mimeType: string, extra: Extra = {}): ImageContent {
  return { type: "image", data: base64(data), mimeType, ...extra };
}

export function audio(data: Bytes, mimeType: string, extra: Extra = {}): AudioContent {
  return { type: "audio", data: base64(data), mimeType, ...extra };
}

/** A resource inside a result: text as it is, bytes as a blob. */
export function resource(
  uri: string,
  body: string | Uint8Array,
  mimeType?: string,
  extra: Extra = {},
): EmbeddedResource {
  return { type: "resource", resource: resourceContents(uri, body, mimeType), ...extra };
}

export function link(uri: string, name: string, more: Omit<ResourceLink, "type" | "uri" | "name"> = {}): ResourceLink {
  return { type: "resource_link", uri, name, ...more };
}

export function resourceContents(uri: string, body: string | Uint8Array, mimeType?: string): ResourceContents {
  const type = mimeType === undefined ? {} : { mimeType };
  return typeof body === "string" ? { uri, ...type, text: body } : { uri, ...type, blob: base64(body) };
}

/** A failure that the model should read and act on. */
export function failure(reason: string, structuredContent?: JsonValue): ToolResult & { isError: true } {
  return { content: [text(reason)], isError: true, ...(structuredContent === undefined ? {} : { structuredContent }) };
}

/** Structured content, with the same as text for clients that read only text. */
export function structured<T extends JsonValue | object>(
  value: T,
  meta?: JsonObject,
): ToolResult & { structuredContent: T } {
  const result = { content: [text(JSON.stringify(value))], structuredContent: value as T & JsonValue };
  return meta === undefined ? result : { ...result, _meta: meta };
}

function base64(data: Bytes): string {
  return typeof data === "string" ? data : Buffer.from(data).toString("base64");
}

/** Whatever a handler returned, as a result in the form in which it is checked and sent. */
export function toResult(tool: string, handed: HandlerResult): ToolResult {
  if (handed === undefined) return { content: [] };
  if (typeof handed === "string") return { content: [text(handed)] };
  if (typeof handed === "object" && handed !== null) {
    const returned = jsonOf(tool, handed);
    if (Array.isArray(returned)) return checkBlocks(tool, { content: returned });
    if ("content" in returned && Array.isArray(returned.content)) return checkBlocks(tool, returned as ToolResult);
    if ("structuredContent" in returned && returned.structuredContent !== undefined) {
      const { structuredContent, ...rest } = returned;
      return checkBlocks(tool, { ...rest, content: [text(JSON.stringify(structuredContent))], structuredContent });
    }
    if ("type" in returned && typeof returned.type === "string") {
      return checkBlocks(tool, { content: [returned as ContentBlock] });
    }
  }
  throw new DefinitionError(
    `tool \`${tool}\`: the handler returned neither text, content blocks, a result with \`content\` nor \`structuredContent\``,
  );
}

/** Two levels of a message stand around a result. */
const MAX_DEPTH = DEFAULT_MAX_DEPTH - 2;

/** The same object when it is JSON as it stands, which is nearly always. */
function jsonOf<T extends object>(tool: string, returned: T): T {
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

/** Clients read blocks by the protocol's schema, and one that is not a block costs them the whole answer. */
function checkBlocks(tool: string, result: ToolResult): ToolResult {
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
  if (typeof block !== "object" || block === null) return "is not an object";
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
