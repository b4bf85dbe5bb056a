// What lasts longer than one exchange ends with the credential that opened it: event streams, listen streams and
// connections. A call that was permitted before finishes.

import { steadyNow } from "../mcp/index.js";
import type { Channel, Reply } from "../mcp/transports/index.js";
import type { Principal } from "../policy/index.js";

interface Entry {
  readonly at: number;
  readonly end: () => void;
}

interface Held {
  readonly caller: string;
  readonly credential: string | undefined;
  readonly at: number;
  readonly stop: () => void;
}

/** Entries are looked through at most this often, however many there are. */
const MIN_PAUSE_MS = 25;
/** `setTimeout` takes no more; a longer wait is continued. */
const MAX_PAUSE_MS = 2_147_483_647;

/** `Expiries` ends entries at their time, with one timer for all of them. They are as many as open streams. */
export class Expiries {
  readonly #entries = new Set<Entry>();
  readonly #channels = new WeakMap<Channel, Held>();
  #timer: NodeJS.Timeout | undefined;
  #due = Number.POSITIVE_INFINITY;

  get size(): number {
    return this.#entries.size;
  }

  /** Calls `end` when the time has come; returns how to call it off. */
  add(at: number | undefined, end: () => void): () => void {
    if (at === undefined || at === Number.POSITIVE_INFINITY) return () => {};
    const entry = { at, end };
    this.#entries.add(entry);
    this.#schedule(at);
    return () => this.#entries.delete(entry);
  }

  /** The same reply, which ends with the credential as if its reader had disconnected. */
  limit(reply: Reply, { expiresAt }: Pick<Principal, "expiresAt">): Reply {
    if (expiresAt === undefined) return reply;
    const gone: (() => void)[] = [];
    let isOver = false;
    const stop = this.add(expiresAt, () => {
      isOver = true;
      for (const listener of gone.splice(0)) listener();
      if (!reply.ended) reply.end();
    });
    reply.onAbort(stop);
    return {
      send: (text, eventId) => isOver || reply.send(text, eventId),
      drained: () => reply.drained(),
      open: (headers, retryMs) => reply.open(headers, retryMs),
      end: (text, head) => {
        stop();
        if (!isOver) reply.end(text, head);
      },
      get ended() {
        return isOver || reply.ended;
      },
      onAbort: (listener) => {
        gone.push(listener);
        reply.onAbort(listener);
      },
    };
  }

  /**
   * A connection lasts as long as the credential of its first caller, or of its session (`isSession`). The same caller
   * prolongs it with a renewed credential; another one does not.
   */
  hold(channel: Channel, principal: Principal, isSession = false): void {
    const { app, agent, credential, expiresAt: at = Number.POSITIVE_INFINITY } = principal;
    const held = this.#channels.get(channel);
    if (held && !isSession && at <= held.at) return;
    const caller = JSON.stringify([app, agent, credential]);
    if (held && !isSession && held.caller !== caller) return;
    held?.stop();
    if (!held) channel.onClose(() => this.#channels.get(channel)?.stop());
    const stop = this.add(at, () => channel.close("the credential expired"));
    this.#channels.set(channel, { caller, credential, at, stop });
  }

  /** True when the connection lasts as long as this credential. */
  isHeldBy(channel: Channel, credential: string): boolean {
    return this.#channels.get(channel)?.credential === credential;
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#entries.clear();
  }

  #schedule(at: number): void {
    if (at >= this.#due) return;
    clearTimeout(this.#timer);
    this.#due = at;
    const pause = Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, at - steadyNow()));
    this.#timer = setTimeout(() => this.#fire(), pause);
    this.#timer.unref();
  }

  #fire(): void {
    this.#due = Number.POSITIVE_INFINITY;
    const now = steadyNow();
    let next = Number.POSITIVE_INFINITY;
    for (const entry of [...this.#entries]) {
      if (entry.at > now) next = Math.min(next, entry.at);
      else if (this.#entries.delete(entry)) entry.end();
    }
    if (next !== Number.POSITIVE_INFINITY) this.#schedule(next);
  }
}
