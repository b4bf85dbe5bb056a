// One POST to a collector. It says what became of the data; it throws never.

import { Agent as HttpAgent, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";

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
        response.on("end", () => done(judge(response.statusCode ?? 0, response.headers["retry-after"], text)));
      });
      request.on("socket", (socket) => socket.unref());
      request.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

function judge(status: number, retryAfter: string | undefined, text: string): OtlpResponse {
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
