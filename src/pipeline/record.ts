// The pipeline's two records. The decision is durable before anything runs; the outcome rides the next flush, or is waited for where the operator chose so.

import { randomBytes } from "node:crypto";
import { canonicalize, contentId, type Decision, type Intent, type Rule } from "../policy/index.js";
import type { Outcome } from "../ledger/index.js";
import { Fault, isJsonObject } from "../mcp/index.js";
import type { Answer } from "./call.js";
import type { InputRound } from "./execute.js";
import { type Gateway, type CallRequest, RawResult, type Route } from "./types.js";

/** Call ids: unique across starts by a random prefix, cheap by a counter. */
const prefix = randomBytes(9).toString("base64url");
let counter = 0;

export function newCallId(): string {
  return `${prefix}.${(counter++).toString(36)}`;
}

/** A proposal that found its target, and the one id of the call it may become. */
export interface ResolvedCall {
  readonly callId: string;
  readonly route: Route;
  /** `asked`: the challenge that this round answers, where the client was shown where to approve it. */
  readonly round: InputRound & { readonly asked: string | undefined };
  readonly intent: Intent;
}

/** Discovery is the handshake of 2026-07-28: like `initialize`, it says who is here and decides nothing. */
function isGreeting(route: Route): boolean {
  return route.builtin && route.name === "server/discover";
}

/** Lists of rules that come again are the same object, and so are their ids. */
const idsOf = new WeakMap<readonly Rule[], readonly string[]>();

function ruleIds(rules: readonly Rule[]): readonly string[] {
  let ids = idsOf.get(rules);
  if (ids === undefined) {
    ids = rules.map((rule) => rule.id);
    idsOf.set(rules, ids);
  }
  return ids;
}

/** Undefined when nothing has to be waited for. */
export function recordDecision(
  gateway: Gateway,
  proposal: CallRequest,
  prepared: ResolvedCall,
  decision: Decision,
): Promise<unknown> | undefined {
  const { ledger } = gateway;
  const { route, intent } = prepared;
  if (!ledger || isGreeting(route)) return undefined;
  const { app, agent } = proposal.principal;
  const actor = `${app}/${agent}`;
  const rules = ruleIds(decision.rules);
  const entry = {
    kind: "decision" as const,
    call: prepared.callId,
    trace: proposal.span.traceId,
    intent: intent.id,
    app,
    agent,
    actor,
    method: proposal.method,
    tool: route.name,
    binding: route.binding,
    args_cid: intent.argumentsId,
    effect: decision.effect,
    rules,
    policy: decision.policyHash,
    reason: decision.reason,
    mode: decision.observed ? ("observe" as const) : ("enforce" as const),
    args: gateway.keepArguments ? intent.argumentsText : undefined,
    forwarded: gateway.keepArguments && intent.forwardedText !== "{}" ? intent.forwardedText : undefined,
    detail: detailOf(proposal, prepared, decision),
  };
  if (decision.challenge && decision.challengeIsNew) recordChallenge(gateway, proposal, prepared, decision, "opened");
  if (decision.redeemed) recordChallenge(gateway, proposal, prepared, decision, "redeemed");
  // Only what an operator (or we ourselves) declared harmless may run before its decision is on the disk. What counts once
  // is on the disk too: a store that was restored may have forgotten it.
  const countsOnce = decision.redeemed !== undefined || prepared.round.use !== undefined;
  if (decision.permit && !countsOnce && (route.builtin || (route.type === "Tool" && route.readOnly))) {
    ledger.appendSoon(entry);
    return undefined;
  }
  return ledger.append(entry);
}

function detailOf(
  { principal }: CallRequest,
  { route, round }: ResolvedCall,
  { permit }: Decision,
): Readonly<Record<string, unknown>> | undefined {
  const detail = route.serverRequest
    ? { server: route.server, during: route.serverRequest.tool }
    : principal.delegation?.record;
  return round.use === undefined || !permit ? detail : { ...detail, request_state: round.use.nonce };
}

/** In the same flush as the decision that follows it, or with the next one. */
export function recordChallenge(
  { ledger }: Gateway,
  { principal, span }: CallRequest,
  { callId, route, intent }: ResolvedCall,
  decision: Decision,
  event: "opened" | "redeemed" | "restored",
): void {
  const challenge = event === "opened" ? decision.challenge : decision.redeemed;
  if (!ledger || !challenge) return;
  ledger.appendSoon({
    kind: "challenge",
    challenge: challenge.id,
    event,
    call: callId,
    trace: span.traceId,
    actor: `${principal.app}/${principal.agent}`,
    tool: route.name,
    args_cid: intent.argumentsId,
    rules: ruleIds(event === "opened" ? decision.rules : challenge.rules),
    approvers: challenge.approvers,
    policy: decision.policyHash,
  });
}

/** While the ledger cannot be written every call fails: one line a second says so, and for how many. */
const TELL_EVERY_MS = 1_000;
let toldAt = Number.NEGATIVE_INFINITY;
let untold = 0;

/** The decision could not be written: nothing runs. Callers need not know where the ledger is; the log says it. */
export function recordFailure(
  gateway: Gateway,
  proposal: CallRequest,
  decision: Decision,
  error: unknown,
  started: number,
): Fault {
  const { span, principal } = proposal;
  untold++;
  if (performance.now() - toldAt > TELL_EVERY_MS) {
    const problem = error instanceof Error ? error.message : String(error);
    const { app, agent } = principal;
    const log = gateway.telemetry.log;
    log.error(
      "calls do not run, because they cannot be recorded",
      { calls: untold, app, agent, problem },
      span.traceId,
    );
    toldAt = performance.now();
    untold = 0;
  }
  span.end({
    effect: "deny",
    outcome: "refused",
    errorType: "AuditFailure",
    latencyMs: performance.now() - started,
    bytes: 0,
    policyHash: decision.policyHash,
    rule: "ledger",
  });
  return new Fault("AuditFailure", "the call did not run: its record could not be written", {
    cause: error,
    suggestions: [
      "Make room on, or repair, the disk that holds the ledger; calls go on by themselves then",
      "The gateway's log says what is wrong with it",
    ],
  });
}

export function recordOutcome(
  gateway: Gateway,
  proposal: CallRequest,
  prepared: ResolvedCall,
  decision: Decision,
  answer: Answer,
  started: number,
): Answer | Promise<Answer> {
  const bytes = answer.ok ? answer.text.length : 0;
  const latencyMs = performance.now() - started;
  const { route, intent } = prepared;
  const outcome = outcomeOf(answer);
  let written: Promise<void> | undefined;
  if (decision.permit && !isGreeting(route)) {
    written = gateway.ledger?.appendOutcome({
      kind: "outcome",
      call: prepared.callId,
      trace: proposal.span.traceId,
      actor: `${proposal.principal.app}/${proposal.principal.agent}`,
      tool: route.name,
      args_cid: intent.argumentsId,
      outcome,
      latency_ms: Math.round(latencyMs * 1000) / 1000,
      bytes,
      ...(prepared.round.isRestored ? { detail: { request_state_restored: prepared.round.use?.nonce } } : {}),
    });
  }
  if (!decision.permit) {
    gateway.onDenied?.({
      principal: proposal.principal,
      tool: route.name,
      arguments: route.arguments,
      trace: proposal.span.traceId,
      decision,
    });
  }
  proposal.span.end({
    effect: decision.effect,
    outcome: decision.permit ? outcome : "refused",
    errorType: answer.ok ? undefined : answer.fault.type,
    latencyMs,
    bytes,
    policyHash: decision.policyHash,
    rule: decision.rules[0]?.id,
  });
  return written === undefined ? answer : written.then(() => answer);
}

function outcomeOf(answer: Answer): Outcome {
  if (answer.ok) {
    const result = answer.result instanceof RawResult ? answer.result.value : answer.result;
    return result?.isError === true ? "tool_error" : "ok";
  }
  switch (answer.fault.type) {
    case "ToolTimeout":
      return "timeout";
    case "Cancelled":
      return "cancelled";
    case "ToolExecution":
    case "OutputInvalid":
    case "IoError":
    case "Downstream":
      return "tool_error";
    default:
      return "failed";
  }
}

/** Counted, but neither logged nor recorded one by one: `Refusals` does that for all of them together. */
export function endUnseen(gateway: Gateway, { span }: CallRequest, fault: Fault, started: number): Fault {
  span.end({
    effect: "deny",
    outcome: "refused",
    errorType: fault.type,
    latencyMs: performance.now() - started,
    bytes: 0,
    policyHash: gateway.gate.policy.hash,
    rule: fault.detail.rule,
    isSummarized: true,
  });
  return fault;
}

/** A proposal that found no target is a deny like any other, and on record like any other. */
export async function recordUnrouted(
  gateway: Gateway,
  proposal: CallRequest,
  fault: Fault,
  started: number,
): Promise<Fault> {
  const { principal, method, params, span } = proposal;
  const name = typeof params.name === "string" ? params.name : typeof params.uri === "string" ? params.uri : method;
  const policy = gateway.gate.policy.hash;
  span.end({
    effect: "deny",
    outcome: "refused",
    errorType: fault.type,
    latencyMs: performance.now() - started,
    bytes: 0,
    policyHash: policy,
    rule: "route",
  });
  if (!gateway.ledger) return fault;
  const args = contentId(canonicalize(isJsonObject(params.arguments) ? params.arguments : {}));
  try {
    await gateway.ledger.append({
      kind: "decision",
      call: newCallId(),
      trace: span.traceId,
      intent: "",
      app: principal.app,
      agent: principal.agent,
      actor: `${principal.app}/${principal.agent}`,
      method,
      tool: name,
      binding: "",
      args_cid: args,
      effect: "deny",
      rules: ["route"],
      policy,
      reason: fault.message,
      mode: "enforce",
      detail: principal.delegation?.record,
    });
  } catch {
    // Nothing ran and nothing will; the caller hears the first reason, readiness tells about the ledger.
  }
  return fault;
}
