// The JSON of a tool's result. A tool that reads says the same long text twice, once as content and once in its
// structured content; quoting it is most of what such an answer costs, so it is quoted once.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";

/** Below this nothing is gained. */
const LONG_TEXT = 64 * 1024;

export function resultJson(result: JsonObject): string {
  const { content, structuredContent } = result;
  const block = Array.isArray(content) && content.length === 1 ? content[0] : undefined;
  if (!isJsonObject(block) || !isJsonObject(structuredContent)) return JSON.stringify(result);
  const { text } = block;
  if (typeof text !== "string" || text.length < LONG_TEXT || !Object.values(structuredContent).includes(text)) {
    return JSON.stringify(result);
  }
  const quoted = JSON.stringify(text);
  const write = (value: JsonValue): string => (value === text ? quoted : JSON.stringify(value));
  return objectJson(result, (value) => {
    if (value === structuredContent) return objectJson(structuredContent, write);
    return value === content ? `[${objectJson(block, write)}]` : JSON.stringify(value);
  });
}

/** Like `JSON.stringify`, what has no JSON is left out. */
function objectJson(object: JsonObject, write: (value: JsonValue) => string | undefined): string {
  // Put together with `+`, which copies nothing yet; `join` would.
  let members = "";
  for (const [key, value] of Object.entries(object)) {
    const json = write(value);
    if (json !== undefined) members += `${members === "" ? "" : ","}${JSON.stringify(key)}:${json}`;
  }
  return `{${members}}`;
}
