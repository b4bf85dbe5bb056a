// Names that callers see for what upstream servers offer. A server chooses its own names; the operator chooses the
// prefix, so that no server can take the name of another server's tool.

import { createHash } from "node:crypto";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";

/** The names of tools that every client accepts. */
const SHORT_NAME = /^[A-Za-z0-9_-]{1,64}$/;
export const MAX_SHORT = 64;
const DIGEST_CHARS = 8;

/** Names without dots for clients that take nothing else. Both depend on the name alone. */
export interface ShortNames {
  /** `fs_read_file` for `fs.read_file`; several names may share it. */
  readonly readable: string;
  /** The same with a digest of the full name, which no other name shares. */
  readonly hashed: string;
}

export function shortNamesOf(canonical: string): ShortNames {
  if (SHORT_NAME.test(canonical)) return { readable: canonical, hashed: canonical };
  const digest = createHash("sha256").update(canonical).digest("hex").slice(0, DIGEST_CHARS);
  const clean = canonical.replace(/[^A-Za-z0-9_-]+/g, "_");
  const hashed = `${clean.slice(0, MAX_SHORT - DIGEST_CHARS - 1)}_${digest}`;
  return { readable: clean.length <= MAX_SHORT ? clean : hashed, hashed };
}

/** The names of one server as its callers see them; without a prefix they are the server's own. */
export class Namespace {
  /** `github.` for tools and prompts. */
  readonly prefix: string;
  /** `github+` for uris, which stay uris that way. */
  readonly scheme: string;

  constructor(prefix: string, scheme: string) {
    this.prefix = prefix;
    this.scheme = scheme;
  }

  name(raw: string): string {
    return this.prefix + raw;
  }

  uri(raw: string): string {
    return this.scheme + raw;
  }

  /** The server's own uri, or undefined for one of another server. */
  rawUri(uri: string): string | undefined {
    return uri.startsWith(this.scheme) ? uri.slice(this.scheme.length) : undefined;
  }
}

export const BARE = new Namespace("", "");

/** A URI scheme: lowercase letters, digits, `+`, `-` and `.`, with a lowercase letter first. */
export function schemeFor(server: string): string {
  const cleaned = server.toLowerCase().replace(/[^a-z0-9.-]/g, "-");
  return `${/^[a-z]/.test(cleaned) ? cleaned : `s${cleaned}`}+`;
}

/** How deep a result is looked through for links; what lies deeper is refused before by the limit on nesting. */
const MAX_DEPTH = 128;

/** Links and embedded resources in a result, under the names that this caller can read them by. */
export function renameUris(value: JsonObject, namespace: Namespace): JsonObject {
  return renamed(value, namespace, 0) as JsonObject;
}

function renamed(value: JsonValue, namespace: Namespace, depth: number): JsonValue {
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH) return value;
  if (Array.isArray(value)) return value.map((item) => renamed(item, namespace, depth + 1));
  const out: [string, JsonValue][] = [];
  for (const [key, item] of Object.entries(value)) {
    // What a tool says about the world in its structured content or `_meta` is data and no link.
    if (key === "structuredContent" || key === "_meta") out.push([key, item]);
    else out.push([key, renamed(item, namespace, depth + 1)]);
  }
  const copy = Object.fromEntries(out) as JsonObject;
  if (value.type === "resource_link" && typeof value.uri === "string") copy.uri = namespace.uri(value.uri);
  if (value.type === "resource" && isJsonObject(copy.resource) && typeof copy.resource.uri === "string") {
    copy.resource = { ...copy.resource, uri: namespace.uri(copy.resource.uri) };
  }
  return copy;
}

/** `resources/read`: every part says which resource it is of. */
export function renameContents(value: JsonObject, namespace: Namespace): JsonObject {
  if (!Array.isArray(value.contents)) return value;
  const contents = value.contents.map((part) =>
    isJsonObject(part) && typeof part.uri === "string" ? { ...part, uri: namespace.uri(part.uri) } : part,
  );
  return { ...value, contents };
}
