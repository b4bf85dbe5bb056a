// The secure call: gate first, then the wire, then the record. What was decided is what is sent, and a call that
// cannot be put on record does not happen.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  contentId,
  createGate,
  type Decision,
  type Gate,
  type Intent,
  intentForwarded,
  makeIntent,
  Permit,
  type Principal,
  type Target,
} from "../gate/index.js";
import type { Ledger, LedgerEntry, Outcome } from "../ledger/index.js";
import { type JsonObject, StrictJsonError } from "../protocol/index.js";
import type { ToolResult } from "../tool/index.js";
import type { ToolCalls } from "./calls.js";
import type { Conversation } from "./conversation.js";
import {
  AuditFailure,
  type ChallengeInfo,
  ChallengeRequired,
  type DescribedError,
  errorFromResult,
  errorObjectIn,
  errorObjectOf,
  errorOf,
  McpError,
  PolicyViolation,
  ProtocolError,
  type WaitOptions,
} from "./errors.js";
import type { RequestOptions } from "./options.js";
import { inRounds } from "./rounds.js";

/** What the operator says about a tool; the server's own annotations are never believed. */
export interface ToolSettings {
  noGuardrailRequired?: boolean;
  readOnly?: boolean;
  tags?: readonly string[];
}

export interface SecureOptions {
  /** Decides every `callToolSecure`. Without one every such call is denied. */
  gate?: Gate;
  /** Where secure calls are put on record. Without one they are not. */
  ledger?: Pick<Ledger, "append">;
  /** Record denials and challenges too, not only calls that ran. */
  recordDecisions?: boolean;
  /** How policies name this server; the target's address unless given. */
  server?: string;
  /** By tool name; `*` stands for every tool not named. */
  tools?: Readonly<Record<string, ToolSettings>>;
}

/** Who calls, and how. */
export interface CallerContext extends RequestOptions {
  app: string;
  agent: string;
  scope?: readonly string[];
  /** The only tools this caller may reach at all. */
  allowed?: ReadonlySet<string>;
}

const DEFAULT_WAIT_MS = 600_000;
const REPEAT_MS = 1_000;
const MAX_REPEAT_MS = 10_000;

/** One call as it was proposed. It stays the same through questions, challenges and repetitions. */
interface Proposal {
  readonly tool: string;
  readonly principal: Principal;
  readonly target: Target;
  readonly arguments: JsonObject;
  readonly context: CallerContext;
  readonly trace: string;
}

export class SecureCalls {
  readonly #conversation: Conversation;
  readonly #calls: ToolCalls;
  readonly #options: SecureOptions;
  readonly #gate: Gate;
  readonly #transport: string;
  readonly #resultTypes: readonly string[];

  constructor(
    conversation: Conversation,
    calls: ToolCalls,
    options: SecureOptions & { transport: string; resultTypes: readonly string[] },
  ) {
    this.#conversation = conversation;
    this.#calls = calls;
    this.#options = options;
    this.#transport = options.transport;
    this.#resultTypes = options.resultTypes;
    this.#gate = options.gate ?? createGate();
  }

  async call(tool: string, args: JsonObject, context: CallerContext): Promise<ToolResult> {
    const principal: Principal = {
      app: context.app,
      agent: context.agent,
      scope: context.scope ?? [],
      via: "local",
      ...(context.allowed ? { tools: context.allowed } : {}),
    };
    const trace = randomBytes(16).toString("hex");
    // A private copy: what the caller does to its own object from here on changes nothing.
    const copy = this.#inProtocolTerms(() => structuredClone(args));
    return this.#run({ tool, principal, target: this.#target(tool), arguments: copy, context, trace }, {});
  }

  async #run(proposal: Proposal, start: JsonObject): Promise<ToolResult> {
    const { tool, context } = proposal;
    try {
      const result = (await inRounds({
        method: "tools/call",
        limits: this.#conversation.limits,
        resultTypes: this.#resultTypes,
        start,
        send: (extra) => this.#round(proposal, extra),
        answer: (method, params) => this.#conversation.answer(method, params, context.signal),
      })) as unknown as ToolResult;
      if (result.isError !== true) return result;
      throw this.#remoteChallenge(proposal, errorObjectOf(result), result) ?? errorFromResult(result, tool);
    } catch (error) {
      const described =
        error instanceof McpError && !(error instanceof ChallengeRequired) ? errorObjectIn(error.data) : undefined;
      throw this.#remoteChallenge(proposal, described) ?? error;
    }
  }

  /** Gate, wire, record: the way of every request that reaches the server. */
  async #round(proposal: Proposal, extra: JsonObject): Promise<JsonObject> {
    const { principal, target, context } = proposal;
    const intent = this.#intentOf(proposal, extra);
    const proposed = {
      principal,
      method: "tools/call",
      target,
      arguments: proposal.arguments,
      transport: this.#transport,
    };
    const decision = await this.#gate.decide(proposed, intent, extra.inputResponses);
    if (!decision.permit) {
      if (this.#options.recordDecisions) await this.#record(decisionEntry(newCallId(), proposal, intent, decision));
      throw this.#refusal(proposal, extra, decision);
    }
    try {
      const grant = Permit.spend(decision.permit);
      const call = newCallId();
      // Written before anything runs: no record, no effect.
      await this.#record(decisionEntry(call, proposal, intent, decision));
      const startedAt = performance.now();
      const done = (outcome: Outcome): Promise<void> =>
        this.#record(outcomeEntry(call, proposal, intent, outcome, performance.now() - startedAt));
      let result: JsonObject;
      try {
        const timeoutMs = context.timeoutMs ?? this.#conversation.timeouts.toolMs;
        const { signal, onProgress } = context;
        const how = { timeoutMs, ...(signal ? { signal } : {}), ...(onProgress ? { onProgress } : {}) };
        // Cut from the text that was hashed, both of them, and from nothing else.
        const forwarded = intentForwarded(grant.intent);
        result = await this.#calls.send(
          { name: target.name, argumentsText: grant.intent.argumentsText },
          how,
          forwarded,
        );
      } catch (error) {
        await done(outcomeOf(error));
        throw error;
      }
      await done(result.isError === true ? "tool_error" : "ok").catch((error: unknown) => {
        throw Object.assign(error as AuditFailure, { result });
      });
      return result;
    } finally {
      decision.release();
    }
  }

  #intentOf(proposal: Proposal, extra: JsonObject): Intent {
    const { principal, target, context } = proposal;
    const forwarded = { ...(context.meta ? { _meta: context.meta } : {}), ...extra };
    const intent = this.#inProtocolTerms(() =>
      makeIntent({ principal, method: "tools/call", target, arguments: proposal.arguments, forwarded }),
    );
    const bytes = Buffer.byteLength(intent.argumentsText);
    const { maxMessageBytes } = this.#conversation.limits;
    if (bytes > maxMessageBytes) {
      throw new ProtocolError(
        "TooLarge",
        `the arguments of \`${proposal.tool}\` have ${bytes} bytes and the limit is ${maxMessageBytes}; send less or raise limits.maxMessageBytes`,
      );
    }
    return intent;
  }

  #inProtocolTerms<T>(make: () => T): T {
    try {
      return make();
    } catch (error) {
      if (!(error instanceof StrictJsonError || error instanceof DOMException || error instanceof TypeError))
        throw error;
      throw new ProtocolError("InvalidParams", `the arguments have no JSON form: ${error.message}`, { cause: error });
    }
  }

  #target(tool: string): Target {
    const settings = this.#options.tools?.[tool] ?? this.#options.tools?.["*"] ?? {};
    const server = this.#options.server ?? "server";
    const definition = this.#calls.definition(tool);
    return {
      type: "Tool",
      name: tool,
      action: tool,
      binding: server,
      server,
      definitionHash: definition ? contentId(JSON.stringify(definition)) : "unlisted",
      tags: settings.tags ?? [],
      readOnly: settings.readOnly ?? false,
      noGuardrailRequired: settings.noGuardrailRequired ?? false,
      builtin: false,
    };
  }

  #refusal(proposal: Proposal, extra: JsonObject, decision: Decision): McpError {
    const { verdict, challenge } = decision;
    const detail = { rules: decision.rules, suggestions: verdict.suggestions ?? [] };
    if (challenge)
      return new ChallengeRequired(challenge, (options) => this.#await(proposal, extra, challenge, options), detail);
    const type = verdict.type ?? "PolicyDeny";
    return new PolicyViolation(type, decision.reason, detail);
  }

  /** Sits until a person has answered, then proposes the same call again; policy is asked anew. */
  async #await(
    proposal: Proposal,
    extra: JsonObject,
    challenge: ChallengeInfo,
    options: WaitOptions,
  ): Promise<ToolResult> {
    const settled = await this.#gate.approvals.settled(
      challenge.id,
      options.timeoutMs ?? DEFAULT_WAIT_MS,
      options.signal,
    );
    if (settled?.state === "approved" || settled?.state === "denied") return this.#run(proposal, extra);
    if (options.signal?.aborted) throw errorOf("Cancelled", "waiting for approval was cancelled");
    const why =
      settled?.state === "redeemed" ? "another, identical call used the approval" : "nobody approved it in time";
    throw new PolicyViolation("PolicyDeny", `\`${proposal.tool}\` did not run: ${why}`);
  }

  /** A gate at the other end holds the call. It matches repetitions by itself, so waiting is repeating. */
  #remoteChallenge(
    proposal: Proposal,
    described: DescribedError | undefined,
    result?: ToolResult,
  ): McpError | undefined {
    if (described?.error_type !== "ChallengePending") return undefined;
    const challenge: ChallengeInfo = {
      id: String(described.challenge ?? ""),
      remote: true,
      reason: String(described.reason ?? ""),
      data: described,
    };
    const rules = typeof described.rule === "string" ? [{ id: described.rule }] : [];
    return new ChallengeRequired(challenge, (options) => this.#repeat(proposal, options), {
      data: described,
      rules,
      ...(result ? { result } : {}),
    });
  }

  async #repeat(proposal: Proposal, options: WaitOptions): Promise<ToolResult> {
    const deadline = performance.now() + (options.timeoutMs ?? DEFAULT_WAIT_MS);
    for (let pauseMs = REPEAT_MS; ; pauseMs = Math.min(pauseMs * 1.5, MAX_REPEAT_MS)) {
      const leftMs = deadline - performance.now();
      if (leftMs <= 0)
        throw new PolicyViolation("PolicyDeny", `\`${proposal.tool}\` did not run: nobody approved it in time`);
      await sleep(Math.min(pauseMs, leftMs), undefined, options.signal ? { signal: options.signal } : {}).catch(() => {
        throw errorOf("Cancelled", "waiting for approval was cancelled");
      });
      try {
        return await this.#run(proposal, {});
      } catch (error) {
        if (!(error instanceof ChallengeRequired && "remote" in error.challenge)) throw error;
      }
    }
  }

  async #record(entry: LedgerEntry): Promise<void> {
    try {
      await this.#options.ledger?.append(entry);
    } catch (error) {
      throw new AuditFailure(
        "AuditFailure",
        `the call cannot be put on record: ${(error as Error)?.message ?? error}`,
        {
          cause: error,
        },
      );
    }
  }
}

function newCallId(): string {
  return randomBytes(12).toString("base64url");
}

function decisionEntry(call: string, proposal: Proposal, intent: Intent, decision: Decision): LedgerEntry {
  const { principal, target, tool, trace } = proposal;
  return {
    kind: "decision",
    call,
    trace,
    app: principal.app,
    agent: principal.agent,
    actor: `${principal.app}/${principal.agent}`,
    method: "tools/call",
    tool,
    binding: target.binding,
    args_cid: intent.argumentsId,
    effect: decision.effect,
    rules: decision.rules.map((rule) => rule.id),
    policy: decision.policyHash,
    reason: decision.reason,
    mode: decision.observed ? "observe" : "enforce",
    args: intent.argumentsText,
  };
}

function outcomeEntry(
  call: string,
  proposal: Proposal,
  intent: Intent,
  outcome: Outcome,
  latencyMs: number,
): LedgerEntry {
  const { principal, tool, trace } = proposal;
  return {
    kind: "outcome",
    call,
    trace,
    actor: `${principal.app}/${principal.agent}`,
    tool,
    args_cid: intent.argumentsId,
    outcome,
    latency_ms: Math.round(latencyMs * 1000) / 1000,
    bytes: null,
  };
}

function outcomeOf(error: unknown): Outcome {
  if (!(error instanceof McpError)) return "failed";
  if (error.type === "ToolTimeout") return "timeout";
  return error.type === "Cancelled" ? "cancelled" : "failed";
}
