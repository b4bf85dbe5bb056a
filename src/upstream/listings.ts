// What a server lists on the connection in use, and whether that still holds. No call reaches a server whose
// definitions were not read since it was started, or since it announced a change.

import { createHash } from "node:crypto";
import { Charge, ERRORS, type Fault, isJsonObject, type JsonObject, nextSlice, parsedBytes } from "../mcp/index.js";
import { nonsense, serverUnavailable, tooLarge } from "../mcp/session/index.js";
import { again } from "./again.js";
import { pauseMs } from "./breaker.js";
import { definitionChanged } from "./connect.js";
import { definitionHashOf, definitionsOf, pinKeyOf } from "./pins/definition.js";
import type { Catalogue, ExpectedDefinition, UpstreamConnection, UpstreamContext } from "./types.js";

/** Listings in quick succession that cost no pause: servers announce their tools one by one. As many may fail. */
const FREE_CHANGES = 4;
/** A change so long after the last listing is not part of a series. */
const QUIET_MS = 60_000;
/** A call waits for a pause that ends this soon, and is refused otherwise. */
const MAX_CALL_WAIT_MS = 5_000;
/** After connections that ended by agreement, a listing is trusted for so long: some servers close after each answer. */
const TRUST_MS = 2_000;

interface Listed {
  readonly catalogue: Catalogue;
  readonly hashes: ReadonlyMap<string, string>;
  /** Over all hashes: two listings with the same definitions have the same. */
  readonly digest: string;
  readonly at: number;
}

export interface ListingsEvents {
  /** The connection to read from; starts the server if it has to. */
  ready(): Promise<UpstreamConnection>;
  /** The server lists other definitions than it did, or than a call was decided for. */
  differs(): void;
}

export class Listings {
  readonly #context: UpstreamContext;
  readonly #events: ListingsEvents;
  /** The listing that is to be read, is being read or was read. */
  #reading: Promise<Listed> | undefined;
  /** INVARIANT: a listing that has not begun yet sees everything that was announced until now. */
  #hasBegun = false;
  /** One listing at a time, also when the one under way is of no more use. */
  #lastEnd: Promise<unknown> = Promise.resolve();
  /** INVARIANT: read on the connection in use, begun after the last announced change. */
  #current: Listed | undefined;
  #before: Listed | undefined;
  #isDoubtful = false;
  /** How many changes and how many failures there were in a row, and when the last listing ended. */
  #changes = 0;
  #failures = 0;
  #isCounted = false;
  /** What the last listing costs, which its application shows until there is another. */
  #charge = new Charge(undefined);
  #isOver = false;
  #endedAt = Number.NEGATIVE_INFINITY;

  readonly #againMs: number;

  /** `againMs`: a list that was not answered is asked for again so often; 0 for never. */
  constructor(context: UpstreamContext, againMs: number, events: ListingsEvents) {
    this.#context = context;
    this.#againMs = againMs;
    this.#events = events;
  }

  get isCurrent(): boolean {
    return this.#current !== undefined && !this.#hasExpired(this.#current);
  }

  async catalogue(): Promise<Catalogue> {
    return (await this.#read()).catalogue;
  }

  /** Another connection is in use, or the server announced a change: what was listed before says nothing now. */
  reset(isAnnounced = false): void {
    if (this.#reading === undefined || !this.#hasBegun) return;
    if (isAnnounced && !this.#isCounted) {
      this.#isCounted = true;
      this.#count(performance.now());
    }
    this.#current = undefined;
    this.#reading = undefined;
    this.#isDoubtful = false;
  }

  /** The last connection to a server without sessions ended: the next answer may come from another process. */
  doubt(): void {
    this.#isDoubtful = true;
  }

  /** Resolves when the listing is current; rejects when the server cannot be asked, or changes too often. */
  async waitFor(): Promise<void> {
    const waitMs = this.#pauseLeftMs();
    if (!this.isCurrent && waitMs > MAX_CALL_WAIT_MS) {
      throw serverUnavailable(this.#context.server, "its definitions change all the time and are read again later", {
        retry_after_ms: Math.ceil(waitMs),
        suggestions: [`Try again in ${Math.ceil(waitMs / 1_000)} s`],
      });
    }
    try {
      await this.#read();
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw serverUnavailable(
        this.#context.server,
        `its definitions could not be read, so nothing is sent to it: ${why}`,
      );
    }
  }

  /**
   * Why a call that was decided for this definition must not be sent; undefined when it may.
   * INVARIANT (the caller's): `isCurrent`.
   */
  refusal(expected: ExpectedDefinition): Fault | undefined {
    const listed = this.#current as Listed;
    if (expected === "any") return undefined;
    const hash = listed.hashes.get(pinKeyOf(expected.kind, expected.name));
    if (hash === definitionHashOf(expected.definition)) return undefined;
    if (this.#before !== listed) {
      this.#before = listed;
      this.#events.differs();
    }
    return definitionChanged(this.#context.server, expected.kind, expected.name, hash === undefined);
  }

  #read(): Promise<Listed> {
    if (this.#current !== undefined && this.#hasExpired(this.#current)) this.reset();
    if (this.#reading !== undefined) return this.#reading;
    this.#hasBegun = false;
    const reading = this.#lastEnd.then(() => this.#list());
    this.#reading = reading;
    this.#lastEnd = reading.then(
      (listed) => this.#ended(reading, listed),
      () => this.#ended(reading, undefined),
    );
    // Callers continue after the result was taken over.
    return this.#lastEnd.then(() => reading);
  }

  async #list(): Promise<Listed> {
    const waitMs = this.#pauseLeftMs();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
    const connection = await this.#events.ready();
    this.#hasBegun = true;
    const charge = new Charge(this.#context.budget);
    try {
      const catalogue = await readCatalogue(connection, this.#context, charge, this.#againMs);
      await nextSlice();
      const hashes = new Map<string, string>();
      for (const { kind, name, hash } of await definitionsOf(catalogue)) hashes.set(pinKeyOf(kind, name), hash);
      this.#charge.set(0);
      this.#charge = charge;
      if (this.#isOver) charge.set(0);
      return { catalogue, hashes, digest: digestOf(hashes), at: performance.now() };
    } catch (error) {
      charge.set(0);
      throw error;
    }
  }

  /** The server is gone for good: nothing of it is kept. */
  end(): void {
    this.#isOver = true;
    this.#charge.set(0);
  }

  #ended(reading: Promise<Listed>, listed: Listed | undefined): void {
    const now = performance.now();
    const isOther = listed !== undefined && this.#before !== undefined && this.#before.digest !== listed.digest;
    if (isOther && !this.#isCounted) this.#count(now);
    this.#failures = listed === undefined ? this.#failures + 1 : 0;
    this.#endedAt = now;
    if (this.#reading !== reading) return;
    this.#isCounted = false;
    this.#current = listed;
    this.#isDoubtful = false;
    if (listed === undefined) {
      this.#reading = undefined;
      return;
    }
    this.#before = listed;
    if (isOther) this.#events.differs();
  }

  #count(now: number): void {
    this.#changes = now - this.#endedAt > QUIET_MS ? 1 : this.#changes + 1;
  }

  #hasExpired({ at }: Listed): boolean {
    return this.#isDoubtful && performance.now() - at > TRUST_MS;
  }

  /** Until a server that keeps changing is asked again: nothing at first, then doubled up to the longest back-off. */
  #pauseLeftMs(): number {
    const { timeouts } = this.#context;
    const { backoffMs, maxBackoffMs } = timeouts;
    const pause = (times: number, msOf: (attempt: number) => number): number =>
      times <= FREE_CHANGES ? 0 : msOf(times - FREE_CHANGES - 1);
    const ofChanges = pause(this.#changes, (n) => Math.min(maxBackoffMs, backoffMs * 2 ** Math.min(n, 30)));
    // One that could not be asked may be back at any time.
    const ofFailures = pause(this.#failures, (n) => pauseMs(n, timeouts));
    return Math.max(0, this.#endedAt + Math.max(ofChanges, ofFailures) - performance.now());
  }
}

function digestOf(hashes: ReadonlyMap<string, string>): string {
  const digest = createHash("sha256");
  for (const [key, hash] of hashes) digest.update(`${key.length} ${key} ${hash}\n`);
  return digest.digest("hex");
}

// Everything a server offers, all pages of it, within bounds.

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
  context: UpstreamContext,
  charge: Charge,
  againMs: number,
): Promise<Catalogue> {
  const { revision, serverInfo, capabilities, instructions } = connection.agreement;
  const found: Record<List["field"], JsonObject[]> = { tools: [], resources: [], resourceTemplates: [], prompts: [] };
  const until = performance.now() + context.timeouts.catalogueMs;
  for (const list of LISTS) {
    if (isJsonObject(capabilities[list.capability]))
      found[list.field] = await readList(connection, context, list, charge, until, againMs);
  }
  return { revision: revision.name, serverInfo, instructions, capabilities, ...found };
}

async function readList(
  connection: UpstreamConnection,
  context: UpstreamContext,
  list: List,
  charge: Charge,
  until: number,
  againMs: number,
): Promise<JsonObject[]> {
  const { server, limits, timeouts } = context;
  const entries = new Map<string, JsonObject>();
  let cursor: string | undefined;
  for (let page = 0; page < limits.maxPages; page++) {
    const params = cursor === undefined ? "{}" : JSON.stringify({ cursor });
    const leftMs = until - performance.now();
    if (leftMs <= 0) throw serverUnavailable(server, `its lists were not read within ${timeouts.catalogueMs} ms`);
    const timeoutMs = Math.min(timeouts.listMs, Math.ceil(leftMs));
    const answer = await again(
      (cancel) => connection.call({ method: list.method, params, timeoutMs, cancel }),
      againMs,
    );
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
