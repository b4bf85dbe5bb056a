// Local access: callers on this machine without a credential. The flag is kept in memory and the feed ends it, so a
// permitted call does not read the store.

import type { Principal } from "../policy/index.js";
import { type Identify, LOCAL_CREDENTIAL, localIdentity, unknownCaller } from "../auth/index.js";
import { storeUnavailable } from "../mcp/index.js";
import type { AccessState, Storage } from "../storage/index.js";
import type { Peer } from "../mcp/transports/index.js";

export interface LocalAccessOptions {
  readonly storage: Pick<Storage, "access" | "feed">;
  /** The application that local callers belong to. */
  readonly app: string;
  /** Called once, when it ends: what local callers still listen to has to end too. */
  readonly onEnded: () => void;
  /** False when the store has been unreachable for so long that the end may have been missed. */
  readonly isFresh: () => boolean;
}

/** `LocalAccess` identifies local callers until a key or an issuer is configured by any process. It never comes back. */
export class LocalAccess {
  readonly #options: LocalAccessOptions;
  readonly #local: Identify;
  #isOn = true;
  /** The state in the store has to be read before the next caller: changes may have been missed. */
  #mustRead = false;
  #stop: (() => void) | undefined;

  private constructor(options: LocalAccessOptions) {
    this.#options = options;
    this.#local = localIdentity({ app: options.app, credential: LOCAL_CREDENTIAL });
  }

  static async open(options: LocalAccessOptions): Promise<LocalAccess> {
    const access = new LocalAccess(options);
    access.#stop = await options.storage.feed.watch({
      change: ({ topic, action }) => {
        // Every key ends it, so nothing has to be read first.
        if (topic === "key" && action === "put") access.#end();
        if (topic === "access") access.#readSoon();
      },
      resync: () => access.#readSoon(),
    });
    // What was configured before the feed was watched.
    access.#mustRead = true;
    await access.#read();
    return access;
  }

  identify(peer: Peer): Principal | Promise<Principal> {
    const principal = this.#local(peer) as Principal;
    if (this.#isOn && !this.#options.isFresh()) throw storeUnavailable();
    if (this.#isOn && this.#mustRead) return this.#read().then(() => this.#granted(principal), unreadable);
    return this.#granted(principal);
  }

  close(): void {
    this.#stop?.();
  }

  #granted(principal: Principal): Principal {
    if (this.#isOn) return principal;
    throw unknownCaller();
  }

  #readSoon(): void {
    this.#mustRead = true;
    // A failed read is repeated by the next caller.
    this.#read().catch(() => {});
  }

  async #read(): Promise<void> {
    const state = await this.#options.storage.access.get();
    if (isGranted(state)) this.#mustRead = false;
    else this.#end();
  }

  #end(): void {
    if (!this.#isOn) return;
    this.#isOn = false;
    this.#options.onEnded();
  }
}

export function isGranted({ localAccess, hasCredentials }: AccessState): boolean {
  return localAccess && !hasCredentials;
}

function unreadable(error: unknown): never {
  throw storeUnavailable(error);
}
