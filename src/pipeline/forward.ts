// What of the caller's parameters travels beside the arguments, and what answers of earlier rounds come with it. What
// does not travel is left out before the intent is made, so that rules, approvers and the server see the same.

import { NOTHING_FORWARDED } from "../policy/index.js";
import { DELEGATION_META } from "../auth/index.js";
import { Fault, isJsonObject, type JsonObject, META } from "../mcp/index.js";
import type { InputRound } from "./execute.js";
import { bindingOf } from "./encrypted-state.js";
import type { Gateway, CallRequest, Route } from "./types.js";

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

/** True for keys that only this gateway writes, and for those that a person or a careless client takes for them. */
export function isOwnMeta(key: string): boolean {
  return key.trim().toLowerCase().startsWith("portcullis");
}

/** Which further fields of `params` and which foreign keys of `_meta` (as `_meta/KEY`) a server receives. */
export type Forwards = (path: string) => boolean;

export interface Forwarded {
  readonly fields: JsonObject;
  /** Names of what was left out, as `Forwards` writes them. */
  readonly dropped: readonly string[];
}

const NOTHING_DROPPED: readonly string[] = [];

/**
 * Fields of the protocol itself are written anew for the next hop and are never among these. `forwards` is left out for
 * in-process servers: nothing leaves the process there, so everything foreign is part of the intent.
 */
export function forwardedOf(params: JsonObject, round: InputRound, forwards?: Forwards): Forwarded {
  let out: JsonObject = NOTHING_FORWARDED;
  let dropped: string[] | undefined;
  const put = (key: string, value: JsonObject[string]): void => {
    if (out === NOTHING_FORWARDED) out = {};
    out[key] = value;
  };
  const travels = (path: string): boolean => {
    if (forwards === undefined || forwards(path)) return true;
    dropped ??= [];
    dropped.push(path);
    return false;
  };
  for (const key in params) if (!OWN_PARAMS.has(key) && travels(key)) put(key, params[key] as JsonObject[string]);
  const meta = params._meta;
  if (isJsonObject(meta)) {
    const foreign = Object.entries(meta).filter(
      ([key]) => !OWN_META.has(key) && !isOwnMeta(key) && travels(`_meta/${key}`),
    );
    if (foreign.length > 0) put("_meta", Object.fromEntries(foreign));
  }
  if (Object.keys(round.responses).length > 0) put("inputResponses", round.responses);
  return { fields: out, dropped: dropped ?? NOTHING_DROPPED };
}

const MAX_RESPONSES = 64;

/** The answers and the state that the caller brings back; at once where there is no state. */
export function openInputRound(
  gateway: Gateway,
  proposal: CallRequest,
  route: Route,
): InputRound | Promise<InputRound> {
  const { params, principal, method } = proposal;
  if (params.requestState === undefined) return { responses: responsesOf(params), state: undefined };
  const given = responsesOf(params);
  const bind = bindingOf(principal, method, route.name, route.arguments);
  return gateway.seal
    .open(bind, params.requestState)
    .then(({ responses, state, use }) => ({ responses: { ...responses, ...given }, state, use }));
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
