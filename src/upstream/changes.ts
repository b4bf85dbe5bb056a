// Being told what changes at a server: the handshake revisions send it by themselves and are asked about single
// resources; 2026-07-28 opens a stream and says what it wants to hear.

import { Fault, isJsonObject, type JsonObject } from "../mcp/index.js";
import { nonsense, cancellation } from "../mcp/session/index.js";
import { pauseMs } from "./breaker.js";
import type { UpstreamConnection } from "./connection.js";
import type { UpstreamAnswer, UpstreamContext } from "./types.js";

/** A stream that lived this long was worth opening. */
const WORTHWHILE_MS = 30_000;
const ACKNOWLEDGE_MS = 5_000;
const ENDED = new Fault("Cancelled", "nobody listens any more");

export interface ChangesEvents {
  /** The stream ended: what changes from now on is not announced, and the server may have been restarted. */
  lost(): void;
  /** The stream is there again; something may have changed meanwhile. */
  missed(): void;
}

export class UpstreamChanges {
  readonly #connection: UpstreamConnection;
  readonly #around: UpstreamContext;
  readonly #events: ChangesEvents;
  #uris: ReadonlySet<string> = new Set();
  #stop: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #over = false;

  constructor(connection: UpstreamConnection, around: UpstreamContext, events: ChangesEvents) {
    this.#connection = connection;
    this.#around = around;
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
    const { listMs } = this.#around.timeouts;
    accepted(
      this.#around.server,
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
        reject(nonsense(this.#around.server, "it does not acknowledge a subscription"));
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
          if (answer.kind === "result") ended(nonsense(this.#around.server, "it ended a subscription"));
          // It has no such thing; asking again would change nothing.
          else {
            clearTimeout(timer);
            before?.();
            this.#stop = undefined;
            reject(nonsense(this.#around.server, `it refuses a subscription: ${answer.error.message}`));
          }
        },
        (error: Fault) => ended(error),
      );
    });
  }

  #again(): void {
    if (this.#over || this.#failures > this.#around.limits.maxResumes) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => {
        this.#open().then(
          () => this.#events.missed(),
          () => {},
        );
      },
      pauseMs(this.#failures, this.#around.timeouts),
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
