// One field of a document, named by a path. Names may hold dots, so a path that begins with `/` is a JSON pointer.

import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { CliError, EXIT } from "../../lib/exit.js";

const MAX_DEPTH = 32;

export function pathOf(text: string): string[] {
  const parts = text.startsWith("/")
    ? text
        .slice(1)
        .split("/")
        .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
    : text.split(".");
  if (parts.includes("") || parts.length > MAX_DEPTH) {
    throw new CliError(`\`${text}\` is no path`, EXIT.usage, "write servers.s3.command, or /routes/community.aws.s3");
  }
  return parts;
}

/** JSON where it is JSON, otherwise the text itself. */
export function valueOf(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return text;
  }
}

/** A copy with that field set, or without it. */
export function withField(document: JsonObject, path: readonly string[], value: JsonValue | undefined): JsonObject {
  const [name = "", ...rest] = path;
  // Own properties only, defined and not assigned: a field called `__proto__` is a field.
  const copy: [string, JsonValue][] = Object.entries(document)
    .filter(([key, each]) => key !== name && each !== undefined)
    .map(([key, each]) => [key, each as JsonValue]);
  if (rest.length > 0) {
    const inner = Object.hasOwn(document, name) ? document[name] : undefined;
    if (inner !== undefined && !isJsonObject(inner)) {
      throw new CliError(`\`${name}\` holds no fields; set it as a whole`, EXIT.usage);
    }
    if (inner !== undefined || value !== undefined) copy.push([name, withField(inner ?? {}, rest, value)]);
  } else if (value !== undefined) copy.push([name, value]);
  return Object.fromEntries(copy);
}
