// The answer to one HTTP request, as it comes in.

import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import { ByteStore, decodeUtf8 } from "./bytes.js";
import { TransportError, type TransportErrorKind } from "./error.js";
import type { ResolvedLimits } from "./limits.js";
import { SseReader } from "./sse.js";
import type { ClientEvents, SendOptions, Sent } from "./types.js";

const ERROR_KIND: Readonly<Record<string, TransportErrorKind>> = {
  UND_ERR_CONNECT_TIMEOUT: "timeout",
  UND_ERR_HEADERS_TIMEOUT: "timeout",
  UND_ERR_SOCKET: "closed",
  ECONNRESET: "closed",
  EPIPE: "closed",
  ECONNREFUSED: "unreachable",
  ENOTFOUND: "unreachable",
  EHOSTUNREACH: "unreachable",
  ENETUNREACH: "unreachable",
  ENOENT: "unreachable",
  EAI_AGAIN: "unreachable",
};

export class HttpAnswer implements Sent, Dispatcher.DispatchHandler {
  status = 0;
  headers: IncomingHttpHeaders = {};
  body: string | undefined;
  /** When status and headers are there. */
  readonly head: Promise<void>;
  readonly done: Promise<void>;
  readonly #url: URL;
  readonly #events: ClientEvents;
  readonly #limits: ResolvedLimits;
  readonly #signal: AbortSignal | undefined;
  /** A plain body is a message like any other, unless the sender reads it from here. */
  readonly #isBodyMessage: boolean;
  readonly #finished: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  #reader: SseReader | undefined;
  #store = new ByteStore();
  #bodyTimer: NodeJS.Timeout | undefined;
  #over = false;
  #resolveHead!: () => void;
  #rejectHead!: (error: unknown) => void;
  #resolveDone!: () => void;
  #rejectDone!: (error: unknown) => void;

  constructor(
    url: URL,
    events: ClientEvents,
    limits: ResolvedLimits,
    { signal, onEvent }: SendOptions,
    finished: () => void,
  ) {
    this.#url = url;
    this.#events = events;
    this.#limits = limits;
    this.#signal = signal;
    this.#isBodyMessage = onEvent === undefined;
    this.#finished = finished;
    this.head = new Promise((resolve, reject) => {
      this.#resolveHead = resolve;
      this.#rejectHead = reject;
    });
    this.done = new Promise((resolve, reject) => {
      this.#resolveDone = resolve;
      this.#rejectDone = reject;
    });
    // Who does not look at `done` must not bring the process down.
    this.done.catch(() => {});
    signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  get lastEventId(): string | undefined {
    return this.#reader?.lastEventId;
  }

  get retryMs(): number | undefined {
    return this.#reader?.retryMs;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new TransportError("closed", "the request was given up before it was sent"));
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return;
    this.status = status;
    this.headers = headers;
    const encoding = headers["content-encoding"];
    if (encoding !== undefined && encoding !== "identity") {
      controller.abort(
        new TransportError("protocol", `${this.#url.href} answered in ${encoding}, which was not asked for`),
      );
      return;
    }
    if (isType(headers, "text/event-stream")) {
      this.#reader = new SseReader(this.#limits.maxMessageBytes, {
        event: (data, id) => this.#events.message(data, id),
      });
    } else {
      const { bodyMs } = this.#limits;
      const late = () =>
        new TransportError("timeout", `${this.#url.href} did not finish its answer within ${bodyMs} ms`);
      this.#bodyTimer = setTimeout(() => controller.abort(late()), bodyMs);
    }
    this.#resolveHead();
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return;
    if (this.#reader !== undefined) {
      this.#reader.push(chunk);
    } else if (this.#store.length + chunk.length <= this.#limits.maxMessageBytes) {
      this.#store.append(chunk);
    } else {
      const cap = this.#limits.maxMessageBytes;
      controller.abort(new TransportError("too-large", `${this.#url.href} answered more than the cap of ${cap} bytes`));
    }
  }

  onResponseEnd(): void {
    if (this.#over) return;
    if (this.#reader === undefined && this.#store.length > 0) {
      this.body = decodeUtf8(this.#store.take());
      if (this.body === undefined) {
        this.#fail(new TransportError("not-utf8", `${this.#url.href} answered something that is not valid UTF-8`));
        return;
      }
      if (this.#isBodyMessage && isType(this.headers, "application/json")) this.#events.message(this.body);
    }
    this.#finish();
    this.#resolveDone();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (!this.#over) this.#fail(this.#explain(error));
  }

  readonly #onAbort = (): void => {
    const reason: unknown = this.#signal?.reason;
    this.#fail(reason);
    this.#controller?.abort(reason instanceof Error ? reason : new Error(String(reason)));
  };

  #fail(error: unknown): void {
    if (this.#over) return;
    this.#finish();
    this.#rejectHead(error);
    this.#rejectDone(error);
  }

  #finish(): void {
    this.#over = true;
    clearTimeout(this.#bodyTimer);
    this.#store.clear();
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#finished();
  }

  #explain(error: Error & { code?: string }): Error {
    if (error instanceof TransportError || error.code === "UND_ERR_INVALID_ARG") return error;
    const kind = ERROR_KIND[error.code ?? ""] ?? "closed";
    return new TransportError(kind, `${this.#url.href}: ${error.message || error.code}`, error);
  }
}

function isType(headers: IncomingHttpHeaders, type: string): boolean {
  const given = headers["content-type"];
  return given !== undefined && (given.split(";", 1)[0] as string).trim().toLowerCase() === type;
}
