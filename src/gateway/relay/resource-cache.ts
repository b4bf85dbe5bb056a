// Caches resources for as long as their server (or the operator, for servers that set no lifetime) allows. Every read is
// decided and recorded as before; only the request to the server is saved.

import { type ByteBudget, Charge, type JsonObject, parsedBytes, valuesIn } from "../../mcp/index.js";
import type { Principal } from "../../policy/index.js";
import type { UpstreamAnswer } from "../../upstream/index.js";

type Result = UpstreamAnswer & { readonly kind: "result" };

interface Kept {
  readonly answer: Result;
  readonly until: number;
}

const MAX_ENTRIES = 1_000;
const MAX_BYTES = 16 * 1024 * 1024;
const MAX_ONE_BYTES = 1024 * 1024;
const MAX_TTL_MS = 60 * 60_000;

export class ResourceCache {
  readonly #kept = new Map<string, Kept>();
  readonly #defaultTtlMs: number;
  readonly #now: () => number;
  readonly #charge: Charge;

  /** `defaultTtlMs`: for results that do not say themselves how long they hold. */
  constructor(defaultTtlMs = 0, now: () => number = () => performance.now(), budget?: ByteBudget) {
    this.#charge = new Charge(budget);
    this.#defaultTtlMs = defaultTtlMs;
    this.#now = now;
  }

  get(uri: string, principal: Principal): Result | undefined {
    for (const key of [keyOf(uri, undefined), keyOf(uri, principal)]) {
      const kept = this.#kept.get(key);
      if (!kept) continue;
      if (kept.until > this.#now()) return kept.answer;
      this.#drop(key, kept);
    }
    return undefined;
  }

  put(uri: string, principal: Principal, answer: Result): void {
    const ttlMs = Math.min(ttlOf(answer.value) ?? this.#defaultTtlMs, MAX_TTL_MS);
    if (ttlMs <= 0 || answer.text.length > MAX_ONE_BYTES) return;
    // Unless the server marks it as public, it is for the caller that read it.
    const key = keyOf(uri, answer.value.cacheScope === "public" ? undefined : principal);
    const before = this.#kept.get(key);
    if (before) this.#drop(key, before);
    const more = costOf(answer);
    const fits = (): boolean => this.#kept.size < MAX_ENTRIES && this.#charge.bytes + more <= MAX_BYTES;
    for (const [oldest, kept] of this.#kept) {
      if (fits()) break;
      this.#drop(oldest, kept);
    }
    if (this.#charge.set(this.#charge.bytes + more)) this.#kept.set(key, { answer, until: this.#now() + ttlMs });
  }

  /** The resource has changed. */
  forget(uri: string): void {
    const prefix = `${JSON.stringify(uri)} `;
    for (const [key, kept] of this.#kept) if (key.startsWith(prefix)) this.#drop(key, kept);
  }

  clear(): void {
    this.#kept.clear();
    this.#charge.set(0);
  }

  #drop(key: string, kept: Kept): void {
    this.#kept.delete(key);
    this.#charge.set(this.#charge.bytes - costOf(kept.answer));
  }
}

/** The text, and what was parsed of it. */
function costOf({ text, values = valuesIn(text) }: Result): number {
  return text.length + parsedBytes(text.length, values);
}

function ttlOf({ ttlMs }: JsonObject): number | undefined {
  return typeof ttlMs === "number" && Number.isFinite(ttlMs) ? ttlMs : undefined;
}

function keyOf(uri: string, principal: Principal | undefined): string {
  const whose = principal ? JSON.stringify([principal.agent, principal.user ?? "", principal.credential ?? ""]) : "";
  return `${JSON.stringify(uri)} ${whose}`;
}
