// One POST to a collector. Returns the delivery status. Never throws.

import { Agent as HttpAgent, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import type { Logger } from "./log.js";
import type { Metrics } from "./metrics.js";
import { metricsBody, type OtlpResource, type SpanRecord, spansBody } from "./otlp-json.js";
import type { OtlpSettings } from "./types.js";

export type OtlpResponse =
  | { readonly kind: "taken"; readonly rejected: number }
  /** It may work later. */
  | { readonly kind: "away"; readonly reason: string; readonly afterMs?: number }
  /** It will not work however often it is sent. */
  | { readonly kind: "refused"; readonly reason: string };

const RETRYABLE = new Set([429, 502, 503, 504]);
const MAX_ANSWER_BYTES = 64 * 1024;

export class Collector {
  readonly #url: URL;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #timeoutMs: number;
  readonly #agent: HttpAgent | HttpsAgent;

  constructor(url: URL, headers: Readonly<Record<string, string>>, timeoutMs: number) {
    this.#url = url;
    this.#headers = headers;
    this.#timeoutMs = timeoutMs;
    const options = { keepAlive: true, maxSockets: 1, timeout: timeoutMs };
    this.#agent = url.protocol === "https:" ? new HttpsAgent(options) : new HttpAgent(options);
  }

  async post(body: string, timeoutMs: number = this.#timeoutMs): Promise<OtlpResponse> {
    try {
      return await this.#exchange(body, timeoutMs);
    } catch (error) {
      // A header that HTTP does not allow, for instance: it will not become allowed.
      return { kind: "refused", reason: (error as Error).message };
    }
  }

  #exchange(body: string, timeoutMs: number): Promise<OtlpResponse> {
    return new Promise((resolve) => {
      const request = (this.#url.protocol === "https:" ? httpsRequest : httpRequest)(this.#url, {
        method: "POST",
        agent: this.#agent,
        headers: {
          ...this.#headers,
          "content-type": "application/json",
          "content-length": String(Buffer.byteLength(body)),
        },
      });
      // Counts the whole exchange, where a socket's own timeout counts silence alone.
      const timer = setTimeout(() => request.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
      timer.unref();
      const done = (answer: OtlpResponse): void => {
        clearTimeout(timer);
        resolve(answer);
      };
      request.on("error", (error) => done({ kind: "away", reason: error.message }));
      request.on("response", (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => {
          text += chunk;
          if (text.length > MAX_ANSWER_BYTES) request.destroy(new Error(`an answer over ${MAX_ANSWER_BYTES} bytes`));
        });
        response.on("error", (error) => done({ kind: "away", reason: error.message }));
        response.on("end", () => done(statusOf(response.statusCode ?? 0, response.headers["retry-after"], text)));
      });
      request.on("socket", (socket) => socket.unref());
      request.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

function statusOf(status: number, retryAfter: string | undefined, text: string): OtlpResponse {
  if (status >= 200 && status < 300) return { kind: "taken", rejected: rejectedItems(text) };
  const reason = `status ${status}`;
  if (!RETRYABLE.has(status)) return { kind: "refused", reason };
  const seconds = retryAfter !== undefined && /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) : undefined;
  return seconds === undefined ? { kind: "away", reason } : { kind: "away", reason, afterMs: seconds * 1000 };
}

/** A partial success names how many items were rejected; it is never sent again. */
function rejectedItems(text: string): number {
  try {
    const partial = (JSON.parse(text) as { partialSuccess?: Record<string, unknown> }).partialSuccess ?? {};
    const rejected = Number(partial.rejectedSpans ?? partial.rejectedDataPoints ?? 0);
    return Number.isFinite(rejected) && rejected > 0 ? rejected : 0;
  } catch {
    return 0;
  }
}

export const DEFAULT_OTLP: OtlpSettings = {
  headers: {},
  maxQueue: 2_048,
  batchSize: 256,
  intervalMs: 5_000,
  metricsIntervalMs: 60_000,
  timeoutMs: 10_000,
  maxAttempts: 4,
  backoffMs: 1_000,
  maxBackoffMs: 30_000,
  shutdownMs: 3_000,
};

export interface OtlpTargets {
  readonly traces?: URL;
  readonly metrics?: URL;
}

export class OtlpExporter {
  readonly #settings: OtlpSettings;
  readonly #resource: OtlpResource;
  readonly #metrics: Metrics;
  readonly #log: Logger;
  readonly #traces: Collector | undefined;
  readonly #numbers: Collector | undefined;
  readonly #startedMs = Date.now();
  #queue: SpanRecord[] = [];
  #timer: NodeJS.Timeout | undefined;
  #metricsTimer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #wake: (() => void) | undefined;
  #closing = false;
  #away = false;

  constructor(targets: OtlpTargets, settings: OtlpSettings, resource: OtlpResource, metrics: Metrics, log: Logger) {
    this.#settings = settings;
    this.#resource = resource;
    this.#metrics = metrics;
    this.#log = log;
    const collector = (url: URL | undefined): Collector | undefined =>
      url && new Collector(url, settings.headers, settings.timeoutMs);
    this.#traces = collector(targets.traces);
    this.#numbers = collector(targets.metrics);
    if (this.#numbers) {
      this.#metricsTimer = setInterval(() => void this.#sendMetrics(), settings.metricsIntervalMs);
      this.#metricsTimer.unref();
    }
  }

  add(record: SpanRecord): void {
    if (this.#closing || this.#queue.length >= this.#settings.maxQueue) {
      this.#metrics.telemetryDropped.inc("traces");
      return;
    }
    this.#queue.push(record);
    if (this.#queue.length >= this.#settings.batchSize) this.#schedule(0);
    else if (this.#timer === undefined) this.#schedule(this.#settings.intervalMs);
  }

  async shutdown(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    clearTimeout(this.#timer);
    clearInterval(this.#metricsTimer);
    this.#wake?.();
    const { shutdownMs } = this.#settings;
    const deadline = performance.now() + shutdownMs;
    // Nothing else of the exporter keeps the process alive; the last batch has to.
    const stay = setTimeout(() => {}, shutdownMs);
    await Promise.race([this.#sending, sleepUntil(deadline)]);
    while (this.#queue.length > 0 && performance.now() < deadline) await this.#sendBatch(deadline);
    this.#drop(this.#queue.splice(0).length);
    if (this.#numbers && performance.now() < deadline) await this.#sendMetrics(deadline);
    clearTimeout(stay);
    this.#traces?.close();
    this.#numbers?.close();
  }

  /** The queue is emptied by one sender at a time, off the path of any call. */
  #schedule(delayMs: number): void {
    if (this.#sending || this.#closing) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#sending = this.#drain().finally(() => {
        this.#sending = undefined;
        if (this.#queue.length > 0) this.#schedule(this.#settings.intervalMs);
      });
    }, delayMs);
    this.#timer.unref();
  }

  async #drain(): Promise<void> {
    do await this.#sendBatch();
    while (this.#queue.length >= this.#settings.batchSize && !this.#closing);
  }

  async #sendBatch(deadline?: number): Promise<void> {
    const batch = this.#queue.splice(0, this.#settings.batchSize);
    if (batch.length === 0 || !this.#traces) return;
    const body = spansBody(this.#resource, batch);
    for (let attempt = 1; ; attempt++) {
      const answer = await this.#traces.post(body, this.#attemptMs(deadline));
      this.#report(answer);
      if (answer.kind === "taken") return this.#drop(answer.rejected);
      const last = attempt >= this.#settings.maxAttempts || this.#closing;
      if (answer.kind === "refused" || last) return this.#drop(batch.length);
      await this.#pause(attempt, answer.afterMs);
    }
  }

  /** Cumulative numbers: one that was lost is replaced by the next, so it is not sent again. */
  async #sendMetrics(deadline?: number): Promise<void> {
    try {
      const body = metricsBody(this.#resource, this.#metrics.families(), this.#startedMs, Date.now());
      const answer = await (this.#numbers as Collector).post(body, this.#attemptMs(deadline));
      this.#report(answer);
      if (answer.kind !== "taken") this.#metrics.telemetryDropped.inc("metrics");
    } catch (error) {
      // A figure could not be asked for; the next picture may have it.
      this.#metrics.telemetryDropped.inc("metrics");
      this.#log.warning("the metrics could not be gathered", { error });
    }
  }

  #attemptMs(deadline: number | undefined): number {
    const { timeoutMs } = this.#settings;
    return deadline === undefined ? timeoutMs : Math.max(1, Math.min(timeoutMs, deadline - performance.now()));
  }

  #pause(attempt: number, askedMs = 0): Promise<void> {
    const { backoffMs, maxBackoffMs } = this.#settings;
    const doubled = backoffMs * 2 ** (attempt - 1) * (0.5 + Math.random());
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.min(maxBackoffMs, Math.max(askedMs, doubled)));
      timer.unref();
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #drop(count: number): void {
    if (count > 0) this.#metrics.telemetryDropped.add(count, "traces");
  }

  /** One line when the collector goes and one when it is back, not one for every batch. */
  #report(answer: OtlpResponse): void {
    const away = answer.kind !== "taken";
    if (away && !this.#away) {
      this.#log.warning("the telemetry collector does not take data; what does not fit the queue is dropped", {
        reason: answer.reason,
      });
    } else if (!away && this.#away) {
      this.#log.notice("the telemetry collector takes data again");
    }
    this.#away = away;
  }
}

function sleepUntil(deadline: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, Math.max(0, deadline - performance.now())).unref();
  });
}
