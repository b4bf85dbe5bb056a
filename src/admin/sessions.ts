// BrowserSessions of browsers. A short-lived code, or a credential, is exchanged for a cookie and a page key. Both are needed,
// because a cookie is sent to every port of a host and local storage is not: a server on another port receives only half.
// The page key is also what another site's form cannot send. BrowserSessions are kept in the store, so that workers and replicas
// share them and a session can be ended everywhere.

import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { JsonObject } from "../mcp/index.js";
import type { AdminCaller } from "./caller.js";

const SIGN_IN_CODE_MS = 60_000;
const IDLE_MS = 60 * 60_000;
const ABSOLUTE_MS = 12 * 60 * 60_000;
/** A session in use is kept alive this often. */
const TOUCH_MS = 60_000;
const PAGE_KEY_HEADER = "portcullis-page-key";
const COOKIE_PATH = "/v1/";
const MAX_SESSIONS_OF_A_NAME = 1_000;

/** Remembers small documents until they expire. */
export interface SessionStore {
  get(id: string): Promise<JsonObject | undefined>;
  put(id: string, document: JsonObject, ttlMs: number): Promise<void>;
  remove(id: string): Promise<void>;
  list(): Promise<readonly (readonly [id: string, document: JsonObject])[]>;
}

export interface NonceUse {
  /** True for the first use of an id, once. */
  first(id: string, ttlMs: number): Promise<boolean>;
}

export interface SessionOptions {
  /** The operator's token: a new one ends what was opened with the one before. */
  readonly token: () => string;
  readonly nonces: NonceUse;
  readonly store: SessionStore;
  readonly port: () => number;
  readonly isKeyActive: (id: string) => Promise<boolean>;
  readonly idleMs?: number;
}

interface KeptSession {
  readonly name: string;
  readonly groups: readonly string[];
  readonly roles: AdminCaller["roles"];
  readonly app?: string;
  readonly caller?: string;
  readonly key?: string;
  readonly page: string;
  readonly token: string;
  readonly until: number;
  readonly seen: number;
}

export interface SignedIn {
  readonly setCookie: string;
  readonly pageKey: string;
  readonly caller: AdminCaller;
}

export class BrowserSessions {
  readonly #options: SessionOptions;
  readonly idleMs: number;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.idleMs = options.idleMs ?? IDLE_MS;
  }

  /** A code for a one-time link, signed with the operator's token: workers share it. */
  issue(ttlMs = SIGN_IN_CODE_MS): { code: string; expiresAt: number } {
    const expiresAt = Date.now() + ttlMs;
    const text = `${expiresAt}.${randomBytes(16).toString("base64url")}`;
    return { code: `${text}.${this.#mac(text)}`, expiresAt };
  }

  /** True for a code that was issued here, is not expired and was not used. */
  async redeem(code: string): Promise<boolean> {
    const [expiresAt = "", nonce = "", mac = "", more] = code.slice(0, 256).split(".", 4);
    if (more !== undefined || !isEqual(mac, this.#mac(`${expiresAt}.${nonce}`))) return false;
    const leftMs = Number(expiresAt) - Date.now();
    return leftMs > 0 && this.#options.nonces.first(`admin sign-in ${nonce}`, leftMs + SIGN_IN_CODE_MS);
  }

  async open(caller: AdminCaller): Promise<SignedIn> {
    const secret = randomBytes(32).toString("base64url");
    const pageKey = randomBytes(32).toString("base64url");
    const id = digest(secret);
    const until = Date.now() + ABSOLUTE_MS;
    const { name, groups, roles, app, caller: agent, key } = caller;
    const kept: KeptSession = {
      name,
      groups,
      roles,
      ...(app === undefined ? {} : { app }),
      ...(agent === undefined ? {} : { caller: agent }),
      ...(key === undefined ? {} : { key }),
      page: digest(pageKey),
      token: digest(this.#options.token()),
      until,
      seen: Date.now(),
    };
    await this.#options.store.put(id, kept as unknown as JsonObject, this.idleMs);
    return {
      setCookie: `${this.#cookie()}=${secret}; ${ATTRIBUTES}; Max-Age=${ABSOLUTE_MS / 1_000}`,
      pageKey,
      caller: { ...caller, session: { id, until } },
    };
  }

  /** Whose session the cookie and the page key of a request are; undefined for none that is valid. */
  async find(request: IncomingMessage): Promise<AdminCaller | undefined> {
    const prefix = `${this.#cookie()}=`;
    const cookie = (request.headers.cookie ?? "").split("; ").find((each) => each.startsWith(prefix));
    const pageKey = request.headers[PAGE_KEY_HEADER];
    if (cookie === undefined || typeof pageKey !== "string") return undefined;
    const id = digest(cookie.slice(prefix.length, prefix.length + 256));
    const kept = (await this.#options.store.get(id)) as unknown as KeptSession | undefined;
    if (!kept || !isEqual(digest(pageKey), kept.page)) return undefined;
    return this.#checked(id, kept);
  }

  /** Whether the session of a caller that was let in before is still valid, for an answer that has no end. */
  async isValid({ session, key }: AdminCaller): Promise<boolean> {
    if (session === undefined) return key === undefined || (await this.#options.isKeyActive(key));
    const kept = (await this.#options.store.get(session.id)) as unknown as KeptSession | undefined;
    return kept !== undefined && (await this.#stands(kept));
  }

  /** Ends the session, or every session of its name; returns how many were ended. */
  async end({ name, app, session }: AdminCaller, everywhere: boolean): Promise<number> {
    const { store } = this.#options;
    if (!everywhere) {
      if (session === undefined) return 0;
      await store.remove(session.id);
      return 1;
    }
    const theirs = (await store.list())
      .filter(([, kept]) => kept.name === name && kept.app === app)
      .slice(0, MAX_SESSIONS_OF_A_NAME);
    for (const [id] of theirs) await store.remove(id);
    return theirs.length;
  }

  /** The header that removes the cookie. */
  get clearCookie(): string {
    return `${this.#cookie()}=; ${ATTRIBUTES}; Max-Age=0`;
  }

  async #checked(id: string, kept: KeptSession): Promise<AdminCaller | undefined> {
    if (!(await this.#stands(kept))) {
      await this.#options.store.remove(id);
      return undefined;
    }
    const now = Date.now();
    if (now - kept.seen > Math.min(TOUCH_MS, this.idleMs / 4)) {
      const ttlMs = Math.min(this.idleMs, kept.until - now);
      await this.#options.store.put(id, { ...kept, seen: now } as unknown as JsonObject, ttlMs);
    }
    const { name, groups, roles, app, caller, key, until } = kept;
    return {
      name,
      groups,
      roles,
      ...(app === undefined ? {} : { app }),
      ...(caller === undefined ? {} : { caller }),
      ...(key === undefined ? {} : { key }),
      session: { id, until },
    };
  }

  async #stands({ until, seen, token, key }: KeptSession): Promise<boolean> {
    const now = Date.now();
    if (until <= now || now - seen > this.idleMs || !isEqual(token, digest(this.#options.token()))) return false;
    return key === undefined || this.#options.isKeyActive(key);
  }

  #cookie(): string {
    return `portcullis-${this.#options.port()}`;
  }

  #mac(text: string): string {
    const bound = JSON.stringify(["portcullis admin", "code", this.#options.port(), text]);
    return createHmac("sha256", this.#options.token()).update(bound).digest("base64url");
  }
}

const ATTRIBUTES = `Path=${COOKIE_PATH}; HttpOnly; SameSite=Strict`;

function digest(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}

function isEqual(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
