// Listening for changes on one conversation: opens what has to be opened, and remembers who listens.

import { setTimeout as sleep } from "node:timers/promises";
import type { JsonObject, Notification } from "../index.js";
import type { ClientConversation } from "./conversation.js";
import { ProtocolError } from "./errors.js";
import { eraOf } from "./revision.js";
import {
  type ChangeEvent,
  filterParams,
  Listeners,
  type Subscription,
  type SubscriptionFilter,
  subscriptionOf,
} from "./subscriptions.js";

type End = "ended" | "closed" | "lost";

const RETRY_MS = 250;
/** A stream that lived this long was worth opening. */
const WORTHWHILE_MS = 10_000;

export class ChangeFeed {
  readonly #conversation: ClientConversation;
  readonly #listeners = new Listeners();
  /** How many listeners there are for each resource that the server was asked about (handshake revisions). */
  readonly #subscribed = new Map<string, number>();
  #count = 0;

  constructor(conversation: ClientConversation) {
    this.#conversation = conversation;
  }

  /** True when the notification was about a subscription. */
  notification(message: Notification, change: ChangeEvent | undefined): boolean {
    if (message.method === "notifications/subscriptions/acknowledged") {
      this.#listeners.acknowledge(message);
      return true;
    }
    if (message.method === "notifications/cancelled") return this.#listeners.end(message.params?.requestId);
    if (change) this.#listeners.deliver(change, subscriptionOf(message));
    return false;
  }

  async listen(filter: SubscriptionFilter, listener: (change: ChangeEvent) => void): Promise<Subscription> {
    const { maxListens } = this.#conversation.limits;
    if (this.#listeners.size >= maxListens) {
      throw new ProtocolError("TooMany", `${maxListens} subscriptions are open; close one or raise limits.maxListens`);
    }
    return eraOf(this.#conversation.revision) === "modern"
      ? this.#openStream(filter, listener)
      : this.#register(filter, listener);
  }

  /**
   * Listens on and on: a stream that broke is opened again, a bounded number of times in a row. Resolves when the
   * first attempt is over, and never rejects.
   */
  async watch(filter: SubscriptionFilter, onProblem: (problem: string) => void): Promise<void> {
    const attempt = async (): Promise<Subscription | undefined> => {
      try {
        return await this.listen(filter, () => {});
      } catch (error) {
        onProblem((error as Error).message);
        return undefined;
      }
    };
    const first = await attempt();
    if (first) void this.#keepWatching(first, attempt, onProblem);
  }

  async #keepWatching(
    first: Subscription,
    attempt: () => Promise<Subscription | undefined>,
    onProblem: (problem: string) => void,
  ): Promise<void> {
    let failures = 0;
    for (
      let open: Subscription | undefined = first;
      failures <= this.#conversation.limits.maxResumes;
      open = await attempt()
    ) {
      const openedAt = performance.now();
      const end = open ? await open.closed : "lost";
      if (end === "closed" || this.#conversation.over) return;
      failures = performance.now() - openedAt > WORTHWHILE_MS ? 0 : failures + 1;
      if (open) onProblem(`the stream ${end === "ended" ? "was ended by the server" : "broke"}`);
      await sleep(RETRY_MS * 2 ** failures, undefined, { ref: false });
      if (this.#conversation.over) return;
    }
  }

  /** After a new session the server knows nothing of what the old one was asked. */
  async renew(): Promise<void> {
    for (const uri of this.#subscribed.keys()) await this.#ask("resources/subscribe", { uri });
  }

  /** 2026-07-28: a request that stays open; the first thing it says is what it will tell us. */
  async #openStream(filter: SubscriptionFilter, listener: (change: ChangeEvent) => void): Promise<Subscription> {
    const stop = new AbortController();
    let end: End = "closed";
    let key = 0;
    const accepted = withResolvers<SubscriptionFilter>();
    const onId = (id: number): void => {
      key = id;
      this.#listeners.add(id, {
        filter,
        listener,
        acknowledged: accepted.resolve,
        ended: () => {
          end = "ended";
          stop.abort();
        },
      });
    };
    const stream = this.#conversation
      .hold("subscriptions/listen", { notifications: filterParams(filter) }, stop.signal, onId)
      .then(
        (): End => "ended",
        (error: unknown): End => {
          accepted.reject(error);
          return stop.signal.aborted ? end : "lost";
        },
      )
      .finally(() => this.#listeners.remove(key));
    const { discoveryMs } = this.#conversation.timeouts;
    const timer = setTimeout(() => {
      accepted.reject(
        new ProtocolError("ToolTimeout", `the server did not acknowledge the subscription in ${discoveryMs} ms`),
      );
      stop.abort();
    }, discoveryMs);
    // A stream that ended at once was never acknowledged.
    void stream.then(() =>
      accepted.reject(new ProtocolError("InvalidRequest", "the subscription ended before it began")),
    );
    try {
      return {
        accepted: await accepted.promise,
        closed: stream,
        close: async () => {
          stop.abort();
          await stream;
        },
      };
    } finally {
      clearTimeout(timer);
    }
  }

  /** Handshake revisions: lists are reported anyway, single resources have to be asked for. */
  async #register(filter: SubscriptionFilter, listener: (change: ChangeEvent) => void): Promise<Subscription> {
    const key = ++this.#count;
    const uris = filter.resourceSubscriptions ?? [];
    this.#listeners.add(key, { filter, listener });
    try {
      for (const uri of uris) await this.#subscribe(uri);
    } catch (error) {
      this.#listeners.remove(key);
      throw error;
    }
    const closed = withResolvers<End>();
    let open = true;
    return {
      accepted: filter,
      closed: closed.promise,
      close: async () => {
        if (!open) return;
        open = false;
        this.#listeners.remove(key);
        closed.resolve("closed");
        for (const uri of uris) await this.#unsubscribe(uri);
      },
    };
  }

  async #subscribe(uri: string): Promise<void> {
    const listeners = this.#subscribed.get(uri) ?? 0;
    if (listeners === 0) await this.#ask("resources/subscribe", { uri });
    this.#subscribed.set(uri, (this.#subscribed.get(uri) ?? 0) + 1);
  }

  async #unsubscribe(uri: string): Promise<void> {
    const left = (this.#subscribed.get(uri) ?? 1) - 1;
    if (left > 0) {
      this.#subscribed.set(uri, left);
      return;
    }
    this.#subscribed.delete(uri);
    await this.#ask("resources/unsubscribe", { uri });
  }

  async #ask(method: string, params: JsonObject): Promise<void> {
    await this.#conversation.request(method, params, { timeoutMs: this.#conversation.timeouts.discoveryMs });
  }
}

function withResolvers<T>(): {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: unknown) => void;
} {
  let resolve: (value: T) => void = () => {};
  let reject: (error: unknown) => void = () => {};
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  promise.catch(() => {});
  return { promise, resolve, reject };
}
