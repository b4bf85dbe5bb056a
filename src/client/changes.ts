// Listening for changes on one conversation: opens what has to be opened, and remembers who listens.

import type { JsonObject, Notification } from "../protocol/index.js";
import type { Conversation } from "./conversation.js";
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

export class Changes {
  readonly #conversation: Conversation;
  readonly #listeners = new Listeners();
  /** How many listeners there are for each resource that the server was asked about (handshake revisions). */
  readonly #subscribed = new Map<string, number>();
  #count = 0;

  constructor(conversation: Conversation) {
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
