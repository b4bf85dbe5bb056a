// Replicas share the key that encrypts request states and the messages between them; the store keeps it encrypted. After a
// rotation the one before it opens what it encrypted for a while, so that nothing that is under way is refused.

import type { SharedKeys } from "../gateway/index.js";
import { type Sealer, type Storage, StorageError } from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";
import { newSharedKey, PREVIOUS_SHARED_KEY, sealedAs, SHARED_KEY } from "./store/sealer.js";

const TRIES = 3;
/** Whatever callers send, the store is read no more often than this. */
const REFRESH_MS = 250;

export async function followSharedKeys(
  storage: Storage,
  sealer: Sealer,
  telemetry: Telemetry,
): Promise<SharedKeys & { close(): void }> {
  const keys = new FollowedKeys(storage, sealer);
  await keys.read();
  const reload = (): void => {
    keys
      .read()
      .catch((error: Error) =>
        telemetry.log.error("the key of request states cannot be read", { problem: error.message }),
      );
  };
  keys.close = await storage.feed.watch({
    change: ({ topic, app }) => {
      if (topic === "token" && app === SHARED_KEY.app) reload();
    },
    resync: reload,
  });
  return keys;
}

class FollowedKeys implements SharedKeys {
  readonly #storage: Storage;
  readonly #sealer: Sealer;
  #current: Buffer = Buffer.alloc(0);
  #previous: { readonly key: Buffer; readonly until: number } | undefined;
  #refreshing: Promise<void> | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  close: () => void = () => {};

  constructor(storage: Storage, sealer: Sealer) {
    this.#storage = storage;
    this.#sealer = sealer;
  }

  get current(): Buffer {
    return this.#current;
  }

  get previous(): Buffer | undefined {
    const { key, until } = this.#previous ?? { until: 0 };
    return performance.now() < until ? key : undefined;
  }

  refresh(): Promise<void> {
    this.#refreshing ??= new Promise<void>((resolve) => {
      setTimeout(resolve, Math.max(0, this.#readAt + REFRESH_MS - performance.now()));
    })
      .then(() => this.read())
      .finally(() => {
        this.#refreshing = undefined;
      });
    return this.#refreshing;
  }

  async read(): Promise<void> {
    this.#readAt = performance.now();
    const current = await this.#readCurrent();
    this.#previous = await this.#readPrevious();
    this.#current = current;
  }

  /** It is replaced when it is encrypted with an older sealing key: who had that key and a copy of the store knows it. */
  async #readCurrent(): Promise<Buffer> {
    const as = sealedAs(SHARED_KEY);
    for (let i = 0; i < TRIES; i++) {
      const stored = await this.#storage.tokens.get(SHARED_KEY);
      if (stored && !this.#sealer.isOld(stored.sealed)) {
        return Buffer.from(this.#sealer.open(as, stored.sealed), "base64");
      }
      // Throws when none of the keys opens it: this gateway was given another key than the one before, or its replicas.
      if (stored) this.#sealer.open(as, stored.sealed);
      const fresh = newSharedKey();
      const put = await this.#storage.tokens.put(SHARED_KEY, this.#sealer.seal(as, fresh), stored?.version ?? 0);
      if (put) return Buffer.from(fresh, "base64");
    }
    throw new StorageError("STORAGE_UNAVAILABLE", "the store keeps no key for this gateway; is it writable?");
  }

  async #readPrevious(): Promise<{ readonly key: Buffer; readonly until: number } | undefined> {
    const stored = await this.#storage.tokens.get(PREVIOUS_SHARED_KEY);
    if (!stored || this.#sealer.isOld(stored.sealed)) return undefined;
    const text = this.#sealer.open(sealedAs(PREVIOUS_SHARED_KEY), stored.sealed);
    const { key, until } = JSON.parse(text) as { key: string; until: number };
    const leftMs = until - (await this.#storage.now());
    return { key: Buffer.from(key, "base64"), until: performance.now() + leftMs };
  }
}
