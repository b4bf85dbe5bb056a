// The lines a secure call leaves in the ledger.

import { randomBytes } from "node:crypto";
import type { Challenge, Decision, Intent, Principal, CallTarget } from "../../policy/index.js";
import type { ChallengeEntry, DecisionEntry, Outcome, OutcomeEntry } from "../../ledger/index.js";
import type { JsonObject } from "../index.js";
import { McpError } from "./errors.js";

export interface Recorded {
  readonly call: string;
  readonly trace: string;
  readonly principal: Principal;
  readonly target: CallTarget;
  readonly intent: Intent;
}

/** Names one attempt at one call, so that its decision and its outcome find each other. */
export function newClientCallId(): string {
  return randomBytes(12).toString("base64url");
}

export function decisionEntry(of: Recorded, decision: Decision): DecisionEntry {
  const { principal, target, intent } = of;
  return {
    kind: "decision",
    call: of.call,
    trace: of.trace,
    intent: intent.id,
    app: principal.app,
    agent: principal.agent,
    actor: `${principal.app}/${principal.agent}`,
    method: "tools/call",
    tool: target.name,
    binding: target.binding,
    args_cid: intent.argumentsId,
    effect: decision.effect,
    rules: decision.rules.map((rule) => rule.id),
    policy: decision.policyHash,
    reason: decision.reason,
    mode: decision.observed ? "observe" : "enforce",
    args: intent.argumentsText,
    ...(intent.forwardedText === "{}" ? {} : { forwarded: intent.forwardedText }),
  };
}

interface Ended {
  readonly result?: JsonObject;
  readonly error?: Error;
}

export function outcomeEntry(of: Recorded, answer: Ended, latencyMs: number): OutcomeEntry {
  const { principal, target, intent } = of;
  return {
    kind: "outcome",
    call: of.call,
    trace: of.trace,
    actor: `${principal.app}/${principal.agent}`,
    tool: target.name,
    args_cid: intent.argumentsId,
    outcome: outcomeOf(answer),
    latency_ms: Math.round(latencyMs * 1000) / 1000,
    bytes: answer.result ? Buffer.byteLength(JSON.stringify(answer.result)) : null,
  };
}

export function challengeEntry(of: Recorded, challenge: Challenge): ChallengeEntry {
  return {
    kind: "challenge",
    challenge: challenge.id,
    event: "opened",
    call: of.call,
    trace: of.trace,
    actor: `${of.principal.app}/${of.principal.agent}`,
    tool: of.target.name,
    args_cid: of.intent.argumentsId,
    rules: challenge.rules.map((rule) => rule.id),
    approvers: challenge.approvers,
    policy: challenge.policyHash,
  };
}

function outcomeOf(answer: Ended): Outcome {
  const { result, error } = answer;
  if (!error) return result?.isError === true ? "tool_error" : "ok";
  if (!(error instanceof McpError)) return "failed";
  if (error.type === "ToolTimeout") return "timeout";
  return error.type === "Cancelled" ? "cancelled" : "failed";
}
