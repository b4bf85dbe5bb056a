// From what a request carries to who is calling: the Authorization header, or the request's own `auth` field where
// there are no headers.

import { Fault, isJsonObject, type JsonValue, storeUnavailable } from "../../mcp/index.js";
import type { Peer } from "../../mcp/transports/index.js";
import type { Principal } from "../../policy/index.js";
import type { Identify } from "../index.js";
import type { ApiKeyCache, Credential } from "./cache.js";

const BEARER = /^Bearer ([\x21-\x7e]{1,512})$/i;
const MAX_TOKEN_CHARS = 512;

export const HOW_TO_GET_A_KEY: string[] = [
  "Send an API key as `Authorization: Bearer …`, or as `auth` where there are no headers",
  "The operator creates a key with `portcullis key add APP --name NAME --allow 'invoke(*)' list`",
];

/** One answer for every invalid credential: it does not reveal which keys exist or existed. */
export function unknownCaller(): Fault {
  return new Fault("AuthenticationError", "the credential is missing, wrong, expired or revoked", {
    suggestions: HOW_TO_GET_A_KEY,
  });
}

/** Names what a caller did not send, which is not a fact about keys. */
export function noCredential(): Fault {
  return new Fault("AuthenticationError", "authentication required: the request has no credential", {
    suggestions: HOW_TO_GET_A_KEY,
  });
}

export function keyIdentity(ring: ApiKeyCache): Identify {
  return (peer, auth) => {
    if (peer.headers?.authorization === undefined && auth === undefined) throw noCredential();
    const token = bearerToken(peer, auth);
    if (token === undefined) throw unknownCaller();
    if (!ring.isFresh) throw storeUnavailable();
    const found = ring.find(token);
    return found instanceof Promise ? found.then(principalOf) : principalOf(found);
  };
}

function principalOf(credential: Credential | undefined): Principal {
  if (!credential?.principal) throw unknownCaller();
  return credential.principal;
}

/** The token, where exactly one is given. */
export function bearerToken(peer: Pick<Peer, "headers">, auth: JsonValue | undefined): string | undefined {
  const header = peer.headers?.authorization;
  if (header === undefined) return auth === undefined ? undefined : fieldToken(auth);
  const [, token] = BEARER.exec(header) ?? [];
  // Two different credentials are rejected: which of them is meant is ambiguous.
  return auth === undefined || fieldToken(auth) === token ? token : undefined;
}

function fieldToken(auth: JsonValue): string | undefined {
  if (!isJsonObject(auth) || auth.type !== "bearer" || typeof auth.token !== "string") return undefined;
  return auth.token.length <= MAX_TOKEN_CHARS ? auth.token : undefined;
}
