// Subscriptions to a server's changes: the handshake revisions announce lists by themselves and take subscriptions to
// single resources; 2026-07-28 opens a stream with a filter.

import { Fault, isJsonObject, type JsonObject } from "../mcp/index.js";
import { cancellation, nonsense } from "../mcp/session/index.js";
import { pauseMs } from "./breaker.js";
import type { UpstreamAnswer, UpstreamChange, UpstreamConnection, UpstreamContext } from "./types.js";

/** A stream that lived this long was worth opening. */
const WORTHWHILE_MS = 30_000;
const ACKNOWLEDGE_MS = 5_000;
const ENDED = new Fault("Cancelled", "the subscription ended");

export interface ChangesEvents {
  /** The stream ended: what changes from now on is not announced, and the server may have been restarted. */
  lost(): void;
  /** The stream is there again; something may have changed meanwhile. */
  missed(): void;
}

export class UpstreamChanges {
  readonly #connection: UpstreamConnection;
  readonly #context: UpstreamContext;
  readonly #events: ChangesEvents;
  #uris: ReadonlySet<string> = new Set();
  #stop: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #over = false;

  constructor(connection: UpstreamConnection, context: UpstreamContext, events: ChangesEvents) {
    this.#connection = connection;
    this.#context = context;
    this.#events = events;
  }

  /** Begins to listen, with these resources. A server that does not take one of them on may take the others. */
  async begin(uris: ReadonlySet<string>): Promise<void> {
    this.#uris = new Set(uris);
    if (this.#isModern) await this.#open().catch(() => this.#again());
    else for (const uri of uris) await this.#subscribe("resources/subscribe", uri).catch(() => {});
  }

  async add(uri: string, all: ReadonlySet<string>): Promise<void> {
    this.#uris = new Set(all);
    if (this.#isModern) await this.#open();
    else await this.#subscribe("resources/subscribe", uri);
  }

  async remove(uri: string, all: ReadonlySet<string>): Promise<void> {
    this.#uris = new Set(all);
    if (this.#isModern) await this.#open();
    else await this.#subscribe("resources/unsubscribe", uri);
  }

  end(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#stop?.();
  }

  get #isModern(): boolean {
    return this.#connection.agreement.revision.era === "modern";
  }

  async #subscribe(method: string, uri: string): Promise<void> {
    const { listMs } = this.#context.timeouts;
    accepted(
      this.#context.server,
      method,
      await this.#connection.call({ method, params: JSON.stringify({ uri }), timeoutMs: listMs }),
    );
  }

  /** The new stream is there before the old one is let go, so that nothing falls between the two. */
  #open(): Promise<void> {
    clearTimeout(this.#timer);
    const before = this.#stop;
    const filter = this.#filter();
    if (Object.keys(filter).length === 0 || this.#over) {
      before?.();
      this.#stop = undefined;
      return Promise.resolve();
    }
    const { cancel, stop } = cancellation();
    const end = (): void => stop(ENDED);
    this.#stop = end;
    const openedAt = performance.now();
    return new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(nonsense(this.#context.server, "it does not acknowledge a subscription"));
        end();
      }, ACKNOWLEDGE_MS);
      const call = {
        method: "subscriptions/listen",
        params: JSON.stringify({ notifications: filter }),
        timeoutMs: 0,
        cancel,
      };
      const acknowledged = (): void => {
        clearTimeout(timer);
        before?.();
        resolve();
      };
      const ended = (why: Fault): void => {
        clearTimeout(timer);
        before?.();
        reject(why);
        if (cancel.fault !== undefined || this.#stop !== end) return;
        this.#events.lost();
        this.#failures = performance.now() - openedAt > WORTHWHILE_MS ? 0 : this.#failures + 1;
        this.#again();
      };
      this.#connection.listen(call, acknowledged).then(
        (answer) => {
          if (answer.kind === "result") ended(nonsense(this.#context.server, "it ended a subscription"));
          // It has no such thing; asking again would change nothing.
          else {
            clearTimeout(timer);
            before?.();
            this.#stop = undefined;
            reject(nonsense(this.#context.server, `it refuses a subscription: ${answer.error.message}`));
          }
        },
        (error: Fault) => ended(error),
      );
    });
  }

  #again(): void {
    if (this.#over || this.#failures > this.#context.limits.maxResumes) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => {
        this.#open().then(
          () => this.#events.missed(),
          () => {},
        );
      },
      pauseMs(this.#failures, this.#context.timeouts),
    ).unref();
  }

  #filter(): JsonObject {
    const { capabilities } = this.#connection.agreement;
    const announces = (kind: string): boolean =>
      isJsonObject(capabilities[kind]) && capabilities[kind].listChanged === true;
    return {
      ...(announces("tools") ? { toolsListChanged: true } : {}),
      ...(announces("prompts") ? { promptsListChanged: true } : {}),
      ...(announces("resources") ? { resourcesListChanged: true } : {}),
      ...(this.#uris.size > 0 ? { resourceSubscriptions: [...this.#uris] } : {}),
    };
  }
}

function accepted(server: string, method: string, answer: UpstreamAnswer): void {
  if (answer.kind === "error") throw nonsense(server, `\`${method}\` failed: ${answer.error.message}`);
}

// Tells what changed, at once the first time and then at most so often: a server that announces the same change a
// thousand times a second is heard a few times.

const QUIET_MS = 200;

export class Announcements {
  readonly #notify: (change: UpstreamChange) => void;
  /** Kinds announced a moment ago; true when there was another change since. */
  readonly #recent = new Map<string, boolean>();
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor(notify: (change: UpstreamChange) => void) {
    this.#notify = notify;
  }

  /** INVARIANT: the caller bounds the number of resources. */
  announce(change: UpstreamChange): void {
    const key = typeof change === "string" ? change : `resource ${change.resource}`;
    if (this.#recent.has(key)) {
      this.#recent.set(key, true);
      return;
    }
    this.#recent.set(key, false);
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      const isMore = this.#recent.get(key);
      this.#recent.delete(key);
      if (isMore) this.announce(change);
    }, QUIET_MS);
    timer.unref();
    this.#timers.add(timer);
    this.#notify(change);
  }

  end(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    this.#recent.clear();
  }
}
