// The pipeline's two records. The decision is durable before anything runs; the outcome is written with the next flush, or
// waited for where the operator chose so.

import { randomBytes } from "node:crypto";
import type { Outcome, OutcomeEntry } from "../ledger/index.js";
import { type ErrorType, Fault, isJsonObject } from "../mcp/index.js";
import { canonicalize, contentId, type Decision, type Intent, type Rule } from "../policy/index.js";
import type { CallSpan } from "../telemetry/index.js";
import type { Answer } from "./call.js";
import type { InputRound } from "./execute.js";
import { type CallRequest, type Pipeline, RawResult, type Route } from "./types.js";

/** Call ids: unique across starts by a random prefix, cheap by a counter. */
const prefix = randomBytes(9).toString("base64url");
let counter = 0;

export function newCallId(): string {
  return `${prefix}.${(counter++).toString(36)}`;
}

/** A routed request with its intent, and the id of its call. */
export interface ResolvedCall {
  readonly callId: string;
  readonly route: Route;
  /** `asked`: the challenge that this round answers, where the client was shown where to approve it. */
  readonly round: InputRound & { readonly asked: string | undefined };
  readonly intent: Intent;
}

/** `server/discover` is the handshake of 2026-07-28: like `initialize`, it is not recorded. */
function isHandshake(route: Route): boolean {
  return route.builtin && route.name === "server/discover";
}

/** The same list of rules comes with many decisions: its ids are computed once. */
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
  pipeline: Pipeline,
  request: CallRequest,
  resolved: ResolvedCall,
  decision: Decision,
): Promise<unknown> | undefined {
  const { ledger } = pipeline;
  const { route, intent } = resolved;
  const isPast = decision.past?.recorded !== undefined;
  if (!ledger || isHandshake(route) || (!decision.permit && !pipeline.recordDenials && !isPast)) {
    decision.past?.recording(resolved.callId, undefined);
    return undefined;
  }
  const { app, agent } = request.principal;
  const actor = `${app}/${agent}`;
  const rules = ruleIds(decision.rules);
  const entry = {
    kind: "decision" as const,
    call: resolved.callId,
    trace: request.span.traceId,
    intent: intent.id,
    app,
    agent,
    actor,
    method: request.method,
    tool: route.name,
    binding: route.binding,
    args_cid: intent.argumentsId,
    effect: decision.effect,
    rules,
    policy: decision.policyHash,
    reason: decision.reason,
    mode: decision.observed ? ("observe" as const) : ("enforce" as const),
    args: pipeline.keepArguments ? intent.argumentsText : undefined,
    forwarded: pipeline.keepArguments && intent.forwardedText !== "{}" ? intent.forwardedText : undefined,
    detail: detailOf(request, resolved, decision),
  };
  const { past } = decision;
  const event = decision.redeemed ? "redeemed" : decision.challengeIsNew ? "opened" : undefined;
  const noted = event && recordChallenge(pipeline, request, resolved, decision, event);
  // Only what an operator (or we ourselves) declared harmless may run before its decision is on the disk. What counts once
  // is on the disk too: a store that was restored may have forgotten it.
  const countsOnce = decision.redeemed !== undefined || resolved.round.use !== undefined;
  // What rules are about counts for calls after it, also when this process is killed now.
  const mayRunFirst =
    decision.permit && !countsOnce && !isPast && (route.builtin || (route.type === "Tool" && route.readOnly));
  const written = mayRunFirst ? (ledger.appendSoon(entry) ?? undefined) : ledger.append(entry);
  past?.recording(resolved.callId, written);
  return noted ? Promise.all([noted, written]) : written;
}

function detailOf(
  { principal }: CallRequest,
  { route, round }: ResolvedCall,
  { permit, past }: Decision,
): Readonly<Record<string, unknown>> | undefined {
  const history = past?.recorded;
  const own = route.serverRequest
    ? { server: route.server, during: route.serverRequest.tool }
    : principal.delegation?.record;
  const detail = history ? { ...own, history } : own;
  return round.use === undefined || !permit ? detail : { ...detail, request_state: round.use.nonce };
}

/** In the same flush as the decision that follows it, or with the next one. */
export function recordChallenge(
  { ledger, recordDenials }: Pipeline,
  { principal, span }: CallRequest,
  { callId, route, intent }: ResolvedCall,
  decision: Decision,
  event: "opened" | "redeemed" | "restored",
): Promise<unknown> | undefined {
  const challenge = event === "opened" ? decision.challenge : decision.redeemed;
  if (!ledger || !recordDenials || !challenge) return undefined;
  const written = ledger.appendSoon({
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
  return written ?? undefined;
}

/** While the ledger cannot be written every call fails: one log line a second, with their number. */
const REPORT_EVERY_MS = 1_000;
let reportedAt = Number.NEGATIVE_INFINITY;
let unreported = 0;

/** The decision could not be written, so nothing runs. Callers do not learn where the ledger is; the log names it. */
export function recordFailure(
  pipeline: Pipeline,
  request: CallRequest,
  decision: Decision,
  error: unknown,
  started: number,
): Fault {
  const { span, principal } = request;
  unreported++;
  if (performance.now() - reportedAt > REPORT_EVERY_MS) {
    const problem = error instanceof Error ? error.message : String(error);
    const { app, agent } = principal;
    const log = pipeline.telemetry.log;
    log.error(
      "calls do not run, because they cannot be recorded",
      { calls: unreported, app, agent, problem },
      span.traceId,
    );
    reportedAt = performance.now();
    unreported = 0;
  }
  endDenied(span, "AuditFailure", started, decision.policyHash, "ledger");
  return new Fault("AuditFailure", "the call did not run: its record could not be written", {
    cause: error,
    suggestions: [
      "Make room on, or repair, the disk that holds the ledger; calls then run again by themselves",
      "The gateway's log names the problem",
    ],
  });
}

export function recordOutcome(
  pipeline: Pipeline,
  request: CallRequest,
  resolved: ResolvedCall,
  decision: Decision,
  answer: Answer,
  started: number,
): Answer | Promise<Answer> {
  const bytes = answer.ok ? answer.text.length : 0;
  const latencyMs = performance.now() - started;
  const { route, intent } = resolved;
  const outcome = outcomeOf(answer);
  let written: Promise<unknown> | undefined;
  decision.past?.ended(outcome);
  if (decision.permit && !isHandshake(route)) {
    const entry: OutcomeEntry = {
      kind: "outcome",
      call: resolved.callId,
      trace: request.span.traceId,
      actor: `${request.principal.app}/${request.principal.agent}`,
      tool: route.name,
      args_cid: intent.argumentsId,
      outcome,
      latency_ms: Math.round(latencyMs * 1000) / 1000,
      bytes,
      detail: resolved.round.isRestored ? { request_state_restored: resolved.round.use?.nonce } : undefined,
    };
    written = decision.past?.isOutcomeRecorded ? pipeline.ledger?.append(entry) : pipeline.ledger?.appendOutcome(entry);
  }
  if (!decision.permit) {
    pipeline.onDenied?.({
      principal: request.principal,
      tool: route.name,
      arguments: route.arguments,
      trace: request.span.traceId,
      decision,
    });
  }
  request.span.end({
    effect: decision.effect,
    outcome: decision.permit ? outcome : "refused",
    errorType: answer.ok ? undefined : answer.fault.type,
    latencyMs,
    bytes,
    policyHash: decision.policyHash,
    rule: decision.rules[0]?.id,
  });
  return written === undefined
    ? answer
    : written.then(
        () => answer,
        (error: unknown) => unrecorded(answer, error),
      );
}

function unrecorded(answer: Answer, cause: unknown): Answer {
  const fault = new Fault("AuditFailure", "the call ran, but its outcome could not be recorded", { cause });
  return { ok: false, fault, route: answer.route, unrecorded: answer };
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
export function endUnseen(pipeline: Pipeline, { span }: CallRequest, fault: Fault, started: number): Fault {
  endDenied(span, fault.type, started, pipeline.gate.policy.hash, fault.detail.rule, true);
  return fault;
}

function endDenied(
  span: CallSpan,
  errorType: ErrorType,
  started: number,
  policyHash: string,
  rule: string | undefined,
  isSummarized?: true,
): void {
  const latencyMs = performance.now() - started;
  span.end({ effect: "deny", outcome: "refused", errorType, latencyMs, bytes: 0, policyHash, rule, isSummarized });
}

/** A request that found no target is a deny like any other, and on record like any other. */
export async function recordUnrouted(
  pipeline: Pipeline,
  request: CallRequest,
  fault: Fault,
  started: number,
): Promise<Fault> {
  const { principal, method, params, span } = request;
  const name = typeof params.name === "string" ? params.name : typeof params.uri === "string" ? params.uri : method;
  const policy = pipeline.gate.policy.hash;
  endDenied(span, fault.type, started, policy, "route");
  if (!pipeline.ledger || !pipeline.recordDenials) return fault;
  const args = contentId(canonicalize(isJsonObject(params.arguments) ? params.arguments : {}));
  try {
    await pipeline.ledger.append({
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
    // Nothing ran and nothing will: the caller gets the first reason, and readiness reports the ledger.
  }
  return fault;
}
