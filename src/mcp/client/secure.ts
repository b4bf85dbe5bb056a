// The secure call of a client: every round of it goes through the pipeline of the gateway (src/pipeline), with the
// wire as its target. What was decided is what is sent, and a call that cannot be recorded does not happen.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Ledger } from "../../ledger/index.js";
import {
  type Answer,
  type CallRequest,
  CallsInFlight,
  Cancel,
  call,
  DEFAULT_GATEWAY_LIMITS,
  type Pipeline,
  Refusals,
  type Route,
  type RunContext,
  SILENT,
  StateCipher,
} from "../../pipeline/index.js";
import {
  type Approvals,
  canonicalize,
  contentId,
  createGate,
  type Decision,
  type Gate,
  intentForwarded,
  type Principal,
} from "../../policy/index.js";
import {
  Fault,
  type JsonObject,
  type JsonValue,
  MODERN,
  RetainedBytes,
  StrictJsonError,
  unsendable,
} from "../index.js";
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
  type WaitOptions,
} from "./errors.js";
import { inRounds } from "./inputs.js";
import type { Progress, RequestOptions } from "./options.js";

/** The levels of a message above a call's arguments: a batch, the message, its parameters. */
const AROUND_ARGUMENTS = 3;

/** What the operator declares about a tool; the server's own annotations are not trusted. */
export interface ToolSettings {
  noGuardrailRequired?: boolean;
  readOnly?: boolean;
  tags?: readonly string[];
}

export interface SecureOptions {
  /** Decides every `callToolSecure`. Without one every such call is denied. */
  gate?: Gate;
  /** Where secure calls are recorded. Without one they are not. */
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

/** One call of a caller. It stays the same through questions, challenges and repetitions. */
interface SecureCall {
  readonly principal: Principal;
  readonly tool: string;
  /** Parsed from canonical text, so that later changes of the caller's own object have no effect. */
  readonly arguments: JsonObject;
  readonly meta: JsonObject | undefined;
  readonly how: RequestOptions;
  readonly trace: string;
}

export class SecureCalls {
  readonly #conversation: ClientConversation;
  readonly #calls: ToolCalls;
  readonly #options: SecureOptions;
  readonly #pipeline: Pipeline;
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
    this.#pipeline = pipelineOf(options);
  }

  async call(tool: string, args: JsonObject, context: CallerContext): Promise<ToolResult> {
    checkCaller(context);
    const { app, agent, scope = [], allowed, meta, ...how } = context;
    const principal: Principal = { app, agent, scope, via: "local", ...(allowed ? { tools: allowed } : {}) };
    return this.#run(
      {
        principal,
        tool,
        arguments: this.#snapshot(`the arguments of \`${tool}\``, args) as JsonObject,
        meta: meta && (this.#snapshot("`meta`", meta) as JsonObject),
        how,
        trace: randomBytes(16).toString("hex"),
      },
      {},
    );
  }

  async #run(secure: SecureCall, start: JsonObject): Promise<ToolResult> {
    try {
      const result = (await inRounds({
        method: "tools/call",
        limits: this.#conversation.limits,
        resultTypes: this.#resultTypes,
        mayAsk: this.#conversation.revision.resultType,
        start,
        send: (extra) => this.#round(secure, extra),
        answer: (method, params) => this.#conversation.answer(method, params, secure.how.signal),
      })) as unknown as ToolResult;
      if (result.isError !== true) return result;
      const pending = this.#remoteChallenge(secure, errorObjectOf(result), result);
      throw pending ?? errorFromResult(result, secure.tool);
    } catch (error) {
      if (error instanceof ChallengeRequired || !(error instanceof McpError)) throw error;
      throw this.#remoteChallenge(secure, errorObjectIn(error.data)) ?? error;
    }
  }

  /** Every request that reaches the server is one call of the pipeline. */
  async #round(secure: SecureCall, extra: JsonObject): Promise<JsonObject> {
    const { principal, trace, how } = secure;
    const { onProgress } = how;
    const request: CallRequest = {
      principal,
      method: "tools/call",
      params: onProgress ? { _meta: { progressToken: 0 } } : {},
      route: this.#route(secure, extra),
      requestId: undefined,
      revision: MODERN,
      transport: this.#transport,
      conversation: onProgress ? { ...SILENT, notify: (_, report) => notified(onProgress, report) } : SILENT,
      cancel: new Cancel(),
      render: JSON.stringify,
      span: { traceId: trace, traceparent: "", serverTraceparent: "", tracestate: undefined, end() {} },
      depth: 0,
    };
    const answer = await call(this.#pipeline, request);
    if (answer.ok) return answer.result as JsonObject;
    throw answer.decision ? this.#denial(secure, extra, answer.decision) : errorOfAnswer(answer);
  }

  /** Arguments and everything else are cut from the text that was hashed, and from nothing else. */
  async #send({ tool, how: { signal, onProgress, timeoutMs } }: SecureCall, context: RunContext): Promise<JsonObject> {
    const { intent } = context.grant;
    const how: HowToAsk = { timeoutMs: timeoutMs ?? this.#conversation.timeouts.toolMs, ...(signal ? { signal } : {}) };
    if (onProgress) how.onProgress = (report) => context.relayProgress(report as unknown as JsonObject);
    try {
      return await this.#calls.send({ name: tool, argumentsText: intent.argumentsText }, how, intentForwarded(intent));
    } catch (error) {
      if (!(error instanceof McpError)) throw error;
      const { type, message, wireCode, data } = error;
      throw new Fault(type, message, {
        cause: error,
        ...(wireCode === undefined ? {} : { downstream: { code: wireCode, message, data } }),
      });
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

  #route(secure: SecureCall, extra: JsonObject): Route {
    const { tool, meta, how } = secure;
    const { tools = {}, server = "server" } = this.#options;
    const settings = (Object.hasOwn(tools, tool) ? tools[tool] : tools["*"]) ?? {};
    const definition = this.#calls.definition(tool);
    return {
      type: "Tool",
      name: tool,
      action: tool,
      binding: server,
      server,
      // Nothing is fetched before the decision: a tool that was never listed has no definition to pin.
      definitionHash: definition ? contentId(JSON.stringify(definition)) : "unlisted",
      tags: settings.tags ?? [],
      readOnly: settings.readOnly ?? false,
      noGuardrailRequired: settings.noGuardrailRequired ?? false,
      builtin: false,
      arguments: secure.arguments,
      forwarded: { ...(meta ? { _meta: meta } : {}), ...extra },
      // The conversation ends the request in time; this ends one that it missed.
      timeoutMs: Math.max(this.#conversation.timeouts.totalMs, how.timeoutMs ?? 0) + TIMEOUT_MARGIN_MS,
      hasOutputSchema: false,
      // Arguments and results are validated by the server, which has the tool.
      validate: () => ({ ok: true }),
      validateOutput: () => ({ ok: true }),
      run: (context) => this.#send(secure, context),
    };
  }

  #denial(secure: SecureCall, extra: JsonObject, { result, challenge, rules, reason }: Decision): McpError {
    const detail = { rules, suggestions: result.suggestions ?? [] };
    if (!challenge) return new PolicyViolation(result.type ?? "PolicyDeny", reason, detail);
    const wait = async (options: object): Promise<ToolResult> => {
      await untilAnswered(this.#pipeline.gate.approvals, challenge.id, options);
      // The same call once more: policy decides again, and an approver's denial is its answer.
      return this.#run(secure, extra);
    };
    return new ChallengeRequired(challenge, wait, detail);
  }

  /** A gate at the other end holds the call. */
  #remoteChallenge(secure: SecureCall, said: DescribedError | undefined, result?: ToolResult): McpError | undefined {
    if (said?.error_type !== "ChallengePending") return undefined;
    const reason = String(said.reason ?? "");
    const challenge: RemoteChallenge = { id: String(said.challenge ?? ""), remote: true, reason, data: said };
    const rules = typeof said.rule === "string" ? [{ id: said.rule }] : [];
    return new ChallengeRequired(challenge, (options) => repeatUntilAnswered(() => this.#run(secure, {}), options), {
      data: said,
      rules,
      ...(result ? { result } : {}),
    });
  }
}

/** `app` and `agent` are mandatory: policy needs a principal. */
function checkCaller(context: CallerContext | undefined): void {
  const missing = (["app", "agent"] as const).find((name) => typeof context?.[name] !== "string" || !context[name]);
  if (missing === undefined) return;
  throw new ProtocolError(
    "InvalidParams",
    `callToolSecure needs to know who calls: give { app: "…", agent: "…" } as its third argument (\`${missing}\` is missing)`,
  );
}

/** More than any process of a client has: its own code is not limited by the pipeline. */
const UNLIMITED = Number.MAX_SAFE_INTEGER;
const LIMITS = {
  ...DEFAULT_GATEWAY_LIMITS,
  maxResultBytes: UNLIMITED,
  refusalsPerMinute: UNLIMITED,
  maxCalls: UNLIMITED,
  maxAppCalls: UNLIMITED,
  maxAgentCalls: UNLIMITED,
  challengeWaitMs: 0,
};
const TIMEOUT_MARGIN_MS = 5_000;
const NOTHING = (): void => {};

function pipelineOf({ gate = createGate(), ledger, recordDecisions = false }: SecureOptions): Pipeline {
  const unserved = (): never => {
    throw new Fault("MethodNotFound", "a client serves no methods");
  };
  const append: Ledger["append"] | undefined = ledger && ((entry) => ledger.append(entry));
  const telemetry = {
    startCall: unserved,
    log: { debug: NOTHING, warning: NOTHING, error: NOTHING },
    metrics: { shed: { inc: NOTHING }, droppedFields: { add: NOTHING } },
  };
  return {
    gate,
    // Every record is awaited: a client has no flush to leave it to.
    ledger: append && { append, appendSoon: append, appendOutcome: append },
    recordDenials: recordDecisions,
    // The ledger decides whether it keeps them.
    keepArguments: true,
    telemetry,
    limits: LIMITS,
    retained: new RetainedBytes(LIMITS),
    calls: new CallsInFlight(LIMITS),
    refusals: new Refusals({ perMinute: UNLIMITED, ledger: undefined, telemetry }),
    stateCipher: new StateCipher(),
    resolveRoute: unserved,
    callTool: unserved,
    sendClientRequest: unserved,
  };
}

function notified(onProgress: (report: Progress) => void, { progressToken: _ours, ...report }: JsonObject): boolean {
  onProgress(report as unknown as Progress);
  return true;
}

/** Of a call that was permitted, or whose decision could not be recorded. */
function errorOfAnswer({ fault, unrecorded }: Answer & { ok: false }): Error {
  const { cause } = fault;
  if (fault.type === "AuditFailure") {
    const result = unrecorded?.ok ? { result: unrecorded.result as unknown as ToolResult } : {};
    const failed = unrecorded && !unrecorded.ok ? errorOfAnswer(unrecorded) : cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    return new AuditFailure("AuditFailure", `${fault.message}: ${why}`, { cause: failed, ...result });
  }
  if (cause instanceof McpError) return cause;
  // The obligations of the permit were applied to it, so that the server's own error is not shown.
  const { downstream, rule, suggestions = [] } = fault.detail;
  const rules = rule === undefined ? {} : { rules: [{ id: rule }] };
  const said = downstream ? { wireCode: downstream.code, data: downstream.data as JsonValue } : {};
  return errorOf(fault.type, fault.message, { suggestions, ...rules, ...said, cause });
}

const DEFAULT_WAIT_MS = 600_000;
const REPEAT_MS = 1_000;
const MAX_REPEAT_MS = 10_000;

/** Returns when the challenge was answered, either way; throws when it was not, or is of no more use. */
async function untilAnswered(approvals: Approvals, challengeId: string, options: WaitOptions): Promise<void> {
  if (options.signal?.aborted) throw cancelled();
  const settled = await approvals.settled(challengeId, options.timeoutMs ?? DEFAULT_WAIT_MS, options.signal);
  if (settled === "approved" || settled === "denied") return;
  if (options.signal?.aborted) throw cancelled();
  if (settled === "redeemed") throw didNotRun("another, identical call used the approval");
  throw didNotRun("it was not approved in time");
}

/** Calls again until the gate at the other end has an answer. */
async function repeatUntilAnswered(call: () => Promise<ToolResult>, options: WaitOptions): Promise<ToolResult> {
  const deadline = performance.now() + (options.timeoutMs ?? DEFAULT_WAIT_MS);
  for (let pauseMs = REPEAT_MS; ; pauseMs = Math.min(pauseMs * 1.5, MAX_REPEAT_MS)) {
    const leftMs = deadline - performance.now();
    if (leftMs <= 0) throw didNotRun("it was not approved in time");
    await sleep(Math.min(pauseMs, leftMs), undefined, options.signal ? { signal: options.signal } : {}).catch(() => {
      throw cancelled();
    });
    try {
      return await call();
    } catch (error) {
      const stillPending = error instanceof ChallengeRequired && "remote" in error.challenge;
      if (!stillPending) throw error;
    }
  }
}

function didNotRun(why: string): PolicyViolation {
  return new PolicyViolation("PolicyDeny", `the call did not run: ${why}`);
}

function cancelled(): Error {
  return errorOf("Cancelled", "waiting for approval was cancelled");
}
