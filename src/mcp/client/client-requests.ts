// Requests from the server, as the handshake revisions have them. Each is answered once; the server may take one
// back; more than the limit at once are refused rather than queued.

import { ERRORS, Fault, type JsonObject, type Request, type RequestId, wireError } from "../index.js";
import { answerInput, type InputHandlers } from "./inputs.js";

export interface QuestionOptions {
  handlers: InputHandlers;
  maxAtOnce: number;
  inputMs: number;
  send: (text: string) => void;
}

export class ServerRequests {
  readonly #options: QuestionOptions;
  readonly #open = new Map<RequestId, AbortController>();
  constructor(options: QuestionOptions) {
    this.#options = options;
  }

  ask(message: Request): void {
    const { id, method } = message;
    if (method === "ping") return this.#reply({ jsonrpc: "2.0", id, result: {} });
    if (this.#open.has(id)) return this.#refuse(id, new Fault("InvalidRequest", "this id is already being answered"));
    if (this.#open.size >= this.#options.maxAtOnce) {
      return this.#refuse(id, new Fault("TooMany", `${this.#open.size} requests are already being answered`));
    }
    const stop = new AbortController();
    const timer = setTimeout(
      () => stop.abort(new Fault("ToolTimeout", `no answer within ${this.#options.inputMs} ms`)),
      this.#options.inputMs,
    );
    this.#open.set(id, stop);
    const over = (then: () => void): void => {
      clearTimeout(timer);
      if (!this.#open.delete(id)) return;
      then();
    };
    // A question that was taken back or took too long is over, whatever its handler still does.
    stop.signal.addEventListener("abort", () => {
      const reason: unknown = stop.signal.reason;
      over(() => reason instanceof Fault && this.#refuse(id, reason));
    });
    answerInput(this.#options.handlers, method, message.params ?? {}, stop.signal).then(
      (result) => over(() => this.#reply({ jsonrpc: "2.0", id, result })),
      (error) => over(() => this.#refuse(id, error)),
    );
  }

  /** The server no longer wants to know. */
  withdraw(id: unknown): void {
    this.#open.get(id as RequestId)?.abort();
  }

  close(): void {
    for (const stop of this.#open.values()) stop.abort();
  }

  #refuse(id: RequestId, error: unknown): void {
    const fault = error instanceof Fault ? error : new Fault("InternalError", "the client's handler failed");
    const { code, message } = wireError(fault, "legacy", "");
    this.#reply({ jsonrpc: "2.0", id, error: { code, message } });
  }

  #reply(message: {
    jsonrpc: "2.0";
    id: RequestId;
    result?: JsonObject;
    error?: { code: number; message: string };
  }): void {
    let text: string;
    try {
      text = JSON.stringify(message);
    } catch {
      const { legacy, message: said } = ERRORS.InternalError;
      text = JSON.stringify({
        jsonrpc: "2.0",
        id: message.id,
        error: { code: legacy, message: `${said}: unreadable answer` },
      });
    }
    this.#options.send(text);
  }
}
