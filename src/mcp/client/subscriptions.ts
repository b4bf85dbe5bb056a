// Being told about changes, with one way to ask in both eras: 2026-07-28 opens a listen stream, the handshake
// revisions send such notifications by themselves and are asked about single resources only.

import { isJsonObject, type JsonObject, type JsonValue, META, type Notification } from "../index.js";
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
  /** `ended`: the server said so. `closed`: we did. `lost`: the stream broke; listen again if you still care. */
  readonly closed: Promise<"ended" | "closed" | "lost">;
  close(): Promise<void>;
}

const LIST_METHODS: ReadonlyMap<string, ListKind> = new Map([
  ["notifications/tools/list_changed", "tools"],
  ["notifications/prompts/list_changed", "prompts"],
  ["notifications/resources/list_changed", "resources"],
]);

/** What a notification says has changed, if that is what it is about. */
export function changeOf(message: Notification): ChangeEvent | undefined {
  const kind = LIST_METHODS.get(message.method);
  if (kind !== undefined) return { kind };
  const uri = message.params?.uri;
  if (message.method === "notifications/resources/updated" && typeof uri === "string") return { kind: "resource", uri };
  return undefined;
}

function wants(filter: SubscriptionFilter, change: ChangeEvent): boolean {
  switch (change.kind) {
    case "tools":
      return filter.toolsListChanged === true;
    case "prompts":
      return filter.promptsListChanged === true;
    case "resources":
      return filter.resourcesListChanged === true;
    case "resource":
      return filter.resourceSubscriptions?.includes(change.uri) ?? false;
  }
}

export function filterParams(filter: SubscriptionFilter): JsonObject {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined)) as JsonObject;
}

function readFilter(value: JsonValue | undefined): SubscriptionFilter {
  if (!isJsonObject(value)) return {};
  const uris = value.resourceSubscriptions;
  return {
    ...(value.toolsListChanged === true ? { toolsListChanged: true } : {}),
    ...(value.promptsListChanged === true ? { promptsListChanged: true } : {}),
    ...(value.resourcesListChanged === true ? { resourcesListChanged: true } : {}),
    ...(Array.isArray(uris) ? { resourceSubscriptions: uris.filter((uri) => typeof uri === "string") } : {}),
  };
}

/** The listen request that a notification belongs to. */
export function subscriptionOf(message: Notification): JsonValue | undefined {
  const meta = message.params?._meta;
  return isJsonObject(meta) ? meta[META.subscriptionId] : undefined;
}

interface Entry {
  readonly filter: SubscriptionFilter;
  readonly listener: (change: ChangeEvent) => void;
  acknowledged?: (accepted: SubscriptionFilter) => void;
  ended?: () => void;
}

/** Who listens to what. Keys are request ids in the modern era and our own counts elsewhere. */
export class Listeners {
  readonly #entries = new Map<JsonValue, Entry>();

  get size(): number {
    return this.#entries.size;
  }

  add(key: number, entry: Entry): void {
    this.#entries.set(key, entry);
  }

  remove(key: number): void {
    this.#entries.delete(key);
  }

  acknowledge(message: Notification): void {
    const entry = this.#entries.get(subscriptionOf(message) ?? null);
    entry?.acknowledged?.(readFilter(message.params?.notifications));
  }

  /** The server ended a listen stream. */
  end(key: JsonValue | undefined): boolean {
    const entry = this.#entries.get(key ?? null);
    entry?.ended?.();
    return entry !== undefined;
  }

  /** With a subscription id only its own listener hears of the change; without one every listener that asked for it. */
  deliver(change: ChangeEvent, subscription: JsonValue | undefined): void {
    if (subscription !== undefined) {
      const entry = this.#entries.get(subscription);
      if (entry && wants(entry.filter, change)) entry.listener(change);
      return;
    }
    for (const entry of this.#entries.values()) if (wants(entry.filter, change)) entry.listener(change);
  }
}
