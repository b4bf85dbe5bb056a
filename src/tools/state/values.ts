// Runtime values: small, with a version to compare and a time to live. Where they are kept is somebody else's
// business; what arrives here can only reach one application's.

import type { JsonValue } from "../../mcp/index.js";

export interface RuntimeValue {
  readonly value: JsonValue;
  readonly version: number;
  /** Milliseconds since 1970. */
  readonly expiresAt?: number;
}

export interface RuntimeValues {
  get(key: string): Promise<RuntimeValue | undefined>;
  /** Undefined when `version` is given and is no longer the stored one (0: there is none). */
  set(
    key: string,
    value: JsonValue,
    options?: { readonly ttlMs?: number; readonly version?: number },
  ): Promise<RuntimeValue | undefined>;
  /** False when there is none, or its version is another. */
  remove(key: string, version?: number): Promise<boolean>;
}

/** The same, for whichever application is named: what the store offers. */
interface ValuesByApplication {
  get(app: string, key: string): Promise<RuntimeValue | undefined>;
  set(
    app: string,
    key: string,
    value: JsonValue,
    options?: { readonly ttlMs?: number; readonly version?: number },
  ): Promise<RuntimeValue | undefined>;
  remove(app: string, key: string, version?: number): Promise<boolean>;
}

export function valuesOf(store: ValuesByApplication, app: string): RuntimeValues {
  return {
    get: (key) => store.get(app, key),
    set: (key, value, options) => store.set(app, key, value, options),
    remove: (key, version) => store.remove(app, key, version),
  };
}
