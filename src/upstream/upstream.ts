// One downstream server as the gateway sees it: started when it is needed, watched, not called for a
// while when it keeps failing, started again, and in the end stopped with everything it started.

import { createRequire } from "node:module";
import { type Era, Fault, steadyNow } from "../mcp/index.js";
import {
  asServerFault,
  type Cancellation,
  type ConnectionEvents,
  neverSent,
  type SessionTerms,
  SPOKEN,
  serverUnavailable,
  spoken,
  timedOut,
  tooMany,
} from "../mcp/session/index.js";
import { again } from "./again.js";
import { Breaker, CallSlots, pauseMs } from "./breaker.js";
import { Announcements, UpstreamChanges } from "./changes.js";
import { connectUpstream } from "./connect.js";
import { Listings } from "./listings.js";
import { causeOf } from "./process/cause.js";
import {
  type Catalogue,
  DEFAULT_UPSTREAM_LIMITS,
  DEFAULT_UPSTREAM_TIMEOUTS,
  type ProcessFacts,
  type Upstream,
  type UpstreamAnswer,
  type UpstreamCall,
  type UpstreamChange,
  type UpstreamConnection,
  type UpstreamContext,
  type UpstreamCounts,
  type UpstreamHealth,
  type UpstreamOptions,
  type UpstreamState,
} from "./types.js";

export function createUpstream(options: UpstreamOptions): Upstream {
  return new ManagedUpstream(options);
}

/** How often one call begins to wait again because the connection or the definitions changed meanwhile. */
const MAX_TRIES = 5;

const EVERYTHING: readonly UpstreamChange[] = ["tools", "resources", "prompts"];

class ManagedUpstream implements Upstream {
  readonly name: string;
  readonly #options: UpstreamOptions;
  readonly #context: UpstreamContext;
  readonly #breaker: Breaker;
  readonly #slots: CallSlots;
  readonly #listeners = new Set<(change: UpstreamChange) => void>();
  readonly #announcements = new Announcements((change) => {
    for (const listener of this.#listeners) listener(change);
  });
  readonly #listings: Listings;
  readonly #connectAgainMs: number;
  readonly #watched = new Map<string, number>();
  #state: UpstreamState = "idle";
  #connection: UpstreamConnection | undefined;
  #starting: Promise<UpstreamConnection> | undefined;
  #changes: UpstreamChanges | undefined;
  #revision: string | undefined;
  #era: Era | undefined;
  #queued = 0;
  #starts = 0;
  #losses = 0;
  #lastError: UpstreamHealth["lastError"];
  /** The connection that is in use, is being opened, or was there last. */
  #latest: UpstreamConnection | undefined;
  /** What is known of the process before that, until there is something to say about this one. */
  #before: ProcessFacts | undefined;
  #aliveAt = 0;
  #usedAt = 0;
  #idleTimer: NodeJS.Timeout | undefined;
  #restartTimer: NodeJS.Timeout | undefined;

  constructor(options: UpstreamOptions) {
    this.name = options.name;
    this.#options = options;
    const limits = { ...DEFAULT_UPSTREAM_LIMITS, ...options.limits };
    const timeouts = { ...DEFAULT_UPSTREAM_TIMEOUTS, ...options.timeouts };
    const { transport } = options.target;
    // A process that is slow to start is not started twice, and what is sent twice over one connection is not heard sooner.
    this.#connectAgainMs = transport === "stdio" ? 0 : timeouts.againMs;
    const listAgainMs = transport === "http" ? timeouts.againMs : 0;
    const counts: UpstreamCounts = {
      calls: 0,
      results: 0,
      errors: 0,
      failures: 0,
      timeouts: 0,
      cancelled: 0,
      refused: 0,
      strayAnswers: 0,
      malformed: 0,
      refusedMessages: 0,
    };
    this.#context = { server: options.name, counts, limits, timeouts, budget: options.budget, share: options.share };
    this.#breaker = new Breaker({ ...timeouts, failuresToOpen: limits.failuresToOpen });
    this.#slots = new CallSlots(limits.maxInFlight);
    this.#listings = new Listings(this.#context, listAgainMs, {
      ready: () => this.#ready(),
      differs: () => {
        for (const change of EVERYTHING) this.#announcements.announce(change);
      },
    });
  }

  get state(): UpstreamState {
    return this.#state;
  }

  get revision(): string | undefined {
    return this.#revision;
  }

  async start(): Promise<void> {
    await this.#ready();
  }

  request(call: UpstreamCall): Promise<UpstreamAnswer> {
    const { counts } = this.#context;
    counts.calls++;
    const refusal = this.#refusal(call);
    if (refusal !== undefined) {
      counts.refused++;
      return Promise.reject(refusal);
    }
    if (this.#connection !== undefined && this.#isChecked(call) && this.#slots.take()) {
      return this.#run(this.#connection, call);
    }
    return this.#runLater(call);
  }

  async catalogue(): Promise<Catalogue> {
    try {
      const catalogue = await this.#listings.catalogue();
      this.#aliveAt = performance.now();
      this.#losses = 0;
      return catalogue;
    } catch (error) {
      throw asServerFault(this.name, error, true);
    }
  }

  async watch(uri: string): Promise<() => Promise<void>> {
    const { maxWatched } = this.#context.limits;
    await this.#ready();
    const before = this.#watched.get(uri) ?? 0;
    if (before === 0 && this.#watched.size >= maxWatched) {
      throw tooMany(this.name, `${maxWatched} resources are watched already`);
    }
    this.#watched.set(uri, before + 1);
    try {
      if (before === 0) await this.#changes?.add(uri, new Set(this.#watched.keys()));
    } catch (error) {
      await this.#unwatch(uri);
      throw error;
    }
    let isOn = true;
    return async () => {
      if (isOn) await this.#unwatch(uri);
      isOn = false;
    };
  }

  onChange(listener: (change: UpstreamChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  health(): UpstreamHealth {
    const latest = this.#latest?.process;
    const facts = this.#state === "starting" && this.#cause() === "" ? (this.#before ?? latest) : latest;
    const isRunning = this.#state === "ready" || this.#state === "starting";
    return {
      state: this.#state,
      transport: this.#options.target.transport,
      revision: this.#revision,
      circuit: this.#breaker.state,
      retryAt: this.#breaker.retryAt,
      inFlight: this.#slots.taken,
      queued: this.#queued,
      counts: { ...this.#context.counts },
      restarts: Math.max(0, this.#starts - 1),
      lastError: this.#lastError,
      stderr: facts?.stderrTail ?? this.#connection?.notes ?? "",
      pid: isRunning && latest?.exit === undefined ? latest?.pid : undefined,
      exit: facts?.exit,
      containment: facts?.containment,
      sandbox: facts?.protections,
    };
  }

  async close(): Promise<void> {
    this.#state = "stopped";
    clearTimeout(this.#restartTimer);
    clearTimeout(this.#idleTimer);
    this.#listeners.clear();
    this.#announcements.end();
    this.#listings.end();
    // A server that is just being started is stopped as soon as it is there.
    await this.#starting?.catch(() => {});
    await this.#disconnect();
  }

  // ---- calls

  #refusal(call: UpstreamCall): Fault | undefined {
    if (call.cancel?.fault !== undefined) return call.cancel.fault;
    if (this.#state === "stopped") return serverUnavailable(this.name, "it has been stopped");
    if (this.#breaker.admit()) return undefined;
    const waitMs = Math.max(0, Math.ceil((this.#breaker.retryAt ?? 0) - steadyNow()));
    const last = this.#lastError === undefined ? "" : `; last it was: ${this.#lastError.message}`;
    return serverUnavailable(
      this.name,
      `it failed ${this.#breaker.failures} times in a row and is not called for a while${last}`,
      {
        retry_after_ms: waitMs,
        suggestions: [`Try again in ${Math.ceil(waitMs / 1_000)} s`],
      },
    );
  }

  /** INVARIANT: false for every call of a caller until this connection's definitions were read. */
  #isChecked(call: UpstreamCall): boolean {
    return call.expects === undefined || this.#listings.isCurrent;
  }

  /** INVARIANT: the caller has taken a turn, and nothing was awaited since `#isChecked`. */
  #run(connection: UpstreamConnection, call: UpstreamCall): Promise<UpstreamAnswer> {
    const refusal = call.expects === undefined ? undefined : this.#listings.refusal(call.expects);
    if (refusal !== undefined) {
      this.#slots.give();
      this.#context.counts.refused++;
      this.#breaker.neutral();
      return Promise.reject(refusal);
    }
    const startedAt = performance.now();
    this.#usedAt = startedAt;
    return connection.call(call).then(
      (answer) => {
        this.#slots.give();
        this.#aliveAt = performance.now();
        if (answer.kind === "result") this.#context.counts.results++;
        else this.#context.counts.errors++;
        this.#breaker.success();
        return answer;
      },
      (error: unknown) => {
        this.#slots.give();
        throw this.#classify(asServerFault(this.name, error, true), call, startedAt, connection);
      },
    );
  }

  /** The server has to be started first, or all turns are taken. */
  async #runLater(call: UpstreamCall): Promise<UpstreamAnswer> {
    const { counts, limits } = this.#context;
    if (this.#queued >= limits.maxQueued) {
      counts.refused++;
      this.#breaker.neutral();
      throw tooMany(this.name, `${limits.maxQueued} calls are waiting for it already`);
    }
    this.#queued++;
    const startedAt = performance.now();
    let isWanted = true;
    let connection: UpstreamConnection;
    try {
      connection = await this.#untilStopped(call, () => this.#slotWithConnection(call, () => isWanted));
    } catch (error) {
      isWanted = false;
      throw this.#classify(asServerFault(this.name, error, false), call, startedAt);
    } finally {
      this.#queued--;
    }
    const leftMs = call.timeoutMs === 0 ? 0 : Math.max(1, call.timeoutMs - (performance.now() - startedAt));
    const rest = leftMs === call.timeoutMs ? call : { ...call, timeoutMs: leftMs };
    if (connection === this.#connection && this.#isChecked(rest)) return this.#run(connection, rest);
    // Lost, or changed, between the two: from the beginning.
    this.#slots.give();
    return this.#runLater(rest);
  }

  /** Resolves with a turn taken, on a connection whose definitions were read where the call wants that. */
  async #slotWithConnection(call: UpstreamCall, isWanted: () => boolean): Promise<UpstreamConnection> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      await this.#ready();
      if (!this.#isChecked(call)) await this.#listings.waitFor();
      await this.#slots.wait(isWanted);
      if (isWanted() && this.#connection !== undefined && this.#isChecked(call)) return this.#connection;
      this.#slots.give();
      if (!isWanted()) throw serverUnavailable(this.name, "the caller does not wait for it any more");
    }
    throw serverUnavailable(this.name, "its definitions change faster than they can be read");
  }

  #untilStopped<T>(call: UpstreamCall, work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const { timeoutMs, method, name } = call;
      const late = (): void => {
        const fault = timedOut(this.name, method, name, timeoutMs);
        reject(
          new Fault(fault.type, fault.message, { ...fault.detail, extra: { ...fault.detail.extra, delivered: false } }),
        );
      };
      const timer = timeoutMs === 0 ? undefined : setTimeout(late, timeoutMs);
      call.cancel?.onAbort(reject);
      work()
        .then(resolve, reject)
        .finally(() => clearTimeout(timer));
    });
  }

  /** What a failed call says about the server. A call that was itself too large, malformed or abandoned says nothing. */
  #classify(fault: Fault, call: UpstreamCall, startedAt: number, connection?: UpstreamConnection): Fault {
    const { counts } = this.#context;
    if (fault.type === "ToolTimeout") {
      counts.timeouts++;
      // A server that answers others is slow at this, not broken; one that is still starting has a limit for that.
      if (connection === undefined || this.#aliveAt > startedAt) this.#breaker.neutral();
      else this.#failed(fault, true);
      return fault;
    }
    if (call.cancel?.fault !== undefined) {
      counts.cancelled++;
      this.#breaker.neutral();
      return fault;
    }
    counts.failures++;
    // A connection that was lost or could not be made was counted when that happened.
    const isCounted = connection === undefined || connection !== this.#connection;
    if (isCounted || saysNothing(fault)) this.#breaker.neutral();
    else this.#failed(fault, false);
    return fault;
  }

  #failed(fault: Fault, isHung: boolean): void {
    this.#note(fault);
    if (this.#breaker.failure() && isHung) void this.#disconnect("failed");
  }

  // ---- the connection

  #ready(): Promise<UpstreamConnection> {
    if (this.#connection !== undefined) return Promise.resolve(this.#connection);
    if (this.#state === "stopped") return Promise.reject(serverUnavailable(this.name, "it has been stopped"));
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  async #start(): Promise<UpstreamConnection> {
    clearTimeout(this.#restartTimer);
    this.#state = "starting";
    try {
      const discard = (late: UpstreamConnection): void => void late.close().catch(() => {});
      const connection = await again((cancel) => this.#open(cancel), this.#connectAgainMs, discard);
      if (this.#isStopped()) {
        await connection.close();
        throw serverUnavailable(this.name, "it has been stopped");
      }
      await this.#adopt(connection);
      return connection;
    } catch (error) {
      const fault = neverReady(asServerFault(this.name, error, false));
      if (!this.#isStopped()) {
        this.#state = "failed";
        this.#era = undefined;
        this.#note(fault, this.#cause());
        this.#breaker.failure();
      }
      throw forOperator(fault, this.#cause());
    }
  }

  async #open(cancel: Cancellation): Promise<UpstreamConnection> {
    try {
      return await this.#connect(this.#era, cancel);
    } catch (error) {
      const isOver = this.#isStopped() || cancel.fault !== undefined;
      const triedAll = this.#era !== undefined || this.#options.revision !== undefined || isOver;
      // Some servers older than 2025 crash on `server/discover`; fall back to `initialize` once.
      if (triedAll || !(error instanceof Fault) || error.type !== "IoError") throw error;
      return this.#connect("legacy", cancel);
    }
  }

  #connect(era: Era | undefined, cancel: Cancellation): Promise<UpstreamConnection> {
    const { revision } = this.#options;
    const known = revision === undefined ? undefined : spoken(revision);
    if (revision !== undefined && known === undefined) {
      throw new Fault("UnsupportedVersion", `revision \`${revision}\` of server \`${this.name}\` is not one we speak`);
    }
    const terms: SessionTerms = {
      server: this.name,
      clientInfo: this.#options.clientInfo ?? ownInfo(),
      capabilities: () => this.#options.clientCapabilities ?? {},
      revisions: SPOKEN,
      revision: known,
      era,
      startMs: this.#context.timeouts.startMs,
      discoverMs: this.#context.timeouts.discoverMs,
    };
    let made: UpstreamConnection | undefined;
    const events: ConnectionEvents = {
      change: (change) => this.#onChange(change, true),
      renewed: () => {
        void this.#changes?.begin(new Set(this.#watched.keys())).catch(() => {});
        this.#everythingChanged();
      },
      disconnected: (isByAgreement) => {
        if (made !== this.#connection) return;
        if (isByAgreement) this.#listings.doubt();
        else this.#listings.reset();
      },
      mayResend: (call) => this.#mayResend(call),
      lost: (fault) => this.#onLost(fault, () => made),
    };
    const opening = (connection: UpstreamConnection): void => {
      this.#before = this.#latest?.process ?? this.#before;
      this.#latest = connection;
    };
    return connectUpstream(this.#options, this.#context, terms, events, cancel, opening).then((connection) => {
      made = connection;
      return connection;
    });
  }

  async #mayResend(call: UpstreamCall): Promise<void> {
    if (call.expects === undefined) return;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      if (this.#listings.isCurrent) {
        const refusal = this.#listings.refusal(call.expects);
        if (refusal !== undefined) throw refusal;
        return;
      }
      await this.#listings.waitFor();
    }
    throw serverUnavailable(this.name, "its definitions change faster than they can be read");
  }

  async #adopt(connection: UpstreamConnection): Promise<void> {
    const { revision } = connection.agreement;
    this.#listings.reset();
    this.#connection = connection;
    this.#latest = connection;
    this.#before = undefined;
    this.#state = "ready";
    this.#revision = revision.name;
    this.#era = revision.era;
    this.#starts++;
    this.#usedAt = performance.now();
    this.#watchIdle();
    this.#changes = new UpstreamChanges(connection, this.#context, {
      lost: () => this.#listings.reset(),
      missed: () => this.#everythingChanged(),
    });
    void this.#changes.begin(new Set(this.#watched.keys())).catch(() => {});
    if (this.#starts > 1) this.#everythingChanged();
  }

  #onLost(fault: Fault, made: () => UpstreamConnection | undefined): void {
    // While it is being opened, the failure is reported to the opener.
    const connection = made();
    if (connection === undefined || connection !== this.#connection) return;
    this.#forget();
    this.#state = "failed";
    this.#note(fault, this.#cause());
    this.#breaker.failure();
    if (this.#losses++ < this.#context.limits.failuresToOpen) this.#restartSoon();
  }

  /** Subscribers get changes without a call. */
  #restartSoon(): void {
    if (this.#options.target.transport !== "stdio" || this.#listeners.size === 0) return;
    clearTimeout(this.#restartTimer);
    this.#restartTimer = setTimeout(
      () => {
        void this.#ready().catch(() => {});
      },
      pauseMs(this.#losses, this.#context.timeouts),
    ).unref();
  }

  async #disconnect(state?: UpstreamState): Promise<void> {
    const connection = this.#connection;
    if (connection === undefined) return;
    this.#forget();
    if (state !== undefined && !this.#isStopped()) this.#state = state;
    await connection.close();
  }

  #forget(): void {
    this.#connection = undefined;
    this.#listings.reset();
    this.#changes?.end();
    this.#changes = undefined;
    clearTimeout(this.#idleTimer);
  }

  #isStopped(): boolean {
    return this.#state === "stopped";
  }

  #watchIdle(): void {
    const { idleMs } = this.#context.timeouts;
    clearTimeout(this.#idleTimer);
    if (idleMs === 0) return;
    const quietMs = performance.now() - this.#usedAt;
    const isBusy = this.#slots.taken > 0 || this.#queued > 0 || this.#watched.size > 0;
    if (quietMs >= idleMs && !isBusy) {
      void this.#disconnect("idle");
      return;
    }
    this.#idleTimer = setTimeout(() => this.#watchIdle(), isBusy ? idleMs : idleMs - quietMs + 1).unref();
  }

  // ---- what it offers, and what changes

  #onChange(change: UpstreamChange, isAnnounced = false): void {
    if (typeof change === "string") this.#listings.reset(isAnnounced);
    else if (!this.#watched.has(change.resource)) return;
    this.#announcements.announce(change);
  }

  #everythingChanged(): void {
    for (const change of EVERYTHING) this.#onChange(change);
    for (const resource of this.#watched.keys()) this.#onChange({ resource });
  }

  async #unwatch(uri: string): Promise<void> {
    const left = (this.#watched.get(uri) ?? 1) - 1;
    if (left > 0) {
      this.#watched.set(uri, left);
      return;
    }
    this.#watched.delete(uri);
    // What the server still says about it is dropped anyway.
    await this.#changes?.remove(uri, new Set(this.#watched.keys())).catch(() => {});
  }

  #note(fault: Fault, cause = ""): void {
    this.#lastError = { at: Date.now(), message: fault.message, ...(cause === "" ? {} : { cause }) };
  }

  #cause(): string {
    const facts = this.#latest?.process;
    return causeOf({ sandbox: facts?.protections, stderr: facts?.stderrTail ?? "" });
  }
}

/** The cause goes to the log: callers read the message. */
function forOperator(fault: Fault, cause: string): Fault {
  if (cause === "") return fault;
  return new Fault(fault.type, fault.message, { ...fault.detail, operator: `${fault.message}; ${cause}` });
}

/** Whatever went wrong while it was started: no call had been sent yet. */
function neverReady(fault: Fault): Fault {
  if (neverSent(fault)) return fault;
  const isItsOwn = fault.type === "UnsupportedVersion" || fault.type === "PolicyDeny";
  const extra = { ...fault.detail.extra, delivered: false };
  return new Fault(isItsOwn ? fault.type : "Unavailable", fault.message, { ...fault.detail, extra });
}

/** The call was at fault, or the server is well enough to say no. */
function saysNothing(fault: Fault): boolean {
  const status = fault.detail.extra?.status;
  if (typeof status === "number") return status < 500 && status !== 0;
  return (
    fault.type === "PolicyDeny" ||
    fault.type === "InvalidParams" ||
    fault.type === "ValidationError" ||
    fault.type === "TooLarge" ||
    fault.type === "TooMany"
  );
}

function ownInfo(): { name: string; version: string } {
  const { name, version } = createRequire(import.meta.url)("../../package.json") as { name: string; version: string };
  return { name, version };
}
