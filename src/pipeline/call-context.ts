// What a handler holds while it runs. When the call is over, or was stopped, the context is dead: nothing that the handler
// sends from then on is delivered.

import { Fault, isJsonObject, type JsonObject, type JsonValue, type Pausable } from "../mcp/index.js";
import type { CallContext, ContentBlock, InputRequest, LogLevel, ToolResult } from "../mcp/server/index.js";
import { applyToText, applyToValue, cutText, intentForwarded, mustBuffer, type PermitGrant } from "../policy/index.js";
import type { Cancel } from "./cancel.js";
import type { ClientRequest } from "./client-request.js";
import type { InputRound } from "./execute.js";
import type { CallRequest, Conversation, Pipeline } from "./types.js";

/** Thrown through a handler that sends a request in a revision without server requests; becomes `input_required`. */
export class InputRequired {
  readonly requests: Readonly<Record<string, InputRequest>>;
  readonly state: JsonValue | undefined;
  /** Set for a request of an upstream server: the rest of its result, and that it keeps its own account of earlier answers. */
  readonly relayed: JsonObject | undefined;
  constructor(
    requests: Readonly<Record<string, InputRequest>>,
    state: JsonValue | undefined,
    relayed?: JsonObject | undefined,
  ) {
    this.requests = requests;
    this.state = state;
    this.relayed = relayed;
  }
}

const MAX_PROGRESS_TEXT = 64 * 1024;
const ENVELOPE_BYTES = 1024;
const NOTHING_WRITTEN: readonly ContentBlock[] = [];

/** Whether a permitted call was started: what was spent on a call that was not is given back. */
export interface ProgressSender {
  started: boolean;
}

export class RunContext implements CallContext {
  /** The tool's clock stops while the client is asked. */
  readonly #clock: Pausable;
  readonly pipeline: Pipeline;
  readonly request: CallRequest;
  readonly grant: PermitGrant;
  readonly round: InputRound;
  #dead = false;
  #written: ContentBlock[] | undefined = undefined;
  #writtenBytes = 0;
  truncated = false;
  readonly #progress: ProgressSender;

  constructor(
    pipeline: Pipeline,
    request: CallRequest,
    grant: PermitGrant,
    round: InputRound,
    clock: Pausable,
    progress: ProgressSender,
  ) {
    this.#progress = progress;
    this.pipeline = pipeline;
    this.request = request;
    this.grant = grant;
    this.round = round;
    this.#clock = clock;
  }

  /** The request was certainly not sent to the upstream server, so the call has had no effect. */
  neverStarted(): void {
    this.#progress.started = false;
  }

  get isDead(): boolean {
    return this.#dead;
  }

  get signal(): AbortSignal {
    return this.request.cancel.signal;
  }
  get traceId(): string {
    return this.request.span.traceId;
  }
  get app(): string {
    return this.grant.principal.app;
  }
  get agent(): string {
    return this.grant.principal.agent;
  }
  get meta(): JsonObject {
    const forwarded = intentForwarded(this.grant.intent);
    return isJsonObject(forwarded._meta) ? forwarded._meta : {};
  }
  get clientCapabilities(): JsonObject {
    return this.request.conversation.clientCapabilities;
  }
  get state(): JsonValue | undefined {
    return this.round.state;
  }
  /** Parts written so far, in order. */
  get written(): readonly ContentBlock[] {
    return this.#written ?? NOTHING_WRITTEN;
  }

  kill(): void {
    this.#dead = true;
  }

  progress(progress: number, total?: number, message?: string): void {
    this.relayProgress(defined({ progress, total, message }));
  }

  /** Progress as an upstream server sent it, under the caller's token. */
  relayProgress(params: JsonObject): void {
    const progressToken = this.#progressToken();
    if (this.#dead || progressToken === undefined) return;
    const shown = this.#concealed(params);
    if (shown) this.request.conversation.notify("notifications/progress", { ...shown, progressToken });
  }

  /** A step whose number is redacted is dropped: progress without a number is not valid. */
  #concealed(params: JsonObject): JsonObject | undefined {
    const { obligations } = this.grant;
    if (!mustBuffer(obligations)) return params;
    const shown: JsonObject = {};
    for (const [key, value] of Object.entries(params)) {
      shown[key] = typeof value === "string" ? applyToText(obligations, value) : applyToValue(obligations, value);
    }
    const hidden = (["progress", "total"] as const).some((key) => typeof shown[key] !== typeof params[key]);
    return hidden ? undefined : shown;
  }

  onStop(listener: (fault: Fault) => void): void {
    this.request.cancel.onAbort(listener);
  }

  get wantsProgress(): boolean {
    return this.#progressToken() !== undefined;
  }

  log(level: LogLevel, data: JsonValue, logger?: string): void {
    const { obligations } = this.grant;
    const { conversation } = this.request;
    const threshold = conversation.logLevel;
    if (this.#dead || threshold === undefined || MCP_LOG_LEVELS.indexOf(level) < MCP_LOG_LEVELS.indexOf(threshold))
      return;
    conversation.notify("notifications/message", {
      level,
      ...defined({ logger: logger === undefined ? undefined : applyToText(obligations, logger) }),
      data: applyToValue(obligations, data),
    });
  }

  async write(part: string | ContentBlock): Promise<void> {
    this.#assertAlive();
    if (!isPart(part)) {
      const { action } = this.grant.target;
      throw new Fault("OutputInvalid", `\`${action}\` wrote a part that is neither text nor a content block`);
    }
    const block: ContentBlock = typeof part === "string" ? { type: "text", text: part } : part;
    // As JSON, since that is what the limit is about; room is left for what stands around the parts.
    const limit = Math.max(0, this.pipeline.limits.maxResultBytes - ENVELOPE_BYTES);
    const size = jsonBytes(block.type === "text" ? block.text : (block as unknown as JsonValue));
    if (this.#writtenBytes + size > limit) {
      this.truncated = true;
      if (block.type === "text") this.#keep({ ...block, text: fitting(block.text, limit - this.#writtenBytes) });
      this.#writtenBytes = limit;
      return;
    }
    this.#writtenBytes += size;
    this.#keep(block);
    // A client that asked for progress gets the output as it comes; output with obligations is sent with the result.
    if (block.type === "text" && this.#progressToken() !== undefined && !mustBuffer(this.grant.obligations)) {
      this.progress(this.#writtenBytes, undefined, cutText(block.text, MAX_PROGRESS_TEXT));
      await this.request.conversation.drained();
    }
  }

  #progressToken(): string | number | undefined {
    const meta = this.request.params._meta;
    const token = isJsonObject(meta) ? meta.progressToken : undefined;
    return typeof token === "string" || typeof token === "number" ? token : undefined;
  }

  #keep(block: ContentBlock): void {
    this.#written ??= [];
    const last = this.#written.at(-1);
    if (block.type === "text" && last?.type === "text" && !block.annotations && !last.annotations) {
      last.text += block.text;
    } else {
      this.#written.push({ ...block });
    }
  }

  call(tool: string, args: JsonObject): Promise<ToolResult> {
    this.#assertAlive();
    return this.pipeline.callTool(this.request, tool, args);
  }

  ask(requests: Readonly<Record<string, InputRequest>>): Promise<Record<string, JsonObject>> {
    return this.#ask(requests, undefined);
  }

  askWith(requests: Readonly<Record<string, InputRequest>>, state: JsonValue): Promise<Record<string, JsonObject>> {
    return this.#ask(requests, state);
  }

  async elicit(key: string, params: JsonObject): Promise<JsonObject> {
    return (await this.#ask({ [key]: { method: "elicitation/create", params } }, undefined))[key] as JsonObject;
  }
  async sample(key: string, params: JsonObject): Promise<JsonObject> {
    return (await this.#ask({ [key]: { method: "sampling/createMessage", params } }, undefined))[key] as JsonObject;
  }
  async listRoots(key = "roots"): Promise<JsonObject> {
    return (await this.#ask({ [key]: { method: "roots/list", params: {} } }, undefined))[key] as JsonObject;
  }

  async #ask(
    requests: Readonly<Record<string, InputRequest>>,
    state: JsonValue | undefined,
  ): Promise<Record<string, JsonObject>> {
    this.#assertAlive();
    const { conversation } = this.request;
    const { responses } = this.round;
    for (const request of Object.values(requests)) this.assertCapable(request.method);
    const missing = Object.keys(requests).filter((key) => responses[key] === undefined);
    if (missing.length > 0 && !conversation.request) {
      const asked = Object.fromEntries(missing.map((key) => [key, requests[key] as InputRequest]));
      throw new InputRequired(await this.permitted(asked, true), state);
    }
    await Promise.all(
      missing.map(async (key) => {
        const { method, params } = requests[key] as InputRequest;
        responses[key] = await this.#requestClient(method, params ?? {}, true);
      }),
    );
    return Object.fromEntries(Object.keys(requests).map((key) => [key, responses[key] as JsonObject]));
  }

  /** Delivers one request of an upstream server to a client that answers while the call runs. */
  relayRequest(method: InputRequest["method"], params: JsonObject): Promise<JsonObject> {
    this.#assertAlive();
    return this.#requestClient(method, params, false);
  }

  async #requestClient(method: InputRequest["method"], params: JsonObject, isInProcess: boolean): Promise<JsonObject> {
    this.#clock.pause();
    try {
      return await this.sendThrough(method, params, isInProcess, (shown, cancel) => {
        this.assertCapable(method);
        const { conversation } = this.request;
        return (conversation.request as NonNullable<Conversation["request"]>)(method, shown, cancel);
      });
    } finally {
      this.#clock.resume();
    }
  }

  /** A request of the server that runs this call: decided, recorded, and then delivered as `deliver` does it. */
  sendThrough(
    method: InputRequest["method"],
    params: JsonObject,
    isInProcess: boolean,
    deliver: ClientRequest["deliver"],
    parent?: Cancel,
  ): Promise<JsonObject> {
    const [outer, grant] = [this.request, this.grant];
    return this.pipeline.sendClientRequest({ outer, grant, method, params, isInProcess, deliver, parent });
  }

  /** Requests for a client that is asked by ending the exchange: all of them decided, in the form it may see. */
  async permitted(
    requests: Readonly<Record<string, InputRequest>>,
    isInProcess: boolean,
  ): Promise<Record<string, InputRequest>> {
    const shown: Record<string, InputRequest> = {};
    for (const [key, { method, params }] of Object.entries(requests)) {
      await this.sendThrough(method, params ?? {}, isInProcess, async (marked) => {
        this.assertCapable(method);
        shown[key] = { method, params: marked } as InputRequest;
        return {};
      });
    }
    return shown;
  }

  assertCapable(method: InputRequest["method"]): void {
    const name = method === "elicitation/create" ? "elicitation" : method === "roots/list" ? "roots" : "sampling";
    if (this.clientCapabilities[name] !== undefined) return;
    throw new Fault("MissingCapability", `this call needs a client that declares \`${name}\``, {
      extra: { requiredCapabilities: { [name]: {} } },
    });
  }

  #assertAlive(): void {
    if (this.#dead) throw this.request.cancel.fault ?? new Fault("Cancelled", "this call is over");
  }
}

function isPart(part: string | ContentBlock): boolean {
  if (typeof part === "string") return true;
  return isJsonObject(part) && typeof part.type === "string" && (part.type !== "text" || typeof part.text === "string");
}

/** The members that have a value. */
function defined(members: Readonly<Record<string, JsonValue | undefined>>): JsonObject {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as JsonObject;
}

function jsonBytes(value: JsonValue): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/** As much of the text as fits into so many bytes of JSON. Escapes make it longer, so one cut may not be enough. */
function fitting(text: string, maxBytes: number): string {
  let shown = cutText(text, maxBytes);
  for (let bytes = jsonBytes(shown); bytes > maxBytes && shown !== ""; bytes = jsonBytes(shown)) {
    shown = cutText(shown, Math.floor((Buffer.byteLength(shown) * maxBytes) / bytes) - 1);
  }
  return shown;
}

export const MCP_LOG_LEVELS: readonly LogLevel[] = [
  "debug",
  "info",
  "notice",
  "warning",
  "error",
  "critical",
  "alert",
  "emergency",
];

export function isLogLevel(value: JsonValue | undefined): value is LogLevel {
  return (MCP_LOG_LEVELS as readonly unknown[]).includes(value);
}
