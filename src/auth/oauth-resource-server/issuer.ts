// The keys of one issuer, fetched when first needed and kept. A key that is not known yet makes us look once more, but
// strangers cannot make us ask the issuer more than now and then.

import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTVerifyGetKey } from "jose";
import { steadyNow } from "../../mcp/index.js";
import {
  discoverServer,
  type Fetch,
  fetchKeys,
  OAuthError,
  type ServerMetadata,
  safeUrl,
} from "../oauth-client/index.js";

export interface IssuerKeysOptions {
  readonly issuer: string;
  readonly jwksUri?: string | undefined;
  readonly fetch: Fetch;
  readonly now?: () => number;
  /** Keys older than this are fetched again. */
  readonly maxAgeMs?: number;
  /** Between two fetches, whatever tokens say. */
  readonly pauseMs?: number;
  /** How long old keys go on counting while new ones cannot be had. */
  readonly maxStaleMs?: number;
}

type KeySet = ReturnType<typeof createLocalJWKSet>;

const DEFAULTS = { maxAgeMs: 10 * 60_000, pauseMs: 15_000, maxStaleMs: 60 * 60_000 };

const MAX_UNKNOWN = 32;

export class IssuerKeys {
  readonly #options: IssuerKeysOptions & typeof DEFAULTS;
  readonly #now: () => number;
  #keys: { readonly set: KeySet; readonly at: number } | undefined;
  #metadata: ServerMetadata | undefined;
  #fetching: Promise<void> | undefined;
  #triedAt = Number.NEGATIVE_INFINITY;
  /** Tokens that wait for a key that was not known. */
  #unknown = 0;

  constructor(options: IssuerKeysOptions) {
    this.#options = { ...DEFAULTS, ...options };
    this.#now = options.now ?? steadyNow;
  }

  /** For jose: the key a token names, within what this issuer published. */
  readonly keyFor: JWTVerifyGetKey = async (header, token) => {
    const set = await this.#current();
    try {
      return await set(header, token);
    } catch (error) {
      // Anybody can name a key that is not known: few wait for new keys at a time, and the others are refused at once.
      if (!(error instanceof errors.JWKSNoMatchingKey) || this.#unknown >= MAX_UNKNOWN) throw error;
      this.#unknown++;
      try {
        if (!(await this.#refetched())) throw error;
        return await (await this.#current())(header, token);
      } finally {
        this.#unknown--;
      }
    }
  };

  async metadata(): Promise<ServerMetadata> {
    if (!this.#metadata) await this.#current();
    this.#metadata ??= await this.#discover();
    return this.#metadata;
  }

  async #current(): Promise<KeySet> {
    const age = this.#keys ? this.#now() - this.#keys.at : Number.POSITIVE_INFINITY;
    if (age > this.#options.maxAgeMs) {
      await this.#refetched().catch((error) => {
        if (age > this.#options.maxStaleMs) throw error;
      });
    }
    if (this.#keys && this.#now() - this.#keys.at <= this.#options.maxStaleMs) return this.#keys.set;
    throw new OAuthError("OAUTH_METADATA", `the keys of ${this.#options.issuer} cannot be had at the moment`);
  }

  /** True when the keys are newer than before. Concurrent callers wait for the same fetch. */
  async #refetched(): Promise<boolean> {
    if (!this.#fetching) {
      if (this.#now() - this.#triedAt < this.#options.pauseMs) return false;
      this.#triedAt = this.#now();
      this.#fetching = this.#fetch().finally(() => {
        this.#fetching = undefined;
      });
    }
    await this.#fetching;
    return true;
  }

  async #fetch(): Promise<void> {
    const { jwksUri, issuer, fetch } = this.#options;
    if (jwksUri === undefined) this.#metadata = await this.#discover();
    const url = jwksUri === undefined ? this.#metadata?.jwksUri : safeUrl(jwksUri, "`jwksUri`");
    if (!url) throw new OAuthError("OAUTH_METADATA", `the metadata of ${issuer} has no jwks_uri`);
    const keys = await fetchKeys(fetch, url);
    this.#keys = { set: createLocalJWKSet({ keys } as unknown as JSONWebKeySet), at: this.#now() };
  }

  async #discover(): Promise<ServerMetadata> {
    const { issuer, fetch } = this.#options;
    const found = await discoverServer(fetch, issuer);
    if (found) return found;
    throw new OAuthError("OAUTH_METADATA", `${issuer} publishes no metadata; check the address, or set jwksUri`);
  }
}
