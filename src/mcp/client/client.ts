// The calling side of MCP: one object whatever the transport and the revision.

import { isJsonObject, type JsonObject, type JsonValue, type Notification } from "../index.js";
import type {
  LogLevel,
  PromptDefinition,
  ResourceContents,
  ResourceDefinition,
  ResourceTemplateDefinition,
  ToolDefinition,
  ToolResult,
} from "../server/index.js";
import type { ClientTransport } from "../transports/index.js";
import { type ToolCall, ToolCalls } from "./calls.js";
import {
  ClientConversation,
  type ConversationStats,
  type Discovery,
  type HowToAsk,
  readDiscovery,
} from "./conversation.js";
import { PolicyViolation } from "./errors.js";
import { inRounds } from "./inputs.js";
import { CachedList, readPages, ttlOf } from "./lists.js";
import type { ConnectOptions, ListKind, LogEntry, RequestOptions, RevisionName } from "./options.js";
import { type CallerContext, SecureCalls } from "./secure.js";
import { type ChangeEvent, ChangeFeed, type Subscription, type SubscriptionFilter } from "./subscriptions.js";

/** Results are the parsed answers, with unknown fields. */
export interface ReadResult {
  contents: ResourceContents[];
  [extra: string]: unknown;
}
export interface PromptResult {
  messages: JsonObject[];
  description?: string;
  [extra: string]: unknown;
}
export interface CompleteResult {
  completion: { values: string[]; total?: number; hasMore?: boolean };
  [extra: string]: unknown;
}
export interface ListOptions {
  /** Ask the server even if the last answer is still fresh. */
  fresh?: boolean;
}

export class Client {
  readonly #options: ConnectOptions;
  readonly #conversation: ClientConversation;
  readonly #calls: ToolCalls;
  readonly #secure: SecureCalls;
  readonly #changes: ChangeFeed;
  readonly #lists: Record<"resources" | "templates" | "prompts", CachedList>;
  #discovery: { value: Discovery; freshUntil: number } | undefined;

  constructor(transport: ClientTransport, options: ConnectOptions) {
    this.#options = options;
    const resultTypes = options.resultTypes ?? [];
    this.#conversation = new ClientConversation(transport, options, {
      notification: (message) => this.#onNotification(message),
      change: (change, isAddressed) => this.#onChange(change, isAddressed),
      renewed: () => void this.#onRenewed(),
    });
    this.#calls = new ToolCalls(this.#conversation, resultTypes, (message) => this.#tell(options.onWarning, message));
    this.#secure = new SecureCalls(this.#conversation, this.#calls, {
      ...options,
      transport: transport.kind,
      resultTypes,
    });
    this.#changes = new ChangeFeed(this.#conversation);
    this.#lists = {
      resources: this.#list("resources/list", "resources"),
      templates: this.#list("resources/templates/list", "resourceTemplates"),
      prompts: this.#list("prompts/list", "prompts"),
    };
  }

  /** Called by `connect`. */
  async open(): Promise<void> {
    await this.#conversation.open();
    const { discovery } = this.#conversation;
    this.#discovery = { value: discovery, freshUntil: performance.now() + ttlOf(discovery.result) };
    if (this.era === "legacy" && this.#options.logLevel !== undefined && discovery.capabilities.logging) {
      await this.setLevel(this.#options.logLevel);
    }
    if (this.#options.onListChanged && this.era === "modern") await this.#watchLists();
  }

  get revision(): RevisionName {
    return this.#conversation.revision.name as RevisionName;
  }

  get era(): "legacy" | "modern" {
    return this.#conversation.revision.era;
  }

  /** What the server said about itself when the connection began. */
  get server(): Discovery {
    return this.#conversation.discovery;
  }

  /** What arrived and was dropped. */
  get stats(): ConversationStats {
    return this.#conversation.stats;
  }

  /** What the server offers. Older revisions said it once, in the handshake. */
  async discover(options: RequestOptions & ListOptions = {}): Promise<Discovery> {
    const known = this.#discovery;
    if (this.era === "legacy") return this.server;
    if (!options.fresh && known && performance.now() < known.freshUntil) return known.value;
    const result = await this.#conversation.request("server/discover", {}, this.#within(options, "discoveryMs"));
    const value = readDiscovery(result) ?? { ...this.server, result };
    this.#discovery = { value, freshUntil: performance.now() + ttlOf(result) };
    return value;
  }

  async listTools(options: ListOptions = {}): Promise<ToolDefinition[]> {
    return this.#calls.list(options.fresh);
  }

  /** Why `listTools` left a tool out, if it did. */
  rejectedTool(name: string): string | undefined {
    return this.#calls.rejection(name);
  }

  /** Calls a tool and gives its result as it came, `isError` and all. Not for a client with a gate. */
  async callTool(name: string, args: JsonObject = {}, options: RequestOptions = {}): Promise<ToolResult> {
    this.#refuseWithGate("callTool");
    return this.#calls.call({ name, arguments: args }, this.#guarded(options));
  }

  /** Gate first, then the wire, then the record. Anything but success is thrown, as one of four families. */
  async callToolSecure(tool: string, args: JsonObject, context: CallerContext): Promise<ToolResult> {
    return this.#secure.call(tool, args, this.#guarded(context));
  }

  /**
   * Several calls; what each ended with stands at its place. One JSON-RPC batch where the revision has batches,
   * otherwise a few at a time. With a context every call goes through the gate by itself.
   */
  async batchCalls(
    calls: readonly ToolCall[],
    options: RequestOptions | CallerContext = {},
  ): Promise<PromiseSettledResult<ToolResult>[]> {
    const guarded = this.#guarded(options);
    if (!("agent" in guarded)) {
      this.#refuseWithGate("batchCalls without a context");
      return this.#calls.batch(calls, guarded);
    }
    return this.#calls.severally(calls, (call) => this.#secure.call(call.name, call.arguments ?? {}, guarded));
  }

  /** Asks the server what is wrong with these arguments, without running anything. */
  async validate(name: string, args: JsonObject, options: RequestOptions = {}): Promise<JsonObject> {
    return this.#conversation.request(
      "tools/validate",
      { name, arguments: args },
      this.#within(options, "validationMs"),
    );
  }

  async listResources(options: ListOptions = {}): Promise<ResourceDefinition[]> {
    return (await this.#lists.resources.get(options.fresh)) as unknown as ResourceDefinition[];
  }

  async listResourceTemplates(options: ListOptions = {}): Promise<ResourceTemplateDefinition[]> {
    return (await this.#lists.templates.get(options.fresh)) as unknown as ResourceTemplateDefinition[];
  }

  async readResource(uri: string, options: RequestOptions = {}): Promise<ReadResult> {
    return (await this.#rounds("resources/read", { uri }, options)) as unknown as ReadResult;
  }

  async listPrompts(options: ListOptions = {}): Promise<PromptDefinition[]> {
    return (await this.#lists.prompts.get(options.fresh)) as unknown as PromptDefinition[];
  }

  async getPrompt(
    name: string,
    args: Record<string, string> = {},
    options: RequestOptions = {},
  ): Promise<PromptResult> {
    return (await this.#rounds("prompts/get", { name, arguments: args }, options)) as unknown as PromptResult;
  }

  /** `ref` is `{ type: "ref/prompt", name }` or `{ type: "ref/resource", uri }`. */
  async complete(
    ref: JsonObject,
    argument: { name: string; value: string },
    context?: { arguments?: Record<string, string> },
    options: RequestOptions = {},
  ): Promise<CompleteResult> {
    const params: JsonObject = { ref, argument, ...(context ? { context: context as JsonObject } : {}) };
    const result = await this.#conversation.request("completion/complete", params, this.#within(options, "toolMs"));
    return result as unknown as CompleteResult;
  }

  /** From now on log messages of this level and above, where the server has any. */
  async setLevel(level: LogLevel): Promise<void> {
    this.#conversation.logLevel = level;
    if (this.era === "legacy") {
      await this.#conversation.request("logging/setLevel", { level }, this.#within({}, "discoveryMs"));
    }
  }

  /** Whether the server is there. 2026-07-28 has no `ping`, so it is asked what it offers. */
  async ping(options: RequestOptions = {}): Promise<void> {
    const method = this.era === "legacy" ? "ping" : "server/discover";
    await this.#conversation.request(method, {}, this.#within(options, "discoveryMs"));
  }

  /** Hears of changes until the subscription is closed. */
  async listen(filter: SubscriptionFilter, listener: (change: ChangeEvent) => void): Promise<Subscription> {
    return this.#changes.listen(filter, (change) => this.#tell(listener, change));
  }

  /** Hears of changes of one resource. */
  async subscribe(uri: string, listener: (uri: string) => void): Promise<Subscription> {
    return this.listen({ resourceSubscriptions: [uri] }, () => listener(uri));
  }

  /** The list of roots is not what it was. Only the handshake revisions can be told. */
  async rootsChanged(): Promise<void> {
    if (this.era === "legacy") await this.#conversation.notify("notifications/roots/list_changed");
  }

  /** Any request, its result as it came: no rounds, no cache. */
  async request(method: string, params: JsonObject = {}, options: RequestOptions = {}): Promise<JsonObject> {
    if (method === "tools/call") this.#refuseWithGate("a plain tools/call");
    return this.#conversation.request(method, params, this.#within(options, "toolMs"));
  }

  async notify(method: string, params: JsonObject = {}): Promise<void> {
    await this.#conversation.notify(method, params);
  }

  async close(): Promise<void> {
    await this.#conversation.close();
  }

  #within(options: RequestOptions, timeout: "toolMs" | "discoveryMs" | "validationMs"): HowToAsk {
    return { ...this.#guarded(options), timeoutMs: options.timeoutMs ?? this.#conversation.timeouts[timeout] };
  }

  /** What a caller's callback throws must not reach the transport that delivered the message. */
  #guarded<T extends RequestOptions>(options: T): T {
    const onProgress = options?.onProgress;
    return onProgress ? { ...options, onProgress: (progress) => this.#tell(onProgress, progress) } : options;
  }

  #tell<A>(callback: ((argument: A) => void) | undefined, argument: A): void {
    try {
      callback?.(argument);
    } catch (error) {
      if (callback !== this.#options.onWarning)
        this.#tell(this.#options.onWarning, `a callback threw: ${String(error)}`);
    }
  }

  #refuseWithGate(what: string): void {
    if (!this.#options.gate) return;
    throw new PolicyViolation("PolicyDeny", `this client has a gate, and ${what} would go past it; use callToolSecure`);
  }

  #rounds(method: string, params: JsonObject, options: RequestOptions): Promise<JsonObject> {
    const how = this.#within(options, "toolMs");
    return inRounds({
      method,
      limits: this.#conversation.limits,
      resultTypes: this.#options.resultTypes ?? [],
      mayAsk: this.#conversation.revision.resultType,
      send: (extra) => this.#conversation.request(method, { ...params, ...extra }, how),
      answer: (asked, question) => this.#conversation.answer(asked, question, options.signal),
    });
  }

  #list(method: string, key: string): CachedList {
    return new CachedList(() =>
      readPages(method, key, this.#conversation.limits, (params) =>
        this.#conversation.request(method, params, this.#within({}, "discoveryMs")),
      ),
    );
  }

  /** Keeps a stream open that tells of lists, where the server has any to tell of. Resolves when it is open. */
  async #watchLists(): Promise<void> {
    const { capabilities } = this.server;
    const changing = (area: string): boolean => {
      const value = capabilities[area];
      return isJsonObject(value) && value.listChanged === true;
    };
    const filter: SubscriptionFilter = {
      toolsListChanged: changing("tools"),
      promptsListChanged: changing("prompts"),
      resourcesListChanged: changing("resources"),
    };
    if (!Object.values(filter).includes(true)) return;
    await this.#changes.watch(filter, (problem) => {
      // Changes without a listener are lost.
      this.#forgetAll();
      this.#tell(this.#options.onWarning, `changes of lists are not heard: ${problem}`);
    });
  }

  #onNotification(message: Notification): void {
    if (message.method === "notifications/message") return this.#tell(this.#options.onLog, logEntry(message.params));
    this.#tell(this.#options.onNotification, message);
  }

  #onChange(change: ChangeEvent, isAddressed: boolean): void {
    if (change.kind === "resource") this.#tell(this.#options.onResourceUpdated, change.uri);
    else {
      this.#forget(change.kind);
      this.#tell(this.#options.onListChanged, change.kind);
    }
    if (!isAddressed) this.#changes.change(change);
  }

  #forget(kind: ListKind): void {
    switch (kind) {
      case "tools":
        return this.#calls.changed();
      case "prompts":
        return this.#lists.prompts.invalidate();
      case "resources":
        this.#lists.resources.invalidate();
        this.#lists.templates.invalidate();
    }
  }

  #forgetAll(): void {
    for (const kind of ["tools", "prompts", "resources"] as const) this.#forget(kind);
  }

  async #onRenewed(): Promise<void> {
    this.#forgetAll();
    try {
      if (this.#conversation.logLevel !== undefined) await this.setLevel(this.#conversation.logLevel);
      await this.#changes.renew();
    } catch (error) {
      this.#tell(this.#options.onWarning, `after a new session not everything could be asked again: ${String(error)}`);
    }
  }
}

function logEntry(params: JsonObject | undefined): LogEntry {
  const { level = "info", logger, data } = (params ?? {}) as { level?: LogLevel; logger?: JsonValue; data?: JsonValue };
  return { level, ...(typeof logger === "string" ? { logger } : {}), data };
}
