// The secure call: gate first, then the wire, then the record. What was decided is what is sent, and a call that
// cannot be put on record does not happen.

import { randomBytes } from "node:crypto";
import {
  applyObligations,
  canonicalize,
  contentId,
  createGate,
  type Decision,
  deny,
  type Gate,
  type Intent,
  intentForwarded,
  makeIntent,
  type Obligation,
  Permit,
  type Principal,
  denyDecision,
  type CallTarget,
} from "../../policy/index.js";
import type { Ledger, LedgerEntry } from "../../ledger/index.js";
import { Fault, type JsonObject, type JsonValue, StrictJsonError, unsendable } from "../index.js";
import type { ToolResult } from "../server/index.js";
import type { ToolCalls } from "./calls.js";
import type { ClientConversation, HowToAsk } from "./conversation.js";
import {
  AuditFailure,
  ChallengeRequired,
  type DescribedError,
  errorFromResult,
  errorObjectIn,
  errorObjectOf,
  errorOf,
  McpError,
  PolicyViolation,
  ProtocolError,
  type RemoteChallenge,
} from "./errors.js";
import type { Progress, RequestOptions } from "./options.js";
import { challengeEntry, decisionEntry, newClientCallId, outcomeEntry, type Recorded } from "./record.js";
import { factsOf } from "./revision.js";
import { inRounds } from "./rounds.js";
import { repeatUntilAnswered, untilAnswered } from "./waiting.js";

/** The levels of a message above a call's arguments: a batch, the message, its parameters. */
const AROUND_ARGUMENTS = 3;

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

/** One call as it was proposed. It stays the same through questions, challenges and repetitions. */
interface Proposal {
  readonly principal: Principal;
  readonly target: CallTarget;
  /** Parsed from canonical text: nothing that happens to the caller's own object matters any more. */
  readonly arguments: JsonObject;
  readonly meta: JsonObject | undefined;
  readonly how: RequestOptions;
  readonly trace: string;
}

export class SecureCalls {
  readonly #conversation: ClientConversation;
  readonly #calls: ToolCalls;
  readonly #options: SecureOptions;
  readonly #gate: Gate;
  readonly #transport: string;
  readonly #resultTypes: readonly string[];

  constructor(
    conversation: ClientConversation,
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
    checkCaller(context);
    const { app, agent, scope = [], allowed, meta, ...how } = context;
    const principal: Principal = { app, agent, scope, via: "local", ...(allowed ? { tools: allowed } : {}) };
    return this.#run(
      {
        principal,
        target: this.#target(tool),
        arguments: this.#snapshot(`the arguments of \`${tool}\``, args) as JsonObject,
        meta: meta && (this.#snapshot("`meta`", meta) as JsonObject),
        how,
        trace: randomBytes(16).toString("hex"),
      },
      {},
    );
  }

  async #run(proposal: Proposal, start: JsonObject): Promise<ToolResult> {
    try {
      const result = (await inRounds({
        method: "tools/call",
        limits: this.#conversation.limits,
        resultTypes: this.#resultTypes,
        mayAsk: factsOf(this.#conversation.revision).resultType,
        start,
        send: (extra) => this.#round(proposal, extra),
        answer: (method, params) => this.#conversation.answer(method, params, proposal.how.signal),
      })) as unknown as ToolResult;
      if (result.isError !== true) return result;
      const pending = this.#remoteChallenge(proposal, errorObjectOf(result), result);
      throw pending ?? errorFromResult(result, proposal.target.name);
    } catch (error) {
      if (error instanceof ChallengeRequired || !(error instanceof McpError)) throw error;
      throw this.#remoteChallenge(proposal, errorObjectIn(error.data)) ?? error;
    }
  }

  /** Gate, wire, record: the way of every request that reaches the server. */
  async #round(proposal: Proposal, extra: JsonObject): Promise<JsonObject> {
    const { principal, target, trace } = proposal;
    const forwarded = { ...(proposal.meta ? { _meta: proposal.meta } : {}), ...extra };
    const intent = makeIntent({ principal, method: "tools/call", target, arguments: proposal.arguments, forwarded });
    const decision = await this.#decide(proposal, intent);
    const recorded: Recorded = { call: newClientCallId(), trace, principal, target, intent };
    if (!decision.permit) {
      await this.#recordRefusal(recorded, decision);
      throw this.#refusal(proposal, extra, decision);
    }
    let isStarted = false;
    try {
      const grant = spend(decision.permit);
      // Written before anything runs: no record, no effect.
      await this.#record(decisionEntry(recorded, decision));
      isStarted = true;
      const startedAt = performance.now();
      const answer = await this.#send(proposal, grant.intent, grant.obligations);
      const latencyMs = performance.now() - startedAt;
      await this.#record(outcomeEntry(recorded, answer, latencyMs), answer);
      if (answer.error) throw answer.error;
      return answer.result;
    } finally {
      if (!isStarted) await decision.restoreApproval?.();
      decision.release();
    }
  }

  #decide(proposal: Proposal, intent: Intent): Decision | Promise<Decision> {
    const { principal, target } = proposal;
    if (principal.tools && !principal.tools.has(target.name)) {
      const reason = `\`${target.name}\` is not among the tools that ${principal.app}/${principal.agent} may reach`;
      return denyDecision(this.#gate.policy, deny("AuthorizationError", "capability", reason));
    }
    return this.#gate.decide(
      { principal, method: "tools/call", target, arguments: proposal.arguments, transport: this.#transport },
      intent,
    );
  }

  /** Arguments and everything else are cut from the text that was hashed, and from nothing else. */
  async #send(proposal: Proposal, intent: Intent, obligations: readonly Obligation[]): Promise<Answer> {
    const { signal, onProgress, timeoutMs = this.#conversation.timeouts.toolMs } = proposal.how;
    const how: HowToAsk = { timeoutMs, ...(signal ? { signal } : {}) };
    if (onProgress) {
      how.onProgress = (report) =>
        onProgress(keep(obligations, report as unknown as JsonObject) as unknown as Progress);
    }
    try {
      const call = { name: proposal.target.name, argumentsText: intent.argumentsText };
      const result = await this.#calls.send(call, how, intentForwarded(intent));
      return { result: keep(obligations, result) };
    } catch (error) {
      return { error: concealed(error as Error, obligations) };
    }
  }

  /** The canonical copy of what a caller gave, or an error that says why it has none. */
  #snapshot(what: string, value: JsonValue): JsonValue {
    let text: string;
    try {
      const problem = unsendable(value, this.#conversation.limits.maxDepth - AROUND_ARGUMENTS);
      if (problem) throw new StrictJsonError(`\`${problem.path}\`: ${problem.reason}`);
      text = canonicalize(value);
    } catch (error) {
      if (!(error instanceof StrictJsonError)) throw error;
      throw new ProtocolError("InvalidParams", `${what} cannot be sent: ${error.message}`, { cause: error });
    }
    const { maxMessageBytes } = this.#conversation.limits;
    if (Buffer.byteLength(text) > maxMessageBytes) {
      throw new ProtocolError(
        "TooLarge",
        `${what} have ${Buffer.byteLength(text)} bytes and the limit is ${maxMessageBytes}; send less or raise limits.maxMessageBytes`,
      );
    }
    return JSON.parse(text) as JsonValue;
  }

  #target(tool: string): CallTarget {
    const { tools = {} } = this.#options;
    const settings = (Object.hasOwn(tools, tool) ? tools[tool] : tools["*"]) ?? {};
    const server = this.#options.server ?? "server";
    const definition = this.#calls.definition(tool);
    return {
      type: "Tool",
      name: tool,
      action: tool,
      binding: server,
      server,
      // Nothing is fetched before the gate has spoken: a tool that was never listed has no definition to pin.
      definitionHash: definition ? contentId(JSON.stringify(definition)) : "unlisted",
      tags: settings.tags ?? [],
      readOnly: settings.readOnly ?? false,
      noGuardrailRequired: settings.noGuardrailRequired ?? false,
      builtin: false,
    };
  }

  #refusal(proposal: Proposal, extra: JsonObject, decision: Decision): McpError {
    const { verdict, challenge, rules } = decision;
    const detail = { rules, suggestions: verdict.suggestions ?? [] };
    if (!challenge) return new PolicyViolation(verdict.type ?? "PolicyDeny", decision.reason, detail);
    const wait = async (options: object): Promise<ToolResult> => {
      await untilAnswered(this.#gate.approvals, challenge.id, options);
      // The same call once more: policy is asked anew, and a person's no is its answer.
      return this.#run(proposal, extra);
    };
    return new ChallengeRequired(challenge, wait, detail);
  }

  /** A gate at the other end holds the call. */
  #remoteChallenge(proposal: Proposal, said: DescribedError | undefined, result?: ToolResult): McpError | undefined {
    if (said?.error_type !== "ChallengePending") return undefined;
    const reason = String(said.reason ?? "");
    const challenge: RemoteChallenge = { id: String(said.challenge ?? ""), remote: true, reason, data: said };
    const rules = typeof said.rule === "string" ? [{ id: said.rule }] : [];
    return new ChallengeRequired(challenge, (options) => repeatUntilAnswered(() => this.#run(proposal, {}), options), {
      data: said,
      rules,
      ...(result ? { result } : {}),
    });
  }

  async #recordRefusal(recorded: Recorded, decision: Decision): Promise<void> {
    if (!this.#options.recordDecisions) return;
    if (decision.challenge && decision.challengeIsNew) await this.#record(challengeEntry(recorded, decision.challenge));
    await this.#record(decisionEntry(recorded, decision));
  }

  /** `answer` is what the call already ended with; whoever hears of the failure gets it as well. */
  async #record(entry: LedgerEntry, answer?: Answer): Promise<void> {
    try {
      await this.#options.ledger?.append(entry);
    } catch (error) {
      const ran = answer ? "the call ran, but how it ended" : "the call did not run: it";
      throw new AuditFailure("AuditFailure", `${ran} cannot be put on record: ${(error as Error)?.message ?? error}`, {
        cause: answer?.error ?? error,
        ...(answer?.result ? { result: answer.result as unknown as ToolResult } : {}),
      });
    }
  }
}

/** Nobody is decided upon in a stranger's name, nor in none. */
function checkCaller(context: CallerContext | undefined): void {
  const missing = (["app", "agent"] as const).find((name) => typeof context?.[name] !== "string" || !context[name]);
  if (missing === undefined) return;
  throw new ProtocolError(
    "InvalidParams",
    `callToolSecure needs to know who calls: give { app: "…", agent: "…" } as its third argument (\`${missing}\` is missing)`,
  );
}

type Answer = { result: JsonObject; error?: never } | { error: Error; result?: never };

function spend(permit: Permit): ReturnType<typeof Permit.spend> {
  try {
    return Permit.spend(permit);
  } catch (error) {
    throw error instanceof Fault ? errorOf(error.type, error.message, { cause: error }) : error;
  }
}

/** An answer that cannot be brought into the form that policy asks for is withheld. */
function keep(obligations: readonly Obligation[], answer: JsonObject): JsonObject {
  try {
    return applyObligations(obligations, answer);
  } catch (error) {
    throw errorOf("PolicyDeny", "what policy asks of the answer could not be done, so it is withheld", {
      cause: error,
    });
  }
}

/** What a server says in an error is under the same obligations as what it says in a result. */
function concealed(error: Error, obligations: readonly Obligation[]): Error {
  if (obligations.length === 0 || !(error instanceof McpError) || error.wireCode === undefined) return error;
  const redactions = obligations.filter((obligation) => obligation.kind === "redact");
  const { message, data } = keep(redactions, { message: error.message, data: error.data ?? null });
  const { wireCode } = error;
  return errorOf(error.type, String(message), { wireCode, ...(error.data === undefined ? {} : { data }) });
}
