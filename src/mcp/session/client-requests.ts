// What a server of the handshake revisions asks a client. Every question belongs to exactly one call in flight and
// is answered by the caller of that call, or it is rejected.

import { Fault, isJsonObject, type JsonObject, type Request, type RequestId, wireError } from "../index.js";
import type { PendingRequest } from "./pending.js";
import type { AnswerRequest, QuestionMethod, SessionContext } from "./types.js";

const METHODS: ReadonlySet<string> = new Set(["sampling/createMessage", "elicitation/create", "roots/list"]);
const NO_TRACE = "0".repeat(32);

interface Open {
  owner: PendingRequest | undefined;
  readonly stop: AbortController;
}

export class ClientRequests {
  readonly #around: SessionContext;
  readonly #send: (text: string) => void;
  readonly #answer: AnswerRequest | undefined;
  readonly #open = new Map<RequestId, Open>();

  /** With `answer` every request is answered by it, whichever call it belongs to. */
  constructor(around: SessionContext, send: (text: string) => void, answer: AnswerRequest | undefined) {
    this.#around = around;
    this.#send = send;
    this.#answer = answer;
  }

  /** `owner` is undefined when it cannot be told which call the server is asking for. */
  ask(request: Request, owner: PendingRequest | undefined): void {
    if (request.method === "ping")
      return this.#send(`{"jsonrpc":"2.0","id":${JSON.stringify(request.id)},"result":{}}`);
    const refusal = this.#refusal(request, owner);
    if (refusal !== undefined) {
      this.#around.counts.refusedMessages++;
      return this.#sendError(request.id, refusal);
    }
    void this.#pass(request, owner);
  }

  /** The server takes its question back, and gets no answer. */
  withdraw(id: unknown): void {
    if (typeof id !== "string" && typeof id !== "number") return;
    const open = this.#open.get(id);
    this.#open.delete(id);
    open?.stop.abort();
  }

  /** The connection has ended. */
  close(): void {
    for (const id of this.#open.keys()) this.withdraw(id);
  }

  /**
   * The call is over: answers to what was asked for it are not awaited. Another call of the same client takes them over:
   * the server may have asked for that one.
   */
  endOf(owner: PendingRequest, other: PendingRequest | undefined): void {
    for (const open of this.#open.values()) {
      if (open.owner !== owner) continue;
      if (other === undefined) open.stop.abort();
      else {
        open.owner = other;
        other.pause();
      }
    }
  }

  #refusal(request: Request, owner: PendingRequest | undefined): Fault | undefined {
    const { method, id } = request;
    if (!METHODS.has(method)) return new Fault("MethodNotFound", `\`${method}\` is not a question a client answers`);
    if (this.#open.has(id)) return new Fault("InvalidRequest", `id ${JSON.stringify(id)} is in use`);
    const { maxQuestions } = this.#around.limits;
    if (this.#answer !== undefined) {
      return this.#open.size < maxQuestions ? undefined : new Fault("TooMany", `more than ${maxQuestions} at once`);
    }
    if (owner === undefined || owner.over) {
      return new Fault("InvalidRequest", `\`${method}\` belongs to no single call in flight`);
    }
    if (owner.call.hooks?.ask === undefined) {
      return new Fault("MethodNotFound", `the caller of this call does not answer \`${method}\``);
    }
    if (owner.questions >= maxQuestions || !owner.counted()) {
      return new Fault("TooMany", `more than ${maxQuestions} questions at once for one call`);
    }
    return undefined;
  }

  async #pass(request: Request, owner: PendingRequest | undefined): Promise<void> {
    const { questionMs } = this.#around.timeouts;
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), questionMs);
    const open: Open = { owner, stop };
    this.#open.set(request.id, open);
    owner?.pause();
    const isOpen = (): boolean => this.#open.get(request.id) === open;
    try {
      const stopped = new Promise<never>((_, reject) => {
        const late = new Fault("Cancelled", `not answered within ${questionMs} ms, or the call has ended`);
        stop.signal.addEventListener("abort", () => reject(late));
      });
      const result = await this.#answered(request, open, stopped);
      if (isOpen()) this.#sendResult(request.id, result);
    } catch (error) {
      const fault = error instanceof Fault ? error : new Fault("InternalError", "the question could not be answered");
      if (isOpen()) this.#sendError(request.id, fault);
    } finally {
      clearTimeout(timer);
      if (isOpen()) this.#open.delete(request.id);
      open.owner?.resume();
    }
  }

  /** Asked again for the call that took the question over, where the first one can no longer answer. */
  async #answered(request: Request, open: Open, stopped: Promise<never>): Promise<JsonObject> {
    const params = isJsonObject(request.params) ? request.params : {};
    for (;;) {
      const { owner, stop } = open;
      const ask = this.#answer ?? (owner?.call.hooks?.ask as AnswerRequest);
      try {
        return await Promise.race([ask(request.method as QuestionMethod, params, stop.signal), stopped]);
      } catch (error) {
        if (stop.signal.aborted || open.owner === owner) throw error;
      }
    }
  }

  #sendResult(id: RequestId, result: JsonObject): void {
    this.#send(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result)}}`);
  }

  /** A server learns the code and one sentence; our own error object is for our callers. */
  #sendError(id: RequestId, fault: Fault): void {
    const { code } = wireError(fault, "legacy", NO_TRACE);
    const given = fault.detail.extra?.wire;
    const error = isJsonObject(given) ? given : { code, message: fault.message };
    this.#send(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${JSON.stringify(error)}}`);
  }
}
