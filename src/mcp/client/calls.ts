// Calling tools over the wire: headers from the tool's schema where HTTP wants them, rounds of questions, batches.
// Nothing here decides whether a call may happen.

import { ERRORS, isJsonObject, type JsonObject } from "../index.js";
import type { ToolDefinition, ToolResult } from "../server/index.js";
import type { ClientConversation, HowToAsk } from "./conversation.js";
import { McpError, ProtocolError } from "./errors.js";
import { type HeaderPlan, paramHeaders, planHeaders } from "./headers.js";
import { inRounds } from "./inputs.js";
import { CachedList, readPages } from "./lists.js";
import type { RequestOptions } from "./options.js";

export interface ToolCall {
  name: string;
  arguments?: JsonObject;
  /** The canonical text of the arguments, when that is what has to be sent. */
  argumentsText?: string;
}

interface KnownTool {
  readonly definition: ToolDefinition;
  readonly plan: HeaderPlan;
}

export class ToolCalls {
  readonly #conversation: ClientConversation;
  readonly #resultTypes: readonly string[];
  readonly #warn: (message: string) => void;
  readonly #list: CachedList;
  /** The last list seen, fresh or not: it is the best that is known about a tool's headers and definition. */
  #known = new Map<string, KnownTool>();

  constructor(conversation: ClientConversation, resultTypes: readonly string[], warn: (message: string) => void) {
    this.#conversation = conversation;
    this.#resultTypes = resultTypes;
    this.#warn = warn;
    this.#list = new CachedList(() => this.#readList());
  }

  /** Tools that can be called. One whose header declarations are wrong is left out where those headers are needed. */
  async list(fresh = false): Promise<ToolDefinition[]> {
    const tools = (await this.#list.get(fresh)) as unknown as ToolDefinition[];
    return tools.filter((tool) => this.#known.get(tool.name)?.plan.ok !== false);
  }

  changed(): void {
    this.#list.invalidate();
  }

  definition(name: string): ToolDefinition | undefined {
    return this.#known.get(name)?.definition;
  }

  /** Why a tool was left out. */
  rejection(name: string): string | undefined {
    const plan = this.#known.get(name)?.plan;
    return plan?.ok === false ? plan.reason : undefined;
  }

  async call(call: ToolCall, options: RequestOptions, start: JsonObject = {}): Promise<ToolResult> {
    const { timeouts, limits } = this.#conversation;
    const how: HowToAsk = { ...options, timeoutMs: options.timeoutMs ?? timeouts.toolMs };
    const result = await inRounds({
      method: "tools/call",
      limits,
      resultTypes: this.#resultTypes,
      mayAsk: this.#conversation.revision.resultType,
      start,
      send: (extra) => this.send(call, how, extra),
      answer: (method, params) => this.#conversation.answer(method, params, options.signal),
    });
    return result as unknown as ToolResult;
  }

  /** One round of one call. */
  async send(call: ToolCall, how: HowToAsk, extra: JsonObject): Promise<JsonObject> {
    try {
      return await this.#sendOnce(call, how, extra);
    } catch (error) {
      const mismatch = error instanceof McpError && error.wireCode === ERRORS.HeaderMismatch.modern;
      if (!mismatch || !this.#mirrors) throw error;
      // The tool's schema is not what we thought, or was never read: look again, then try once more.
      await this.#list.get(true);
      return this.#sendOnce(call, how, extra);
    }
  }

  async #sendOnce(call: ToolCall, how: HowToAsk, extra: JsonObject): Promise<JsonObject> {
    const { params, rest } = this.#frame(call, how);
    return this.#conversation.request("tools/call", { ...params, ...extra }, rest);
  }

  /** Whether parameters are mirrored into headers on this connection. */
  get #mirrors(): boolean {
    return this.#conversation.isHttp && this.#conversation.revision.era === "modern";
  }

  #frame(call: ToolCall, how: HowToAsk): { params: JsonObject; rest: HowToAsk } {
    const params: JsonObject = { name: call.name };
    const rest: HowToAsk = { ...how };
    if (call.argumentsText === undefined) params.arguments = call.arguments ?? {};
    else rest.argumentsText = call.argumentsText;
    const plan = this.#mirrors ? this.#known.get(call.name)?.plan : undefined;
    if (plan?.ok === false) {
      throw new ProtocolError("InvalidRequest", `tool \`${call.name}\` cannot be called over HTTP: ${plan.reason}`);
    }
    if (plan && plan.params.length > 0) {
      const args = call.arguments ?? (JSON.parse(call.argumentsText ?? "{}") as JsonObject);
      rest.headers = paramHeaders(plan.params, args);
    }
    return { params, rest };
  }

  /** Several calls at once; what each ended with stands at its place. */
  async batch(calls: readonly ToolCall[], options: RequestOptions): Promise<PromiseSettledResult<ToolResult>[]> {
    const { limits, revision } = this.#conversation;
    // On stdio many servers of the one revision with batches read a message a line, and a batch is none to them.
    const batches = revision.batches && this.#conversation.transport !== "stdio";
    if (!batches) return this.severally(calls, (call) => this.call(call, options));
    const settled: PromiseSettledResult<ToolResult>[] = [];
    for (const part of parts(calls, limits.maxBatch, limits.maxMessageBytes)) {
      settled.push(...(await this.#batchOnWire(part, options)));
    }
    return settled;
  }

  /** A few at a time, in order of arrival. */
  async severally(
    calls: readonly ToolCall[],
    make: (call: ToolCall) => Promise<ToolResult>,
  ): Promise<PromiseSettledResult<ToolResult>[]> {
    const settled: PromiseSettledResult<ToolResult>[] = [];
    let next = 0;
    const worker = async (): Promise<void> => {
      while (next < calls.length) {
        const at = next++;
        const [outcome] = await Promise.allSettled([make(calls[at] as ToolCall)]);
        settled[at] = outcome as PromiseSettledResult<ToolResult>;
      }
    };
    await Promise.all(Array.from({ length: Math.min(this.#conversation.limits.maxConcurrent, calls.length) }, worker));
    return settled;
  }

  async #batchOnWire(calls: readonly ToolCall[], options: RequestOptions): Promise<PromiseSettledResult<ToolResult>[]> {
    const how: HowToAsk = { ...options, timeoutMs: options.timeoutMs ?? this.#conversation.timeouts.toolMs };
    const framed = calls.map((call) => this.#frame(call, how));
    const answers = this.#conversation.batch(
      framed.map(({ params, rest }) => ({ method: "tools/call", params, how: rest })),
    );
    return Promise.allSettled(answers.map(async (answer) => (await answer) as unknown as ToolResult));
  }

  async #readList(): ReturnType<typeof readPages> {
    const { limits, timeouts } = this.#conversation;
    const list = await readPages("tools/list", "tools", limits, (params) =>
      this.#conversation.request("tools/list", params, { timeoutMs: timeouts.discoveryMs }),
    );
    const known = new Map<string, KnownTool>();
    for (const item of list.items) {
      const definition = item as unknown as ToolDefinition;
      if (
        typeof definition.name !== "string" ||
        !(isJsonObject(definition.inputSchema) || typeof definition.inputSchema === "boolean")
      ) {
        throw new ProtocolError(
          "InvalidRequest",
          "the server's answer to tools/list holds a tool without name or inputSchema",
        );
      }
      const plan: HeaderPlan = this.#mirrors ? planHeaders(definition.inputSchema) : { ok: true, params: [] };
      if (!plan.ok) this.#warn(`tool \`${definition.name}\` is left out: ${plan.reason}`);
      known.set(definition.name, { definition, plan });
    }
    this.#known = known;
    return list;
  }
}

function sizeOf(call: ToolCall): number {
  try {
    return Buffer.byteLength(call.argumentsText ?? JSON.stringify(call.arguments ?? {}));
  } catch {
    // What has no JSON form has no size either; sending it fails, with a reason, at its own place.
    return 0;
  }
}

/** Splits calls so that no batch is over the limits; a call that is too large alone fails alone. */
function* parts(calls: readonly ToolCall[], maxCalls: number, maxBytes: number): Generator<ToolCall[]> {
  const FRAME_BYTES = 512;
  let part: ToolCall[] = [];
  let bytes = 0;
  for (const call of calls) {
    const size = sizeOf(call) + call.name.length * 3 + FRAME_BYTES;
    if (part.length > 0 && (part.length >= maxCalls || bytes + size > maxBytes)) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(call);
    bytes += size;
  }
  if (part.length > 0) yield part;
}
