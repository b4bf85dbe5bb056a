// What a handler holds while it runs. When the call is over, or was stopped, the context is dead: nothing it says
// any more reaches anyone.

import { applyToText, cutText, mustBuffer, type Obligation, type Principal } from "../gate/index.js";
import { Fault, type JsonObject, type JsonValue } from "../protocol/index.js";
import type { CallContext, ContentBlock, InputRequest, LogLevel, ToolResult } from "../tool/index.js";
import type { Cancel } from "./cancel.js";
import type { Conversation } from "./types.js";

/** Thrown through a handler that asks in a revision without server requests; becomes an `input_required` answer. */
export class InputRequired {
  readonly requests: Readonly<Record<string, InputRequest>>;
  readonly state: JsonValue | undefined;
  constructor(requests: Readonly<Record<string, InputRequest>>, state: JsonValue | undefined) {
    this.requests = requests;
    this.state = state;
  }
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const MAX_PROGRESS_TEXT = 64 * 1024;

export interface RunContextParts {
  principal: Principal;
  traceId: string;
  meta: JsonObject;
  progressToken: string | number | undefined;
  conversation: Conversation;
  cancel: Cancel;
  obligations: readonly Obligation[];
  maxResultBytes: number;
  /** Answers that are already here (multi-round-trip). */
  responses: Record<string, JsonObject>;
  state: JsonValue | undefined;
  callTool: (tool: string, args: JsonObject) => Promise<ToolResult>;
  /** The tool's clock stands still while a person thinks. */
  pauseClock: () => void;
  resumeClock: () => void;
}

export class RunContext implements CallContext {
  readonly #parts: RunContextParts;
  #dead = false;
  #parted: ContentBlock[] = [];
  #partedBytes = 0;
  truncated = false;

  constructor(parts: RunContextParts) {
    this.#parts = parts;
  }

  get signal(): AbortSignal {
    return this.#parts.cancel.signal;
  }
  get traceId(): string {
    return this.#parts.traceId;
  }
  get app(): string {
    return this.#parts.principal.app;
  }
  get agent(): string {
    return this.#parts.principal.agent;
  }
  get meta(): JsonObject {
    return this.#parts.meta;
  }
  get clientCapabilities(): JsonObject {
    return this.#parts.conversation.clientCapabilities;
  }
  get state(): JsonValue | undefined {
    return this.#parts.state;
  }
  /** Parts written so far, in order. */
  get written(): readonly ContentBlock[] {
    return this.#parted;
  }

  kill(): void {
    this.#dead = true;
  }

  progress(progress: number, total?: number, message?: string): void {
    const { progressToken, conversation, obligations } = this.#parts;
    if (this.#dead || progressToken === undefined) return;
    conversation.notify("notifications/progress", {
      progressToken,
      progress,
      ...(total === undefined ? {} : { total }),
      ...(message === undefined ? {} : { message: applyToText(obligations, message) }),
    });
  }

  log(level: LogLevel, data: JsonValue, logger?: string): void {
    const { conversation, obligations } = this.#parts;
    const threshold = conversation.logLevel;
    if (this.#dead || threshold === undefined || LEVELS.indexOf(level) < LEVELS.indexOf(threshold)) return;
    const shown = mustBuffer(obligations) ? applyToText(obligations, JSON.stringify(data)) : data;
    conversation.notify("notifications/message", { level, ...(logger === undefined ? {} : { logger }), data: shown });
  }

  async write(part: string | ContentBlock): Promise<void> {
    this.#assertAlive();
    const block: ContentBlock = typeof part === "string" ? { type: "text", text: part } : part;
    const { maxResultBytes, obligations, progressToken, conversation } = this.#parts;
    const size = Buffer.byteLength(block.type === "text" ? block.text : JSON.stringify(block));
    if (this.#partedBytes + size > maxResultBytes) {
      this.truncated = true;
      if (block.type === "text")
        this.#keep({ ...block, text: cutText(block.text, maxResultBytes - this.#partedBytes) });
      this.#partedBytes = maxResultBytes;
      return;
    }
    this.#partedBytes += size;
    this.#keep(block);
    // A reader that asked for progress sees the output as it comes; with an obligation on it, it is held back.
    if (progressToken !== undefined && block.type === "text" && !mustBuffer(obligations)) {
      this.progress(this.#partedBytes, undefined, cutText(block.text, MAX_PROGRESS_TEXT));
      await conversation.drained();
    }
  }

  #keep(block: ContentBlock): void {
    const last = this.#parted.at(-1);
    if (block.type === "text" && last?.type === "text" && !block.annotations && !last.annotations) {
      last.text += block.text;
    } else {
      this.#parted.push({ ...block });
    }
  }

  call(tool: string, args: JsonObject): Promise<ToolResult> {
    this.#assertAlive();
    return this.#parts.callTool(tool, args);
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
    const { conversation, responses, cancel } = this.#parts;
    for (const request of Object.values(requests)) this.#assertCapable(request.method);
    const missing = Object.keys(requests).filter((key) => responses[key] === undefined);
    if (missing.length > 0 && !conversation.request) {
      throw new InputRequired(Object.fromEntries(missing.map((key) => [key, requests[key] as InputRequest])), state);
    }
    this.#parts.pauseClock();
    try {
      await Promise.all(
        missing.map(async (key) => {
          const { method, params } = requests[key] as InputRequest;
          responses[key] = await (conversation.request as NonNullable<Conversation["request"]>)(
            method,
            params ?? {},
            cancel,
          );
        }),
      );
    } finally {
      this.#parts.resumeClock();
    }
    return Object.fromEntries(Object.keys(requests).map((key) => [key, responses[key] as JsonObject]));
  }

  #assertCapable(method: InputRequest["method"]): void {
    const name = method === "elicitation/create" ? "elicitation" : method === "roots/list" ? "roots" : "sampling";
    if (this.clientCapabilities[name] !== undefined) return;
    throw new Fault("MissingCapability", `this call needs a client that declares \`${name}\``, {
      extra: { requiredCapabilities: { [name]: {} } },
    });
  }

  #assertAlive(): void {
    if (this.#dead) throw this.#parts.cancel.fault ?? new Fault("Cancelled", "this call is over");
  }
}
