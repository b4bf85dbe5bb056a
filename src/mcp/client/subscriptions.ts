// Listening for changes, with one way to ask in both eras: 2026-07-28 opens a listen stream, the handshake revisions send
// such notifications by themselves and are asked about single resources only.

import { setTimeout as sleep } from "node:timers/promises";
import { isJsonObject, type JsonObject, type JsonValue } from "../index.js";
import type { ClientConversation } from "./conversation.js";
import { ProtocolError } from "./errors.js";
import type { ListKind } from "./options.js";

export interface SubscriptionFilter {
  toolsListChanged?: boolean;
  promptsListChanged?: boolean;
  resourcesListChanged?: boolean;
  /** URIs of resources whose changes matter. */
  resourceSubscriptions?: readonly string[];
}

export type ChangeEvent = { kind: ListKind } | { kind: "resource"; uri: string };

export interface Subscription {
  /** What the server agreed to, which may be less than what was asked. */
  readonly accepted: SubscriptionFilter;
  /** `ended`: by the server. `closed`: by this client. `lost`: the stream broke; listen again if the changes still matter. */
  readonly closed: Promise<"ended" | "closed" | "lost">;
  close(): Promise<void>;
}

type End = "ended" | "closed" | "lost";

interface Listener {
  readonly filter: SubscriptionFilter;
  readonly onChange: (change: ChangeEvent) => void;
}

const RETRY_MS = 250;
/** A stream that lived this long was worth opening. */
const WORTHWHILE_MS = 10_000;
const FLAGS = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"] as const;

function deliver({ filter, onChange }: Listener, change: ChangeEvent): void {
  const isWanted =
    change.kind === "resource"
      ? filter.resourceSubscriptions?.includes(change.uri)
      : filter[`${change.kind}ListChanged` as const];
  if (isWanted === true) onChange(change);
}

/** `ChangeFeed` opens what has to be opened on one conversation and keeps the listeners. */
export class ChangeFeed {
  readonly #conversation: ClientConversation;
  readonly #listeners = new Set<Listener>();
  /** How many listeners there are for each resource that the server was asked about (handshake revisions). */
  readonly #subscribed = new Map<string, number>();

  constructor(conversation: ClientConversation) {
    this.#conversation = conversation;
  }

  /** A change that names no subscription: every listener that asked for it receives it. */
  change(change: ChangeEvent): void {
    for (const listener of this.#listeners) deliver(listener, change);
  }

  async listen(filter: SubscriptionFilter, onChange: (change: ChangeEvent) => void): Promise<Subscription> {
    const { maxListens } = this.#conversation.limits;
    if (this.#listeners.size >= maxListens) {
      throw new ProtocolError("TooMany", `${maxListens} subscriptions are open; close one or raise limits.maxListens`);
    }
    const listener = { filter, onChange };
    this.#listeners.add(listener);
    return this.#conversation.revision.era === "modern" ? this.#openStream(listener) : this.#register(listener);
  }

  /**
   * Listens until the conversation ends: a stream that broke is opened again, a bounded number of times in a row. Resolves
   * when the first attempt is over, and never rejects.
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

  /** After a new session the server knows nothing of what was asked in the old one. */
  async renew(): Promise<void> {
    for (const uri of this.#subscribed.keys()) await this.#request("resources/subscribe", uri);
  }

  /** 2026-07-28: a request that stays open; its first message states what the server will send. */
  async #openStream(listener: Listener): Promise<Subscription> {
    const stop = new AbortController();
    let end: End = "closed";
    const accepted = withResolvers<SubscriptionFilter>();
    const notifications = Object.fromEntries(
      Object.entries(listener.filter).filter(([, value]) => value !== undefined),
    ) as JsonObject;
    const stream = this.#conversation
      .hold("subscriptions/listen", { notifications }, stop.signal, {
        acknowledged: (params) => accepted.resolve(readFilter(params.notifications)),
        change: (change) => deliver(listener, change),
        ended: () => {
          end = "ended";
          stop.abort();
        },
      })
      .then(
        (): End => "ended",
        (error: unknown): End => {
          accepted.reject(error);
          return stop.signal.aborted ? end : "lost";
        },
      )
      .finally(() => this.#listeners.delete(listener));
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
  async #register(listener: Listener): Promise<Subscription> {
    const { filter } = listener;
    const uris = filter.resourceSubscriptions ?? [];
    try {
      for (const uri of uris) await this.#subscribe(uri);
    } catch (error) {
      this.#listeners.delete(listener);
      throw error;
    }
    const closed = withResolvers<End>();
    return {
      accepted: filter,
      closed: closed.promise,
      close: async () => {
        if (!this.#listeners.delete(listener)) return;
        closed.resolve("closed");
        for (const uri of uris) await this.#unsubscribe(uri);
      },
    };
  }

  async #subscribe(uri: string): Promise<void> {
    if (!this.#subscribed.has(uri)) await this.#request("resources/subscribe", uri);
    this.#subscribed.set(uri, (this.#subscribed.get(uri) ?? 0) + 1);
  }

  async #unsubscribe(uri: string): Promise<void> {
    const left = (this.#subscribed.get(uri) ?? 1) - 1;
    if (left > 0) {
      this.#subscribed.set(uri, left);
      return;
    }
    this.#subscribed.delete(uri);
    await this.#request("resources/unsubscribe", uri);
  }

  async #request(method: string, uri: string): Promise<void> {
    await this.#conversation.request(method, { uri }, { timeoutMs: this.#conversation.timeouts.discoveryMs });
  }
}

function readFilter(value: JsonValue | undefined): SubscriptionFilter {
  if (!isJsonObject(value)) return {};
  const filter: SubscriptionFilter = {};
  for (const flag of FLAGS) if (value[flag] === true) filter[flag] = true;
  const uris = value.resourceSubscriptions;
  if (Array.isArray(uris)) filter.resourceSubscriptions = uris.filter((uri) => typeof uri === "string");
  return filter;
}

/** `Promise.withResolvers`, which Node 20 does not have; a rejection that is not awaited is ignored. */
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
