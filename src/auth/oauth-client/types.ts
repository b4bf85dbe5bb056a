// The words of the client side.

import type { JsonObject } from "../../mcp/index.js";

export type ClientAuthMethod = "none" | "client_secret_basic" | "client_secret_post" | "private_key_jwt";

/** Who we are towards an authorization server, in the order in which it is tried. */
export interface ClientIdentity {
  /** Registered beforehand. */
  readonly clientId?: string;
  readonly clientSecret?: string;
  /** Proves who we are instead of a secret (`private_key_jwt`), and is preferred to it. */
  readonly privateKey?: { readonly pem: string; readonly algorithm: string; readonly keyId?: string };
  /** The issuer that registration is with; it is used at no other, whatever a server's metadata says. */
  readonly issuer?: string;
  /** The issuer's token endpoint, where that is at another origin than the issuer itself. */
  readonly tokenEndpoint?: string;
  /** A document that describes us: where the server can read it, its address is our client id. */
  readonly metadataUrl?: string;
  /** Shown to people who log in. */
  readonly name?: string;
}

/** A registration with one issuer. INVARIANT: never sent to another. */
export interface RegisteredClient {
  readonly id: string;
  readonly secret?: string;
  readonly method: ClientAuthMethod;
  /** The address answers come back to that this registration knows. */
  readonly redirectUri?: string;
}

/** What is kept. All of it is secret. */
export interface OAuthGrant {
  readonly issuer: string;
  readonly resource: string;
  readonly client: RegisteredClient;
  readonly accessToken?: string;
  /** Milliseconds since 1970. */
  readonly expiresAt?: number;
  readonly refreshToken?: string;
  /** The private key that the tokens are bound to, where they are. */
  readonly proofKey?: JsonObject;
  /** What was asked for, all steps together. */
  readonly requested: readonly string[];
  /** One process refreshes the token until then; the others wait. */
  readonly renewingUntil?: number;
}

export interface KeptGrant {
  readonly grant: OAuthGrant;
  readonly version: number;
}

/** Where grants are kept. */
export interface GrantStore {
  load(): Promise<KeptGrant | undefined>;
  /** Puts it when the version is still this one (0: there is none yet); undefined when it is not. */
  save(grant: OAuthGrant, version: number): Promise<KeptGrant | undefined>;
}

export function memoryGrants(first?: KeptGrant): GrantStore {
  let kept = first;
  return {
    load: async () => kept,
    save: async (grant, version) => {
      if ((kept?.version ?? 0) !== version) return undefined;
      kept = { grant, version: version + 1 };
      return kept;
    },
  };
}
