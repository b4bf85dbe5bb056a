// How a request is dressed for the revision that was agreed on: what stands in `_meta` beside the caller's own entries.

import {
  Fault,
  isJsonObject,
  type JsonObject,
  META,
  MODERN,
  type Revision,
  REVISIONS,
  revisionNamed,
} from "../index.js";
import type { SessionCall } from "./types.js";

/** The first published revision. Nobody speaks it by choice; servers of its day are still around. */
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

export function modernMeta(clientInfo: ClientInfo): MetaOf {
  const own =
    `"${META.protocolVersion}":"${MODERN.name}","${META.clientInfo}":${JSON.stringify(clientInfo)},` +
    `"${META.clientCapabilities}":`;
  return (call, id) => {
    const level = call.logLevel === undefined ? "" : `,"${META.logLevel}":${JSON.stringify(call.logLevel)}`;
    const rest = legacyMeta(call, id);
    return `${own}${call.capabilities ?? "{}"}${level}${rest === "" ? "" : `,${rest}`}`;
  };
}

export const legacyMeta: MetaOf = (call, id) => {
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
