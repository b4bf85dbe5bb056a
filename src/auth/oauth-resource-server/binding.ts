// Is a token bound to a key? One that is counts only with a proof made by that key; one that is bound in a way that
// cannot be checked here counts for nobody.

import type { JWTPayload } from "jose";
import { isJsonObject } from "../../mcp/index.js";
import { TokenRefused } from "./verify.js";

const THUMBPRINT = /^[A-Za-z0-9_-]{43}$/;

/** The thumbprint of the key (RFC 7638, SHA-256); undefined for a token that is anybody's who holds it. */
export function boundTo({ cnf }: Readonly<JWTPayload>): string | undefined {
  if (cnf === undefined) return undefined;
  const methods = isJsonObject(cnf) ? Object.keys(cnf) : [];
  const thumbprint = isJsonObject(cnf) ? cnf.jkt : undefined;
  // Each method that is named has to hold, so one that is not known here spoils the rest.
  if (methods.length === 1 && typeof thumbprint === "string" && THUMBPRINT.test(thumbprint)) return thumbprint;
  throw new TokenRefused("the token is bound by a `cnf` that cannot be checked here; `jkt` alone can");
}
