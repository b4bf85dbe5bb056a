// Changes reach the clients that subscribed to them: handshake sessions by notification, 2026-07-28 clients on the listen
// streams that they opened. Following a resource on a listen stream is a call of its own, decided and recorded like
// `resources/subscribe`; what was not permitted is not part of what the stream is granted.

import { asFault, Fault, isJsonObject, type JsonObject, META, MODERN, type RequestId } from "../mcp/index.js";
import type { ListChange } from "../mcp/server/index.js";
import type { Reply } from "../mcp/transports/index.js";
import { type Cancel, type Conversation, call } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import type { Gateway } from "./application-types.js";
import type { Session } from "./session.js";

interface Filter {
  toolsListChanged?: boolean;
  promptsListChanged?: boolean;
  resourcesListChanged?: boolean;
  resourceSubscriptions?: string[];
}

interface Listener {
  readonly id: RequestId;
  readonly filter: Filter;
  readonly send: (text: string) => boolean;
  readonly end: () => void;
  /** What it is known by. */
  readonly credential: string | undefined;
  readonly agent: string;
}

const MAX_URIS = 1_000;
const NOTIFICATION: Readonly<Record<ListChange["kind"], string>> = {
  tools: "notifications/tools/list_changed",
  prompts: "notifications/prompts/list_changed",
  resources: "notifications/resources/list_changed",
  resource: "notifications/resources/updated",
};

/** Of the listen streams of an application, so many are for one agent at most. */
const AGENT_SHARE = 1 / 4;

export class Subscriptions {
  readonly #listeners = new Set<Listener>();
  readonly #maxStreams: number;
  constructor(maxStreams: number) {
    this.#maxStreams = maxStreams;
  }

  /** Opens a listen stream: its first message says what was granted. Returns how to end it. */
  listen(
    id: RequestId,
    filter: Filter,
    reply: Reply,
    finish: () => void,
    follow: (uri: string) => () => void = () => () => {},
    credential?: string,
    agent = "",
  ): () => void {
    if (this.#listeners.size >= this.#maxStreams) {
      throw new Fault("TooMany", `${this.#maxStreams} listen streams are open`);
    }
    const most = Math.ceil(this.#maxStreams * AGENT_SHARE);
    if ([...this.#listeners].filter((each) => each.agent === agent).length >= most) {
      throw new Fault("TooMany", `${most} listen streams of this agent are open; close some`);
    }
    const listener: Listener = { id, filter, send: (text) => reply.send(text), end: finish, credential, agent };
    reply.open();
    reply.send(
      JSON.stringify({
        jsonrpc: "2.0",
        method: "notifications/subscriptions/acknowledged",
        params: { notifications: filter, _meta: { [META.subscriptionId]: id } },
      }),
    );
    this.#listeners.add(listener);
    const stops = (filter.resourceSubscriptions ?? []).map(follow);
    return () => {
      this.#listeners.delete(listener);
      for (const stop of stops.splice(0)) stop();
    };
  }

  get size(): number {
    return this.#listeners.size;
  }

  announce(change: ListChange, sessions: Iterable<Session>): void {
    const method = NOTIFICATION[change.kind];
    const params = change.kind === "resource" ? { uri: change.uri } : undefined;
    for (const session of sessions) {
      if (change.kind !== "resource" || session.subscriptions.has(change.uri)) session.notify(method, params);
    }
    for (const listener of this.#listeners) {
      if (!wants(listener.filter, change)) continue;
      const tagged = { ...params, _meta: { [META.subscriptionId]: listener.id } };
      listener.send(JSON.stringify({ jsonrpc: "2.0", method, params: tagged }));
    }
  }

  endFor(credential: string): void {
    for (const listener of [...this.#listeners]) if (listener.credential === credential) listener.end();
  }

  endAll(): void {
    for (const listener of [...this.#listeners]) listener.end();
    this.#listeners.clear();
  }
}

function wants(filter: Filter, change: ListChange): boolean {
  switch (change.kind) {
    case "tools":
      return filter.toolsListChanged === true;
    case "prompts":
      return filter.promptsListChanged === true;
    case "resources":
      return filter.resourcesListChanged === true;
    case "resource":
      return filter.resourceSubscriptions?.includes(change.uri) === true;
  }
}

/** What is asked for; throws a Fault when it is not well formed. */
export function filterOf(params: JsonObject): Filter {
  const asked = params.notifications;
  if (!isJsonObject(asked)) {
    throw new Fault("InvalidParams", "`notifications` must say what to listen for", { field: "notifications" });
  }
  const filter: Filter = {};
  if (asked.toolsListChanged === true) filter.toolsListChanged = true;
  if (asked.promptsListChanged === true) filter.promptsListChanged = true;
  if (asked.resourcesListChanged === true) filter.resourcesListChanged = true;
  const uris = asked.resourceSubscriptions;
  if (Array.isArray(uris)) {
    if (uris.length > MAX_URIS || !uris.every((uri) => typeof uri === "string")) {
      throw new Fault("InvalidParams", `\`notifications.resourceSubscriptions\` holds at most ${MAX_URIS} uris`, {
        field: "notifications.resourceSubscriptions",
      });
    }
    filter.resourceSubscriptions = uris as string[];
  }
  return filter;
}

interface Following {
  readonly principal: Principal;
  readonly requestId: RequestId;
  readonly transport: string;
  readonly conversation: Conversation;
  readonly cancel: Cancel;
}

const METHOD = "resources/subscribe";

/** Those of the uris that this caller may follow, in their order. */
export async function mayFollow(gateway: Gateway, who: Following, uris: readonly string[]): Promise<string[]> {
  const granted = await Promise.all(uris.map((uri) => isGranted(gateway, who, { uri })));
  return uris.filter((_, i) => granted[i]);
}

async function isGranted(gateway: Gateway, who: Following, params: JsonObject): Promise<boolean> {
  const { app, agent } = who.principal;
  const span = gateway.telemetry.startCall({
    method: METHOD,
    tool: "",
    app,
    agent,
    transport: who.transport,
    revision: MODERN.name,
  });
  try {
    const request = { ...who, method: METHOD, params, revision: MODERN, render: JSON.stringify, span, depth: 0 };
    return (await call(gateway, request)).ok;
  } catch (error) {
    gateway.telemetry.log.error("a subscription failed unexpectedly", { error: asFault(error).message }, span.traceId);
    return false;
  }
}
