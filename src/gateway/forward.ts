// What of the caller's parameters travels on, and what answers of earlier rounds come with it.

import { NOTHING_FORWARDED } from "../gate/index.js";
import { DELEGATION_META } from "../identity/index.js";
import { Fault, isJsonObject, type JsonObject, META } from "../protocol/index.js";
import type { Round } from "./execute.js";
import { bindingOf } from "./seal.js";
import type { Gateway, Proposal, Route } from "./types.js";

const OWN_PARAMS = new Set([
  "name",
  "arguments",
  "uri",
  "ref",
  "argument",
  "context",
  "_meta",
  "inputResponses",
  "requestState",
]);
const OWN_META = new Set<string>([
  META.protocolVersion,
  META.clientCapabilities,
  META.clientInfo,
  META.logLevel,
  "progressToken",
  "traceparent",
  "tracestate",
  "baggage",
  DELEGATION_META,
]);

/** Unknown fields survive because they are in the intent; the protocol's own are spoken anew to the next hop. */
export function forwardedOf(params: JsonObject, round: Round): JsonObject {
  let out: JsonObject = NOTHING_FORWARDED;
  const put = (key: string, value: JsonObject[string]): void => {
    if (out === NOTHING_FORWARDED) out = {};
    out[key] = value;
  };
  for (const key in params) if (!OWN_PARAMS.has(key)) put(key, params[key] as JsonObject[string]);
  const meta = params._meta;
  if (isJsonObject(meta)) {
    const foreign = Object.entries(meta).filter(([key]) => !OWN_META.has(key));
    if (foreign.length > 0) put("_meta", Object.fromEntries(foreign));
  }
  if (Object.keys(round.responses).length > 0) put("inputResponses", round.responses);
  return out;
}

const MAX_RESPONSES = 64;

/** At once, unless the caller brings something sealed back. */
export function openRound(gateway: Gateway, proposal: Proposal, route: Route): Round | Promise<Round> {
  const { params, principal, method } = proposal;
  if (params.requestState === undefined) return { responses: responsesOf(params), state: undefined };
  const given = responsesOf(params);
  return gateway.seal
    .open(bindingOf(principal, method, route.name, route.arguments), params.requestState)
    .then(({ responses, state }) => ({ responses: { ...responses, ...given }, state }));
}

function responsesOf(params: JsonObject): Record<string, JsonObject> {
  const given = params.inputResponses;
  if (given === undefined) return {};
  if (!isJsonObject(given) || Object.keys(given).length > MAX_RESPONSES) {
    throw new Fault("InvalidParams", `\`inputResponses\` must be an object of at most ${MAX_RESPONSES} answers`, {
      field: "inputResponses",
    });
  }
  for (const [key, value] of Object.entries(given)) {
    if (!isJsonObject(value)) {
      throw new Fault("InvalidParams", `\`inputResponses.${key}\` must be an object`, {
        field: `inputResponses.${key}`,
      });
    }
  }
  return given as Record<string, JsonObject>;
}
