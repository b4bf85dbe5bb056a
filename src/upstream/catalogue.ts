// Everything a server offers, all pages of it, within bounds.

import { ERRORS, isJsonObject, type JsonObject } from "../protocol/index.js";
import type { Connection } from "./connection.js";
import { nonsense, tooLarge, unavailable } from "./faults.js";
import type { Surroundings } from "./pending.js";
import type { Catalogue } from "./types.js";

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

export async function readCatalogue(connection: Connection, around: Surroundings): Promise<Catalogue> {
  const { revision, serverInfo, capabilities, instructions } = connection.agreement;
  const found: Record<List["field"], JsonObject[]> = { tools: [], resources: [], resourceTemplates: [], prompts: [] };
  const budget = {
    bytes: around.limits.maxCatalogueBytes,
    until: performance.now() + around.timeouts.catalogueMs,
  };
  for (const list of LISTS) {
    if (isJsonObject(capabilities[list.capability]))
      found[list.field] = await readList(connection, around, list, budget);
  }
  return { revision: revision.name, serverInfo, instructions, capabilities, ...found };
}

async function readList(
  connection: Connection,
  around: Surroundings,
  list: List,
  budget: { bytes: number; readonly until: number },
): Promise<JsonObject[]> {
  const { server, limits, timeouts } = around;
  const entries = new Map<string, JsonObject>();
  let cursor: string | undefined;
  for (let page = 0; page < limits.maxPages; page++) {
    const params = cursor === undefined ? "{}" : JSON.stringify({ cursor });
    const leftMs = budget.until - performance.now();
    if (leftMs <= 0) throw unavailable(server, `its lists were not read within ${timeouts.catalogueMs} ms`);
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
    budget.bytes -= answer.text.length;
    add(entries, answer.value[list.field], list.key);
    if (budget.bytes < 0 || entries.size > limits.maxEntries) {
      const what =
        budget.bytes < 0 ? `${limits.maxCatalogueBytes} bytes in its lists` : `${limits.maxEntries} ${list.field}`;
      throw tooLarge(server, `server \`${server}\` has more than ${what}`, true);
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
