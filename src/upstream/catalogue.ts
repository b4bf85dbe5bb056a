// Everything a server offers, all pages of it, within bounds.

import { type Charge, ERRORS, isJsonObject, type JsonObject, parsedBytes } from "../mcp/index.js";
import { nonsense, tooLarge, serverUnavailable } from "../mcp/session/index.js";
import type { UpstreamConnection } from "./connection.js";
import type { Catalogue, UpstreamContext } from "./types.js";

interface List {
  readonly method: string;
  /** Where the entries stand in a page, and what an entry is known by. */
  readonly field: "tools" | "resources" | "resourceTemplates" | "prompts";
  readonly key: string;
  readonly capability: string;
}

const LISTS: readonly List[] = [
  { method: "tools/list", field: "tools", key: "name", capability: "tools" },
  { method: "resources/list", field: "resources", key: "uri", capability: "resources" },
  { method: "resources/templates/list", field: "resourceTemplates", key: "uriTemplate", capability: "resources" },
  { method: "prompts/list", field: "prompts", key: "name", capability: "prompts" },
];

/** What it costs to keep is charged to `charge`, page by page. */
export async function readCatalogue(
  connection: UpstreamConnection,
  around: UpstreamContext,
  charge: Charge,
): Promise<Catalogue> {
  const { revision, serverInfo, capabilities, instructions } = connection.agreement;
  const found: Record<List["field"], JsonObject[]> = { tools: [], resources: [], resourceTemplates: [], prompts: [] };
  const until = performance.now() + around.timeouts.catalogueMs;
  for (const list of LISTS) {
    if (isJsonObject(capabilities[list.capability]))
      found[list.field] = await readList(connection, around, list, charge, until);
  }
  return { revision: revision.name, serverInfo, instructions, capabilities, ...found };
}

async function readList(
  connection: UpstreamConnection,
  around: UpstreamContext,
  list: List,
  charge: Charge,
  until: number,
): Promise<JsonObject[]> {
  const { server, limits, timeouts } = around;
  const entries = new Map<string, JsonObject>();
  let cursor: string | undefined;
  for (let page = 0; page < limits.maxPages; page++) {
    const params = cursor === undefined ? "{}" : JSON.stringify({ cursor });
    const leftMs = until - performance.now();
    if (leftMs <= 0) throw serverUnavailable(server, `its lists were not read within ${timeouts.catalogueMs} ms`);
    const answer = await connection.call({
      method: list.method,
      params,
      timeoutMs: Math.min(timeouts.listMs, Math.ceil(leftMs)),
    });
    if (answer.kind === "error") {
      // Declared and yet not there: as good as empty. Common for templates.
      if (answer.error.code === ERRORS.MethodNotFound.modern) return [];
      throw nonsense(server, `\`${list.method}\` failed: ${answer.error.message} (${answer.error.code})`);
    }
    const bytes = charge.bytes + parsedBytes(answer.text.length, answer.values ?? 0);
    if (bytes > limits.maxCatalogueBytes) {
      throw tooLarge(server, `server \`${server}\` has more than ${limits.maxCatalogueBytes} bytes in its lists`, true);
    }
    if (!charge.set(bytes)) {
      throw tooLarge(server, `the lists of server \`${server}\` are more than its application may keep`, true);
    }
    add(entries, answer.value[list.field], list.key);
    if (entries.size > limits.maxEntries) {
      throw tooLarge(server, `server \`${server}\` has more than ${limits.maxEntries} ${list.field}`, true);
    }
    const next = answer.value.nextCursor;
    if (typeof next !== "string") return [...entries.values()];
    if (next === cursor) throw nonsense(server, `\`${list.method}\` gives the same cursor again and again`);
    cursor = next;
  }
  throw tooLarge(server, `server \`${server}\` has more than ${limits.maxPages} pages of ${list.field}`, true);
}

/** An entry without a name cannot be called, and of two with the same name the second cannot: both are left out. */
function add(entries: Map<string, JsonObject>, page: unknown, key: string): void {
  if (!Array.isArray(page)) return;
  for (const entry of page as unknown[]) {
    if (!isJsonObject(entry)) continue;
    const name = entry[key];
    if (typeof name === "string" && name !== "" && !entries.has(name)) entries.set(name, entry);
  }
}
