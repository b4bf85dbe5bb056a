// Finding out what a server speaks: the newest revision is tried by asking `server/discover`; a server that does not
// know it, in whatever words it says so or by saying nothing, gets the handshake of the older revisions.

import {
  ERRORS,
  type Era,
  Fault,
  isJsonObject,
  type JsonObject,
  META,
  MODERN,
  REVISIONS,
  type Revision,
  revisionNamed,
} from "../index.js";
import { ServerRefusal, serverUnavailable } from "./faults.js";
import type { Cancellation, SessionAnswer, SessionCall } from "./types.js";

export interface SessionTerms {
  readonly server: string;
  readonly clientInfo: ClientInfo;
  /** What the handshake of this revision declares. */
  readonly capabilities: (revision: Revision) => JsonObject;
  /** What the probe for the newest revision declares, and the level of log messages that it asks for. */
  readonly probe?: Pick<SessionCall, "capabilities" | "logLevel">;
  /** Newest first. */
  readonly revisions: readonly Revision[];
  /** Only this one will do. */
  readonly revision?: Revision | undefined;
  /** What the server spoke last time: tried first. */
  readonly era?: Era | undefined;
  readonly startMs: number;
  readonly discoverMs: number;
}

/** A connection before anything was agreed on. */
interface NegotiationLink {
  ask(call: SessionCall, meta: MetaOf, revision: Revision | undefined): Promise<SessionAnswer>;
  notify(method: string, agreed: SessionAgreement): Promise<void>;
}

type Outcome =
  | { kind: "agreed"; agreement: SessionAgreement }
  | { kind: "versions"; supported: readonly unknown[] }
  | { kind: "handshake" }
  | { kind: "fatal"; fault: Error };

export function metaFor(revision: Revision, clientInfo: ClientInfo): MetaOf {
  return revision.era === "modern" ? modernMeta(clientInfo) : legacyMeta;
}

export async function negotiateSession(talk: NegotiationLink, terms: SessionTerms): Promise<SessionAgreement> {
  const { revision, era } = terms;
  if (revision?.era === "legacy" || (revision === undefined && era === "legacy")) {
    return initialize(talk, terms, revision ?? newestLegacy(terms));
  }
  const probe = discover(talk, terms);
  if (revision !== undefined) return settle(talk, terms, await probe.outcome);
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), terms.discoverMs);
  });
  try {
    const first = await Promise.race([probe.outcome, silence]);
    if (first !== undefined) return await settle(talk, terms, first);
    // Silence may be a server that ignores what it does not know, or one that is slow to start: the handshake goes
    // out as well, and a late answer to the probe still counts when the handshake fails.
    return await initialize(talk, terms, newestLegacy(terms)).catch(async (error: unknown) => {
      const late = await probe.outcome;
      if (late.kind === "agreed" || late.kind === "versions") return settle(talk, terms, late);
      throw error;
    });
  } finally {
    clearTimeout(timer);
    probe.stop();
  }
}

function newestLegacy({ revisions }: SessionTerms): Revision {
  return revisions.find((revision) => revision.era === "legacy") as Revision;
}

async function settle(talk: NegotiationLink, terms: SessionTerms, outcome: Outcome): Promise<SessionAgreement> {
  switch (outcome.kind) {
    case "agreed":
      return outcome.agreement;
    case "fatal":
      throw outcome.fault;
    case "handshake":
      if (terms.revision !== undefined) throw unsupported(terms, "an older revision, with a handshake");
      return initialize(talk, terms, newestLegacy(terms));
    case "versions": {
      const offered = outcome.supported.map(String).join(", ") || "nothing";
      const best = terms.revisions.find((revision) => outcome.supported.includes(revision.name));
      if (best === undefined || (terms.revision ?? best) !== best) throw unsupported(terms, offered);
      if (best.era === "legacy") return initialize(talk, terms, best);
      // The server refused the revision and names it among those it speaks: it is asked once more.
      const again = await discover(talk, terms).outcome;
      if (again.kind === "agreed") return again.agreement;
      throw again.kind === "fatal" ? again.fault : unsupported(terms, offered);
    }
  }
}

/** Never rejects. */
function discover(talk: NegotiationLink, terms: SessionTerms): { outcome: Promise<Outcome>; stop: () => void } {
  const { cancel, stop } = cancellation();
  const call: SessionCall = {
    method: "server/discover",
    params: "{}",
    ...terms.probe,
    timeoutMs: terms.startMs,
    cancel,
  };
  const outcome = talk.ask(call, modernMeta(terms.clientInfo), MODERN).then(readDiscovery, fromFault);
  return { outcome, stop: () => stop(new Fault("Cancelled", "the server speaks an older revision")) };
}

function readDiscovery(answer: SessionAnswer): Outcome {
  if (answer.kind === "error") return fromError(answer.error.code, answer.error.data);
  const { value } = answer;
  if (!Array.isArray(value.supportedVersions)) return { kind: "handshake" };
  if (!value.supportedVersions.includes(MODERN.name)) return { kind: "versions", supported: value.supportedVersions };
  const meta = isJsonObject(value._meta) ? value._meta[META.serverInfo] : undefined;
  return { kind: "agreed", agreement: agreementOf(MODERN, value, meta) };
}

function agreementOf(revision: Revision, value: JsonObject, info: unknown): SessionAgreement {
  const serverInfo = isJsonObject(info) ? info : value.serverInfo;
  return {
    revision,
    serverInfo: isJsonObject(serverInfo) ? serverInfo : undefined,
    capabilities: isJsonObject(value.capabilities) ? value.capabilities : {},
    instructions: typeof value.instructions === "string" ? value.instructions : undefined,
    result: value,
  };
}

function fromError(code: number, data: unknown): Outcome {
  if (code === ERRORS.UnsupportedVersion.modern) {
    const supported = isJsonObject(data) && Array.isArray(data.supported) ? data.supported : [];
    return { kind: "versions", supported };
  }
  const isModern = code === ERRORS.HeaderMismatch.modern || code === ERRORS.MissingCapability.modern;
  return isModern
    ? { kind: "fatal", fault: new Fault("ToolExecution", `the server refuses \`server/discover\` with code ${code}`) }
    : { kind: "handshake" };
}

/**
 * A malformed answer, or a status that says "not like this", is how older servers answer; 401 and 403 say that another
 * attempt is pointless.
 */
function fromFault(error: Error): Outcome {
  const status = error instanceof Fault ? error.detail.extra?.status : undefined;
  const isStatus = typeof status === "number" && status >= 400 && status < 500 && status !== 401 && status !== 403;
  const older = isStatus || (status === undefined && error instanceof Fault && error.type === "ToolExecution");
  return older ? { kind: "handshake" } : { kind: "fatal", fault: error };
}

async function initialize(talk: NegotiationLink, terms: SessionTerms, revision: Revision): Promise<SessionAgreement> {
  const params = {
    protocolVersion: revision.name,
    capabilities: terms.capabilities(revision),
    clientInfo: { ...terms.clientInfo },
  };
  const call = { method: "initialize", params: JSON.stringify(params), timeoutMs: terms.startMs };
  const answer = await talk.ask(call, noMeta, undefined);
  if (answer.kind === "error") {
    const { code, message } = answer.error;
    const cause = new ServerRefusal(answer.error);
    throw serverUnavailable(terms.server, `it refuses the handshake: ${message} (${code})`, { cause });
  }
  const agreed = terms.revisions.find(({ name }) => name === answer.value.protocolVersion);
  const isWanted = terms.revision === undefined || agreed === terms.revision;
  if (agreed?.era !== "legacy" || !isWanted) throw unsupported(terms, String(answer.value.protocolVersion));
  const agreement = agreementOf(agreed, answer.value, undefined);
  await talk.notify("notifications/initialized", agreement);
  return agreement;
}

function unsupported(terms: SessionTerms, offered: string): Fault {
  const wanted = terms.revision?.name ?? terms.revisions.map((revision) => revision.name).join(", ");
  return new Fault("UnsupportedVersion", `server \`${terms.server}\` speaks ${offered}; we speak ${wanted}`, {
    extra: { server: terms.server, delivered: false },
  });
}

export function cancellation(): { cancel: Cancellation; stop: (fault: Fault) => void } {
  let stopped: Fault | undefined;
  let heard: ((fault: Fault) => void) | undefined;
  return {
    cancel: {
      get fault() {
        return stopped;
      },
      onAbort(listener) {
        heard = listener;
        if (stopped) listener(stopped);
      },
    },
    stop(fault) {
      if (stopped) return;
      stopped = fault;
      heard?.(fault);
    },
  };
}

/** The first published revision. Old servers that speak it are still in use. */
const FIRST: Revision = { ...(revisionNamed("2025-03-26") as Revision), name: "2024-11-05" };

/** Newest first. */
export const SPOKEN: readonly Revision[] = [...REVISIONS, FIRST];

export function spoken(name: unknown): Revision | undefined {
  return SPOKEN.find((revision) => revision.name === name);
}

export interface SessionAgreement {
  readonly revision: Revision;
  readonly serverInfo: JsonObject | undefined;
  readonly capabilities: JsonObject;
  readonly instructions: string | undefined;
  /** The whole answer that the agreement was made with. */
  readonly result: JsonObject;
}

export interface ClientInfo {
  readonly name: string;
  readonly version: string;
  readonly [extra: string]: unknown;
}

/** The inside of `_meta`, without its braces; empty when there is nothing to say. */
export type MetaOf = (call: SessionCall, id: number) => string;

function modernMeta(clientInfo: ClientInfo): MetaOf {
  const own =
    `"${META.protocolVersion}":"${MODERN.name}","${META.clientInfo}":${JSON.stringify(clientInfo)},` +
    `"${META.clientCapabilities}":`;
  return (call, id) => {
    const level = call.logLevel === undefined ? "" : `,"${META.logLevel}":${JSON.stringify(call.logLevel)}`;
    const rest = legacyMeta(call, id);
    return `${own}${call.capabilities ?? "{}"}${level}${rest === "" ? "" : `,${rest}`}`;
  };
}

const legacyMeta: MetaOf = (call, id) => {
  let inside = call.hooks?.progress === undefined ? "" : `"progressToken":${id}`;
  if (call.trace !== undefined) inside = joined(inside, traceInside(call.trace));
  if (call.meta !== undefined) inside = joined(inside, metaInside(call.meta));
  return inside;
};

function joined(left: string, right: string): string {
  return left === "" || right === "" ? left + right : `${left},${right}`;
}

/** Before the handshake there is nothing to say. */
export const noMeta: MetaOf = () => "";

const PLAIN_TRACE = /^[0-9a-f-]+$/;

function traceInside(trace: NonNullable<SessionCall["trace"]>): string {
  const { traceparent, tracestate, baggage } = trace;
  const isPlain = tracestate === undefined && baggage === undefined && PLAIN_TRACE.test(traceparent ?? "");
  return isPlain ? `"traceparent":"${traceparent}"` : JSON.stringify({ traceparent, tracestate, baggage }).slice(1, -1);
}

/** Entries of `_meta` that the protocol itself has. */
export const PROTOCOL_META: ReadonlySet<string> = new Set([
  META.protocolVersion,
  META.clientCapabilities,
  META.clientInfo,
  META.logLevel,
  "progressToken",
  "traceparent",
  "tracestate",
  "baggage",
]);

/** The same key twice would be read one way by one server and another way by the next. */
function metaInside(text: string): string {
  const value: unknown = JSON.parse(text);
  if (!isJsonObject(value as JsonObject))
    throw new Fault("InvalidParams", "`_meta` must be an object", { field: "_meta" });
  const own = Object.keys(value as JsonObject).find((key) => PROTOCOL_META.has(key));
  if (own !== undefined) {
    throw new Fault("InvalidParams", `\`_meta.${own}\` is the gateway's own to say`, { field: `_meta.${own}` });
  }
  return text.trim().slice(1, -1);
}
