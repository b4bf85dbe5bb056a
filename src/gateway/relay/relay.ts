// Relays a permitted call to an upstream server. What is sent is cut from the intent; the result is forwarded unchanged
// where it may be. The two sides may use revisions of different eras: requests to the client are converted from one form
// into the other here.

import { Fault, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { InputRequest, LogLevel } from "../../mcp/server/index.js";
import {
  type ClientSession,
  type Forwards,
  InputRequired,
  isLogLevel,
  type RawResult,
  type Relayed,
  type RunContext,
} from "../../pipeline/index.js";
import { canonicalize, intentForwarded, type Principal } from "../../policy/index.js";
import type {
  CallHooks,
  ExpectedDefinition,
  QuestionMethod,
  Upstream,
  UpstreamAnswer,
  UpstreamCall,
} from "../../upstream/index.js";
import { capabilitiesForServers } from "../capabilities.js";
import { forwardedResult, inputRequestsIn, upstreamError } from "./answers.js";
import type { Namespace } from "./names.js";
import type { RemoteCalls } from "./remote.js";
import type { ResourceCache } from "./resource-cache.js";
import {
  callIsOver,
  type RoundOutput,
  type SuspendedCalls,
  SuspendedExchange,
  type SuspendedTurn,
} from "./suspended-calls.js";

/** One upstream server of one application. */
export interface RelayUpstream {
  readonly server: string;
  readonly binding: string;
  /** A key registered it, not the operator. */
  readonly isRegistered: boolean;
  /** Where a server authenticates users, or keeps something for each client, each has a connection of its own. */
  upstream(principal: Principal, session: ClientSession | undefined): Upstream;
  readonly namespace: Namespace;
  /** Fields beside the arguments that the operator lets through to it. */
  readonly forwards: Forwards;
  readonly suspended: SuspendedCalls;
  /** Other replicas, where calls may wait as well. */
  readonly remote: RemoteCalls | undefined;
  readonly cache: ResourceCache;
}

/** How often a server may answer one call with requests. */
const MAX_ROUNDS = 16;

interface Destination {
  readonly method: string;
  /** The inside of `params`, without braces. */
  readonly inside: string;
  readonly name: string;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Outgoing extends Destination {
  readonly expects: ExpectedDefinition;
}

/** Where a call goes: nothing is sent to a server that lists another definition than the one that was decided for. */
interface RelayTarget {
  readonly link: RelayUpstream;
  readonly expects: ExpectedDefinition;
}

export type HeadersFor = (args: JsonObject) => Readonly<Record<string, string>> | undefined;

export function relayTool(target: RelayTarget, rawName: string, headersFor: HeadersFor | undefined): Relayed {
  const name = JSON.stringify(rawName);
  return relayed(target, (context) => {
    const { argumentsText } = context.grant.intent;
    const headers = headersFor?.(JSON.parse(argumentsText) as JsonObject);
    return { method: "tools/call", inside: `"arguments":${argumentsText},"name":${name}`, name: rawName, headers };
  });
}

export function relayPrompt(target: RelayTarget, rawName: string): Relayed {
  const name = JSON.stringify(rawName);
  return relayed(target, (context) => {
    const { argumentsText } = context.grant.intent;
    return context.grant.method === "completion/complete"
      ? completion(argumentsText, `{"name":${name},"type":"ref/prompt"}`, rawName)
      : { method: "prompts/get", inside: `"arguments":${argumentsText},"name":${name}`, name: rawName };
  });
}

export function relayResource(target: RelayTarget, rawUri: string): Relayed {
  const uri = JSON.stringify(rawUri);
  return relayed(target, (context) =>
    context.grant.method === "completion/complete"
      ? completion(context.grant.intent.argumentsText, `{"type":"ref/resource","uri":${uri}}`, rawUri)
      : { method: "resources/read", inside: `"uri":${uri}`, name: rawUri },
  );
}

function completion(argumentsText: string, ref: string, name: string): Destination {
  // The intent's arguments are `{"argument":…,"context":…}`; what is asked about stands beside them.
  return { method: "completion/complete", inside: `${argumentsText.slice(1, -1)},"ref":${ref}`, name };
}

function relayed({ link, expects }: RelayTarget, outgoing: (context: RunContext) => Destination): Relayed {
  return {
    server: link.server,
    binding: link.binding,
    forwards: link.forwards,
    relay: (context) => relay(link, { ...outgoing(context), expects }, context),
  };
}

/** The part of our encrypted `requestState` for an upstream call. */
interface RelayState {
  /** A call that waits… */
  readonly suspended?: string;
  /** …at this replica, where there are several… */
  readonly at?: string;
  /** …or the server's own state. */
  readonly state?: JsonValue;
}

async function relay(link: RelayUpstream, outgoing: Outgoing, context: RunContext): Promise<JsonObject | RawResult> {
  const before = (context.state ?? {}) as RelayState;
  const lacks: Lacks = { fault: undefined };
  const { principal } = context.grant;
  const isRead = outgoing.method === "resources/read" && context.grant.intent.forwardedText === "{}";
  const kept = isRead ? link.cache.get(outgoing.name, principal) : undefined;
  if (kept) return forwardedResult(link, outgoing.method, kept);
  const answer = await answered(link, outgoing, context, before, lacks);
  // A server whose request could not be sent may have succeeded without; one that failed is taken to have failed for it.
  if (lacks.fault && (answer.kind === "error" || answer.value.isError === true)) throw lacks.fault;
  if (answer.kind === "error") throw await upstreamError(link, answer, context);
  if (isRead) link.cache.put(outgoing.name, principal, answer);
  return forwardedResult(link, outgoing.method, answer);
}

/** The first request that this client cannot answer. */
interface Lacks {
  fault: Fault | undefined;
}

async function answered(
  link: RelayUpstream,
  outgoing: Outgoing,
  context: RunContext,
  before: RelayState,
  lacks: Lacks,
): Promise<UpstreamAnswer> {
  const asksLater = context.request.revision.era === "modern" && canBeAsked(context.clientCapabilities);
  if (before.suspended !== undefined || asksLater) {
    const answer =
      before.suspended !== undefined
        ? await resumed(link, context, before.suspended, before.at)
        : await firstTurn(link, outgoing, context, before, lacks);
    const asked = inputRequestsIn(answer);
    if (!asked) return answer;
    const shown = await context.permitted(asked.requests, false);
    throw new InputRequired(shown, { state: asked.state } as JsonValue, asked.rest);
  }
  const upstream = upstreamFor(link, context);
  let state = before;
  let responses: JsonObject | undefined;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const hooks = hooksFor(context, lacks, (m, p) => context.relayRequest(m, p));
    const call = callOf(outgoing, context, state, responses, hooks);
    const answer = await (round === 0 ? begun(context, upstream, call) : upstream.request(call));
    const asked = inputRequestsIn(answer);
    if (!asked) return answer;
    // The server speaks 2026-07-28 and ends its exchange to ask; this client is asked while its call stays open.
    responses = await askAll(context, asked.requests);
    state = { state: asked.state };
  }
  throw new Fault("ToolExecution", `server \`${link.server}\` sent requests more than ${MAX_ROUNDS} times in one call`);
}

function upstreamFor(link: RelayUpstream, { grant, request }: RunContext): Upstream {
  return link.upstream(grant.principal, request.conversation.session);
}

/** A revision without sessions does not tell the clients of one principal apart. */
function clientOf({ grant, request }: RunContext): string {
  const { agent, user = "" } = grant.principal;
  return request.conversation.session?.id ?? `${agent}\n${user}`;
}

async function askAll(context: RunContext, requests: Readonly<Record<string, InputRequest>>): Promise<JsonObject> {
  const given = await Promise.all(
    Object.entries(requests).map(async ([key, { method, params }]): Promise<[string, JsonObject]> => {
      return [key, await context.relayRequest(method, params ?? {})];
    }),
  );
  return Object.fromEntries(given);
}

/** The first request of a call. Where it never left the gateway, the call was not started. */
async function begun(context: RunContext, upstream: Upstream, call: UpstreamCall): Promise<UpstreamAnswer> {
  try {
    return await upstream.request(call);
  } catch (error) {
    if (neverLeft(error)) context.neverStarted();
    throw error;
  }
}

/** Not sent, and not rejected by the server either: its own report would not be enough. */
function neverLeft(error: unknown): boolean {
  const { delivered, status } = (error instanceof Fault && error.detail.extra) || {};
  return delivered === false && status === undefined;
}

async function firstTurn(
  link: RelayUpstream,
  outgoing: Outgoing,
  context: RunContext,
  before: RelayState,
  lacks: Lacks,
): Promise<UpstreamAnswer> {
  const { argumentsText } = context.grant.intent;
  const exchange = new SuspendedExchange(
    2 * argumentsText.length,
    context.pipeline.retained.of(context.grant.principal),
  );
  exchange.attach(context);
  const ask = (method: QuestionMethod, params: JsonObject): Promise<JsonObject> =>
    context.sendThrough(
      method,
      params,
      false,
      (shown) => {
        context.assertCapable(method);
        return exchange.ask(method, shown);
      },
      exchange.cancel,
    );
  const hooks = hooksFor(context, lacks, ask, exchange);
  const responses = context.round.responses;
  const call = callOf(outgoing, context, before, responses, hooks);
  const upstream = upstreamFor(link, context);
  exchange.begin(() => begun(context, upstream, { ...call, cancel: exchange.cancel }));
  return turned(link, exchange, await exchange.next(link.suspended.newId()));
}

async function resumed(
  link: RelayUpstream,
  context: RunContext,
  id: string,
  at: string | undefined,
): Promise<UpstreamAnswer> {
  const { remote } = link;
  if (at !== undefined && at !== remote?.here) {
    if (!remote) throw callIsOver();
    const by = { output: context, agent: context.agent };
    const turn = await remote.resume(at, id, context.round.responses, by);
    if ("answer" in turn) return turn.answer;
    throw new InputRequired(turn.requests, { suspended: turn.id, at }, {});
  }
  const exchange = link.suspended.take(id);
  exchange.attach(context);
  exchange.take(context.round.responses);
  return turned(link, exchange, await exchange.next(id));
}

function turned(link: RelayUpstream, exchange: SuspendedExchange, turn: SuspendedTurn): UpstreamAnswer {
  if ("answer" in turn) return turn.answer;
  link.suspended.put(turn.id, exchange);
  const at = link.remote?.here;
  throw new InputRequired(turn.requests, { suspended: turn.id, ...(at === undefined ? {} : { at }) }, {});
}

function canBeAsked(capabilities: JsonObject): boolean {
  return (
    capabilities.elicitation !== undefined || capabilities.sampling !== undefined || capabilities.roots !== undefined
  );
}

function hooksFor(
  context: RunContext,
  lacks: Lacks,
  ask: (method: QuestionMethod, params: JsonObject) => Promise<JsonObject>,
  exchange?: SuspendedExchange,
): CallHooks {
  // Of several rounds, the current one sends progress and log messages.
  const current = (): RoundOutput | undefined => (exchange ? exchange.output : context);
  return {
    ...(context.wantsProgress ? { progress: (params: JsonObject) => current()?.relayProgress(params) } : {}),
    log: (params) => current()?.log(levelOf(params.level), params.data ?? null, loggerOf(params)),
    ask: async (method, params) => {
      try {
        return await ask(method, params);
      } catch (error) {
        if (error instanceof Fault && error.type === "MissingCapability") lacks.fault ??= error;
        throw error;
      }
    },
  };
}

function levelOf(level: JsonValue | undefined): LogLevel {
  return isLogLevel(level) ? level : "info";
}

function loggerOf(params: JsonObject): string | undefined {
  return typeof params.logger === "string" ? params.logger : undefined;
}

function callOf(
  outgoing: Outgoing,
  context: RunContext,
  state: RelayState,
  responses: JsonObject | undefined,
  hooks: CallHooks,
): UpstreamCall {
  const { grant, request } = context;
  let { inside } = outgoing;
  let meta: string | undefined;
  if (grant.intent.forwardedText !== "{}") {
    const forwarded = intentForwarded(grant.intent);
    for (const [key, value] of Object.entries(forwarded)) {
      if (key === "_meta") meta = canonicalize(value);
      else if (key !== "inputResponses") inside += `,${JSON.stringify(key)}:${canonicalize(value)}`;
    }
  }
  if (responses && Object.keys(responses).length > 0) inside += `,"inputResponses":${canonicalize(responses)}`;
  if (state.state !== undefined) inside += `,"requestState":${canonicalize(state.state)}`;
  const { logLevel } = request.conversation;
  return {
    method: outgoing.method,
    params: `{${inside}}`,
    ...(meta === undefined ? {} : { meta }),
    trace: { traceparent: request.span.serverTraceparent },
    name: outgoing.name,
    ...(outgoing.headers ? { headers: outgoing.headers } : {}),
    capabilities: capabilitiesText(context.clientCapabilities),
    ...(logLevel === undefined ? {} : { logLevel }),
    client: clientOf(context),
    // The gateway's own clock runs; when it stops the call, the server gets a cancellation.
    timeoutMs: 0,
    cancel: request.cancel,
    hooks,
    expects: outgoing.expects,
  };
}

/** A session keeps its capabilities, so the text is remembered. */
const capabilityTexts = new WeakMap<JsonObject, string>();

function capabilitiesText(capabilities: JsonObject): string {
  let text = capabilityTexts.get(capabilities);
  if (text === undefined) {
    text = JSON.stringify(capabilitiesForServers(capabilities));
    capabilityTexts.set(capabilities, text);
  }
  return text;
}
