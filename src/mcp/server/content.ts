// Short ways to write content blocks and results.

import type { JsonObject, JsonValue } from "../index.js";
import { DefinitionError } from "../../schema/index.js";
import { jsonOf, checkBlocks } from "./sent.js";
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
