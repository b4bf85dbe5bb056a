// One upstream server of one application: its connections, what it offers, and when that is read again.

import { createHash } from "node:crypto";
import { type ByteBudget, Fault } from "../mcp/index.js";
import type { ClientSession, Forwards } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import type { ServerEntry } from "../storage/index.js";
import type { Catalogue, Upstream, UpstreamChange } from "../upstream/index.js";
import type { Remembered } from "./application-types.js";
import { BARE, Namespace, schemeFor } from "./relay/names.js";
import type { RelayUpstream } from "./relay/relay.js";
import type { RemoteCalls } from "./relay/remote.js";
import { ResourceCache } from "./relay/resource-cache.js";
import type { SuspendedCalls } from "./relay/suspended-calls.js";

export interface UpstreamHandleServices {
  /** What the application may keep. */
  readonly budget: ByteBudget;
  readonly remote: RemoteCalls | undefined;
  /** A connection; with a user's own credential where the server knows its users. */
  connect(server: string, entry: ServerEntry, user: string | undefined): Upstream;
  /** What of it callers may see: what an operator accepted. Undefined where nothing is known of the server yet. */
  accept(server: string, entry: ServerEntry, offered: Catalogue): Promise<Catalogue>;
  /** What was accepted before, for the time until the server has started. */
  remembered(server: string, entry: ServerEntry): Promise<Remembered | undefined>;
  offered(link: UpstreamHandle, catalogue: Catalogue): Promise<void>;
  changed(link: UpstreamHandle, change: UpstreamChange): void;
  failed(link: UpstreamHandle, error: Error): void;
}

const MAX_CONNECTIONS = 1_000;
const MAX_PROCESSES = 100;
const FIRST_RETRY_MS = 1_000;
/** To start a process that fails costs much, to connect costs little, and the store is back for every server at once. */
const LAST_RETRY_MS = { process: 60_000, connection: 2_000, store: 1_000 };

export class UpstreamHandle implements RelayUpstream {
  readonly server: string;
  readonly entry: ServerEntry;
  readonly binding: string;
  readonly namespace: Namespace;
  readonly suspended: SuspendedCalls;
  readonly isAlone: boolean;
  readonly isRegistered: boolean;
  readonly remote: RemoteCalls | undefined;
  readonly cache: ResourceCache;
  readonly forwards: Forwards;
  readonly #services: UpstreamHandleServices;
  readonly #own: Upstream;
  /** Connections of users or of clients. */
  readonly #callers = new Map<string, { readonly user: string; readonly upstream: Upstream }>();
  #stopListening: () => void;
  #retry: NodeJS.Timeout | undefined;
  #retryMs = FIRST_RETRY_MS;
  #refreshing: Promise<void> | undefined;
  #again = false;
  /** What the server offers was read from the server itself. */
  #isRead = false;
  #isRemembered = false;
  #closed = false;

  constructor(
    server: string,
    entry: ServerEntry,
    isAlone: boolean,
    suspended: SuspendedCalls,
    services: UpstreamHandleServices,
  ) {
    this.server = server;
    this.entry = entry;
    this.suspended = suspended;
    this.remote = services.remote;
    this.isAlone = isAlone;
    this.isRegistered = entry.registeredBy !== undefined;
    this.cache = new ResourceCache(entry.resourceTtlMs ?? 0, Date.now, services.budget);
    this.forwards = matcher(entry.forward ?? []);
    this.#services = services;
    // A server that stands alone keeps its own names.
    const prefix = entry.prefix ?? (isAlone ? "" : server);
    this.namespace =
      prefix === "" && isAlone ? BARE : new Namespace(prefix === "" ? "" : `${prefix}.`, schemeFor(server));
    // An approval is for the server that was shown: the same name in front of another address is another binding.
    this.binding = `server:${server}#${createHash("sha256").update(JSON.stringify(entry)).digest("hex").slice(0, 16)}`;
    const { instances } = entry;
    const count = entry.auth?.per !== "user" && typeof instances === "number" ? instances : 1;
    this.#own = pool(Array.from({ length: count }, () => services.connect(server, entry, undefined)));
    this.#stopListening = this.#own.onChange((change) => this.#onUpstreamChange(change));
  }

  upstream(principal: Principal, session?: ClientSession): Upstream {
    // The call starts the server, so what it offers is read at the same time.
    if (!this.#isRead && this.#isLazy) void this.refresh();
    const { auth, instances } = this.entry;
    const isPerUser = auth?.per === "user";
    const ofSession = instances === "per-session" ? session : undefined;
    if (!isPerUser && instances !== "per-user" && instances !== "per-session") return this.#own;
    // An agent with a user's name is not that user: names of users have no `!`.
    const user = principal.user ?? `!${principal.agent}`;
    const key = ofSession === undefined ? user : `${user}\n${ofSession.id}`;
    const known = this.#callers.get(key);
    if (known) return known.upstream;
    this.#makeRoom();
    const upstream = this.#services.connect(this.server, this.entry, isPerUser ? user : undefined);
    this.#callers.set(key, { user, upstream });
    ofSession?.onEnd(() => void this.#end(key, upstream));
    return upstream;
  }

  #makeRoom(): void {
    const max = this.entry.command === undefined ? MAX_CONNECTIONS : MAX_PROCESSES;
    if (this.#callers.size < max) return;
    const [key, idle] = [...this.#callers].find(([, { upstream }]) => upstream.health().inFlight === 0) ?? [];
    // Never the application's own: it may reach more than this caller.
    if (key === undefined || idle === undefined) {
      throw new Fault("TooMany", `${max} callers are calling server \`${this.server}\` at once; try again later`);
    }
    void this.#end(key, idle.upstream);
  }

  async #end(key: string, upstream: Upstream): Promise<void> {
    if (this.#callers.get(key)?.upstream === upstream) this.#callers.delete(key);
    await upstream.close();
  }

  /** How many connections or processes there are. */
  get instances(): number {
    const { instances } = this.entry;
    return this.#callers.size + (typeof instances === "number" ? instances : 1);
  }

  health(): ReturnType<Upstream["health"]> {
    return this.#own.health();
  }

  watch(uri: string): Promise<() => Promise<void>> {
    return this.#own.watch(uri);
  }

  /** Its process is started by the first call that needs it. */
  get #isLazy(): boolean {
    return this.entry.command !== undefined && this.entry.start !== "eager";
  }

  /** Resolves when something is known of the server, or it is known to be unreachable. */
  async open(): Promise<void> {
    const remembered = await this.#offerRemembered();
    if (!remembered) return this.refresh();
    if (!this.#isLazy || !remembered.isComplete) void this.refresh();
  }

  /** Something about the server was changed in the store. One that is not running is not started for that. */
  async reread(): Promise<void> {
    const isStopped = this.#isLazy && this.#own.state === "idle";
    if (isStopped && (await this.#offerRemembered())?.isComplete) return;
    await this.refresh();
  }

  /** Reads what the server offers; tries again later when it cannot be read. */
  refresh(): Promise<void> {
    if (this.#refreshing) {
      this.#again = true;
      return this.#refreshing;
    }
    this.#refreshing = this.#read().finally(() => {
      this.#refreshing = undefined;
      if (!this.#again || this.#closed) return;
      this.#again = false;
      void this.refresh();
    });
    return this.#refreshing;
  }

  /** This user's credential is another one now, or gone. */
  async forget(user: string): Promise<void> {
    const own = [...this.#callers].filter(([, each]) => each.user === user);
    await Promise.all(own.map(([key, { upstream }]) => this.#end(key, upstream)));
  }

  /** Any user's credential may be another one now. */
  async forgetAll(): Promise<void> {
    await Promise.all([...this.#callers].map(([key, { upstream }]) => this.#end(key, upstream)));
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#stopListening();
    await Promise.all([this.#own.close(), this.forgetAll()]);
  }

  /** Undefined when nothing of it was accepted before. */
  async #offerRemembered(): Promise<Remembered | undefined> {
    const remembered = await this.#services.remembered(this.server, this.entry);
    if (!remembered || this.#closed) return undefined;
    this.#isRead = false;
    this.#isRemembered = true;
    await this.#services.offered(this, remembered.catalogue);
    return remembered;
  }

  async #read(): Promise<void> {
    clearTimeout(this.#retry);
    let last = this.entry.command === undefined ? LAST_RETRY_MS.connection : LAST_RETRY_MS.process;
    try {
      const offered = await this.#own.catalogue();
      last = LAST_RETRY_MS.store;
      const accepted = await this.#services.accept(this.server, this.entry, offered);
      if (this.#closed) return;
      this.#retryMs = FIRST_RETRY_MS;
      this.#isRead = true;
      await this.#services.offered(this, accepted);
    } catch (error) {
      if (this.#closed) return;
      this.#services.failed(this, error as Error);
      // The next call tries again.
      if (this.#isLazy && this.#isRemembered) return;
      this.#retry = setTimeout(() => void this.refresh(), Math.min(this.#retryMs, last));
      this.#retry.unref();
      this.#retryMs = Math.min(this.#retryMs * 2, last);
    }
  }

  #onUpstreamChange(change: UpstreamChange): void {
    if (this.#closed) return;
    if (typeof change === "object") {
      this.cache.forget(change.resource);
      this.#services.changed(this, change);
      return;
    }
    if (change === "resources") this.cache.clear();
    void this.refresh();
  }
}

export function pool(members: readonly Upstream[]): Upstream {
  const first = members[0] as Upstream;
  if (members.length === 1) return first;
  const leastBusy = (): Upstream => {
    let best = first;
    let least = Number.POSITIVE_INFINITY;
    for (const member of members) {
      const { inFlight, queued, circuit } = member.health();
      const load = inFlight + queued + (circuit === "open" ? 1_000_000 : 0);
      if (load < least) [best, least] = [member, load];
    }
    return best;
  };
  // Instances may differ for a while; what is compared with the pins is what changed last.
  let changedLast: Upstream | undefined;
  return {
    name: first.name,
    get state() {
      return members.some((member) => member.state === "ready") ? "ready" : first.state;
    },
    get revision() {
      return first.revision;
    },
    start: async () => {
      await Promise.all(members.map((member) => member.start()));
    },
    catalogue: () => (changedLast?.state === "ready" ? changedLast : leastBusy()).catalogue(),
    request: (call) => leastBusy().request(call),
    watch: (uri) => first.watch(uri),
    onChange: (listener) => {
      const stops = members.map((member) =>
        member.onChange((change) => {
          if (typeof change === "string") changedLast = member;
          listener(change);
        }),
      );
      return () => {
        for (const stop of stops) stop();
      };
    },
    health: () => first.health(),
    close: async () => {
      await Promise.all(members.map((member) => member.close()));
    },
  };
}

/** `*` stands for anything; a pattern without one is a name. */
export function matcher(patterns: readonly string[]): (name: string) => boolean {
  const names = new Set(patterns.filter((pattern) => !pattern.includes("*")));
  const parts = patterns.filter((pattern) => pattern.includes("*")).map((pattern) => pattern.split("*"));
  return (name) => names.has(name) || parts.some((pieces) => matches(pieces, name));
}

function matches(pieces: readonly string[], name: string): boolean {
  const last = pieces.length - 1;
  let at = 0;
  for (const [i, piece] of pieces.entries()) {
    if (i === last) return name.length - piece.length >= at && name.endsWith(piece);
    const found = i === 0 ? (name.startsWith(piece) ? 0 : -1) : name.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return true;
}
