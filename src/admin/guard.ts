// Which requests the admin port accepts. A page in a browser is rejected under a name that was rebound to this address and
// from another origin. What changes or shows something needs a credential, or the session of a browser that was signed in.

import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { Fault } from "../mcp/index.js";

const LOOPBACK = ["localhost", "127.0.0.1", "::1"];
const HOST = /^(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::\d{1,5})?$/;
const BEARER = /^Bearer ([\x21-\x7e]{1,512})$/i;

interface GuardOptions {
  readonly listenHost: string;
  readonly allowedHosts: readonly string[];
  /** The operator's credential as it is now: the file may be replaced while the port is open. */
  readonly token: () => string;
  /** Reads metrics and nothing else: what a Prometheus server is given. */
  readonly metricsToken: () => string;
  /** Wrong credentials a minute before they are answered with 429. */
  readonly maxFailuresPerMinute: number;
}

/** What the request gives as its credential; "" for none. */
export function bearerOf(request: IncomingMessage): string {
  return BEARER.exec(request.headers.authorization ?? "")?.[1] ?? "";
}

export class Guard {
  readonly #hosts: ReadonlySet<string>;
  readonly #token: () => string;
  readonly #metricsToken: () => string;
  readonly #perFailureMs: number;
  /** GCRA over all who fail: when the next failure would conform. */
  #nextFailureAt = 0;

  constructor(options: GuardOptions) {
    this.#hosts = new Set([...LOOPBACK, options.listenHost, ...options.allowedHosts].map((host) => host.toLowerCase()));
    this.#token = options.token;
    this.#metricsToken = options.metricsToken;
    this.#perFailureMs = 60_000 / options.maxFailuresPerMinute;
  }

  /** Throws when the request does not come from where it may come from. A link may lead to a page from anywhere. */
  checkSource(request: IncomingMessage, isPage = false): void {
    const { host, origin, "sec-fetch-site": site, "sec-fetch-mode": mode } = request.headers;
    if (host === undefined || !this.#isOurs(host.toLowerCase(), request.socket.localAddress)) {
      throw new Fault("AuthorizationError", "the Host header does not name this admin port", {
        rule: "admin.host",
        field: "Host",
        suggestions: ["Use the address that it listens on, or add the name to the admin port's allowed hosts"],
      });
    }
    const isSameOrigin = origin === undefined || origin === `http://${host}` || origin === `https://${host}`;
    const isSameSite = site === undefined || site === "same-origin" || site === "none";
    const isLinked = isPage && mode === "navigate" && origin === undefined;
    if (!isLinked && !(isSameOrigin && isSameSite)) {
      throw new Fault("AuthorizationError", "a page of another origin may not use the admin port", {
        rule: "admin.origin",
        field: "Origin",
      });
    }
  }

  /** Throws unless the request carries the metrics token or the operator's credential. */
  checkMetricsCredential(request: IncomingMessage): void {
    if (!timingSafeEqual(sha256(bearerOf(request)), sha256(this.#metricsToken()))) this.checkCredential(request);
  }

  /**
   * Throws unless the request carries the operator's credential. The right one is accepted however many wrong ones came
   * before: guessing cannot lock the operator out.
   */
  checkCredential(request: IncomingMessage): void {
    this.checkToken(bearerOf(request));
  }

  /** The same for a credential that came in another way. */
  checkToken(given: string): void {
    if (timingSafeEqual(sha256(given), sha256(this.#token()))) return;
    throw this.failure(
      "the operator's credential is missing or wrong",
      "Send `Authorization: Bearer` with the token of the operator's token file",
    );
  }

  /** The error for one more wrong credential, of which a minute has a limited number. */
  failure(reason: string, suggestion: string): Fault {
    const now = performance.now();
    const next = Math.max(this.#nextFailureAt, now) + this.#perFailureMs;
    if (next - now > 60_000 + this.#perFailureMs / 2) {
      return new Fault("RateLimited", "too many wrong credentials", {
        rule: "admin.credential",
        extra: { retry_after_ms: Math.ceil(this.#perFailureMs) },
      });
    }
    this.#nextFailureAt = next;
    return new Fault("AuthenticationError", reason, { rule: "admin.credential", suggestions: [suggestion] });
  }

  /** A name from the list, or the very address that was connected to: an address cannot be rebound. */
  #isOurs(header: string, localAddress: string | undefined): boolean {
    const match = HOST.exec(header);
    const name = match?.[1] ?? match?.[2];
    if (name === undefined) return false;
    if (this.#hosts.has(name) || this.#hosts.has(header)) return true;
    return isIP(name) !== 0 && name === localAddress?.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "");
  }
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
