// One-time sign-in for the operator's browser. The credential never enters the browser: a short-lived code is exchanged
// for a cookie and a page key. Both are needed, because a cookie is sent to every port of a host and local storage is
// not: a server on another port receives only half.

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";

export const SIGN_IN_CODE_MS = 60_000;
const SESSION_MS = 15 * 60_000;
const PAGE_KEY_HEADER = "portcullis-page-key";
/** The only paths that a signed-in browser may use. */
const SESSION_PATH = "/v1/approvals";

export interface NonceUse {
  /** True for the first use of an id, once. */
  first(id: string, ttlMs: number): Promise<boolean>;
}

export interface SignedIn {
  readonly setCookie: string;
  readonly pageKey: string;
}

/** Codes and sessions are signed with the operator's token: workers share them, and a new token ends all of them. */
export class SignIn {
  readonly #token: () => string;
  readonly #nonces: NonceUse;
  readonly #port: () => number;

  constructor(token: () => string, nonces: NonceUse, port: () => number) {
    this.#token = token;
    this.#nonces = nonces;
    this.#port = port;
  }

  issue(): { code: string; expiresAt: number } {
    const expiresAt = Date.now() + SIGN_IN_CODE_MS;
    return { code: this.#signed("code", expiresAt), expiresAt };
  }

  /** What the browser keeps, or undefined when the code is wrong, expired or used. */
  async redeem(code: string): Promise<SignedIn | undefined> {
    const nonce = this.#verified("code", code);
    if (nonce === undefined || !(await this.#nonces.first(`admin sign-in ${nonce}`, 2 * SIGN_IN_CODE_MS))) return;
    const session = this.#signed("session", Date.now() + SESSION_MS);
    const attributes = `Path=${SESSION_PATH}; Max-Age=${SESSION_MS / 1_000}; HttpOnly; SameSite=Strict`;
    return { setCookie: `${this.#cookieName()}=${session}; ${attributes}`, pageKey: this.#mac("page", session) };
  }

  accepts(request: IncomingMessage): boolean {
    if (!(request.url ?? "").startsWith(SESSION_PATH)) return false;
    const prefix = `${this.#cookieName()}=`;
    const cookie = (request.headers.cookie ?? "").split("; ").find((each) => each.startsWith(prefix));
    const session = cookie?.slice(prefix.length);
    const pageKey = request.headers[PAGE_KEY_HEADER];
    if (session === undefined || typeof pageKey !== "string") return false;
    return this.#verified("session", session) !== undefined && isEqual(pageKey, this.#mac("page", session));
  }

  #cookieName(): string {
    return `portcullis-${this.#port()}`;
  }

  #signed(purpose: string, expiresAt: number): string {
    const text = `${expiresAt}.${randomBytes(16).toString("base64url")}`;
    return `${text}.${this.#mac(purpose, text)}`;
  }

  /** The nonce of a text that was signed for this purpose and is still good. */
  #verified(purpose: string, signed: string): string | undefined {
    const [expiresAt = "", nonce = "", mac = "", more] = signed.slice(0, 256).split(".", 4);
    if (more !== undefined || !isEqual(mac, this.#mac(purpose, `${expiresAt}.${nonce}`))) return undefined;
    return Number(expiresAt) > Date.now() ? nonce : undefined;
  }

  #mac(purpose: string, text: string): string {
    const bound = JSON.stringify(["portcullis admin", purpose, this.#port(), text]);
    return createHmac("sha256", this.#token()).update(bound).digest("base64url");
  }
}

function isEqual(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
