// Finding out what a server speaks. The newest revision is tried first by asking `server/discover`; a server that
// does not know it, in whatever words it says so or by saying nothing, gets the handshake of the older revisions.

import { ERRORS, isJsonObject, type JsonObject, META, SUPPORTED_VERSIONS } from "../index.js";
import type { Implementation } from "../server/index.js";
import { type WireDialect, handshakeDialect, type WireSession } from "./dialect.js";
import { McpError, ProtocolError } from "./errors.js";
import type { Ask, ClientSession } from "./link.js";
import type { Timeouts } from "./options.js";
import { bestOf, eraOf, isRevision, MODERN_NAME, NEWEST_HANDSHAKE, type RevisionName } from "./revision.js";

/** What a server says about itself. `serverInfo` is its own word and decides nothing here. */
export interface Discovery {
  supportedVersions: string[];
  capabilities: JsonObject;
  serverInfo?: JsonObject;
  instructions?: string;
  /** The whole answer, with fields nobody here knows. */
  result: JsonObject;
}

export interface ClientAgreement {
  revision: RevisionName;
  discovery: Discovery;
  dialect: WireDialect;
  session?: WireSession;
}

export interface ClientTerms {
  revision: RevisionName | undefined;
  clientInfo: Implementation;
  capabilities: (revision: RevisionName) => JsonObject;
  modern: WireDialect;
  timeouts: Timeouts;
  /** The caller's own headers, such as its credential. */
  headers: () => Promise<Record<string, string>>;
}

type Outcome =
  | { kind: "discovered"; discovery: Discovery }
  | { kind: "versions"; supported: readonly unknown[]; error: McpError }
  | { kind: "handshake" }
  | { kind: "fatal"; error: Error };

const SILENT = Symbol("silent");
const SESSION_ID = /^[\x21-\x7e]{1,4096}$/;

export async function negotiateClient(link: ClientSession, terms: ClientTerms): Promise<ClientAgreement> {
  if (terms.revision === MODERN_NAME) return settle(link, terms, await probe(link, terms));
  if (terms.revision !== undefined) return initialize(link, terms, terms.revision);
  const enough = new AbortController();
  const outcome = probe(link, terms, enough.signal);
  try {
    const first = await Promise.race([outcome, silence(terms.timeouts.discoveryMs, enough.signal)]);
    if (first !== SILENT) return await settle(link, terms, first);
    // Silence may be a handshake server that ignores what it does not know, or one that is slow to start:
    // the handshake goes out as well, and a late answer to the probe still counts if the handshake fails.
    return await initialize(link, terms, NEWEST_HANDSHAKE).catch(async (error: unknown) => {
      const late = await outcome;
      if (late.kind === "discovered" || late.kind === "versions") return settle(link, terms, late);
      throw error;
    });
  } finally {
    enough.abort();
  }
}

async function settle(link: ClientSession, terms: ClientTerms, outcome: Outcome): Promise<ClientAgreement> {
  switch (outcome.kind) {
    case "fatal":
      throw outcome.error;
    case "handshake":
      if (terms.revision === MODERN_NAME)
        throw unsupported(terms, "an older revision than 2026-07-28, with a handshake");
      return initialize(link, terms, NEWEST_HANDSHAKE);
    case "discovered":
      return choose(link, terms, outcome.discovery.supportedVersions, async () => outcome.discovery);
    case "versions":
      // The server named versions it does speak, ours among them or not: ask once more, with one of those.
      return choose(link, terms, outcome.supported, async () => {
        const again = await probe(link, terms);
        if (again.kind === "discovered") return again.discovery;
        throw again.kind === "fatal" ? again.error : outcome.error;
      });
  }
}

async function choose(
  link: ClientSession,
  terms: ClientTerms,
  offered: readonly unknown[],
  discover: () => Promise<Discovery>,
): Promise<ClientAgreement> {
  const best = terms.revision === MODERN_NAME && !offered.includes(MODERN_NAME) ? undefined : bestOf(offered);
  if (best === undefined) throw unsupported(terms, offered.map(String).join(", ") || "no revision at all");
  if (eraOf(best) === "legacy") return initialize(link, terms, best);
  return { revision: MODERN_NAME, discovery: await discover(), dialect: terms.modern };
}

/** Asks `server/discover`; never rejects. */
async function probe(link: ClientSession, terms: ClientTerms, signal?: AbortSignal): Promise<Outcome> {
  try {
    const { params, headers } = terms.modern.frame("server/discover", {});
    const { result } = await link.request({
      method: "server/discover",
      params,
      headers: { ...(await terms.headers()), ...headers },
      timeoutMs: terms.timeouts.connectMs,
      totalMs: terms.timeouts.connectMs,
      ...(signal ? { signal } : {}),
      cancel: () => {},
      orphanErrors: true,
    });
    const discovery = readDiscovery(result);
    return discovery ? { kind: "discovered", discovery } : { kind: "handshake" };
  } catch (error) {
    return outcomeOf(error as Error);
  }
}

/** Which errors mean a server of this era, which mean an older one, and which mean that talking on is pointless. */
function outcomeOf(error: Error): Outcome {
  if (!(error instanceof McpError)) return { kind: "fatal", error };
  if (error.wireCode === ERRORS.UnsupportedVersion.modern) {
    const supported = isJsonObject(error.data) ? error.data.supported : undefined;
    return { kind: "versions", supported: Array.isArray(supported) ? supported : [], error };
  }
  const modernOnly =
    error.wireCode === ERRORS.HeaderMismatch.modern || error.wireCode === ERRORS.MissingCapability.modern;
  const hopeless = error.family === "policy" || error.type === "IoError" || error.type === "TooLarge";
  return modernOnly || hopeless ? { kind: "fatal", error } : { kind: "handshake" };
}

export function readDiscovery(result: JsonObject): Discovery | undefined {
  if (!Array.isArray(result.supportedVersions)) return undefined;
  const meta = isJsonObject(result._meta) ? result._meta[META.serverInfo] : undefined;
  const info = isJsonObject(meta) ? meta : result.serverInfo;
  return {
    supportedVersions: result.supportedVersions.filter((version) => typeof version === "string"),
    capabilities: isJsonObject(result.capabilities) ? result.capabilities : {},
    ...(isJsonObject(info) ? { serverInfo: info } : {}),
    ...(typeof result.instructions === "string" ? { instructions: result.instructions } : {}),
    result,
  };
}

/** The handshake: `initialize`, then `notifications/initialized`. */
export async function initialize(
  link: ClientSession,
  terms: ClientTerms,
  revision: RevisionName,
): Promise<ClientAgreement> {
  const own = await terms.headers();
  const ask: Ask = {
    method: "initialize",
    params: {
      protocolVersion: revision,
      capabilities: terms.capabilities(revision),
      clientInfo: terms.clientInfo as JsonObject,
    },
    headers: own,
    timeoutMs: terms.timeouts.connectMs,
    totalMs: terms.timeouts.connectMs,
    // A handshake that is given up is not cancelled: the revisions forbid it.
    cancel: () => {},
    orphanErrors: true,
  };
  const { result, sent } = await link.request(ask);
  const spoken = result.protocolVersion;
  if (
    !isRevision(spoken) ||
    eraOf(spoken) !== "legacy" ||
    (terms.revision !== undefined && spoken !== terms.revision)
  ) {
    throw unsupported(terms, String(spoken));
  }
  const id = sent?.headers?.["mcp-session-id"];
  if (id !== undefined && !(typeof id === "string" && SESSION_ID.test(id))) {
    throw new ProtocolError("InvalidRequest", "the server gave a session id that is no visible ASCII text");
  }
  const session: WireSession = { revision: spoken, ...(id === undefined ? {} : { id }) };
  const dialect = handshakeDialect(session);
  await link.notify({ jsonrpc: "2.0", method: "notifications/initialized" }, { ...own, ...dialect.plainHeaders() });
  const discovery = readDiscovery({ ...result, supportedVersions: [spoken] }) as Discovery;
  return { revision: spoken, discovery: { ...discovery, result }, dialect, session };
}

function unsupported(terms: ClientTerms, offered: string): ProtocolError {
  const wanted = terms.revision ?? SUPPORTED_VERSIONS.join(", ");
  return new ProtocolError("UnsupportedVersion", `this client speaks ${wanted}; the server offers ${offered}`);
}

function silence(ms: number, signal: AbortSignal): Promise<typeof SILENT> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(SILENT), ms);
    signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  });
}
