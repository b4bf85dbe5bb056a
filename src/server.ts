// `portcullis/server`: a schema-first MCP server. What it offers is defined step by step; every call to it takes the
// same way through the gate as everywhere else.

import { createGateway, type Endpoint, type GatewayOptions } from "./gateway/index.js";
import { isLoopbackHost, type JsonObject } from "./mcp/index.js";
import { type InvokeOptions, ServerBuilder, type ServerOptions, type ToolResult } from "./mcp/server/index.js";
import type {
  HttpServerOptions,
  Listener,
  StdioServerOptions,
  TcpServerOptions,
  TransportHandler,
  WebSocketServerOptions,
} from "./mcp/transports/index.js";
import {
  type Approvals,
  type Check,
  type FlowLabels,
  flowRules,
  type Gate,
  type Guardrail,
  InformationFlow,
  type Limit,
  type PolicySet,
  type Principal,
} from "./policy/index.js";

export type { GatewayLimits } from "./gateway/index.js";
export * from "./mcp/server/index.js";
export type { Listener } from "./mcp/transports/index.js";
export type { Guardrail, GuardrailCall, Limit, Principal } from "./policy/index.js";

/** Everyone may call everything: an explicit choice, because no policy at all denies every call. */
export const permitAll = "permit (principal, action, resource);";

export interface RunOptions extends Omit<GatewayOptions, "server" | "gate"> {
  /** Cedar text, or a set already loaded. Nothing means that every call is denied. */
  policy?: string | PolicySet;
  guardrails?: readonly Guardrail[];
  rateLimits?: readonly Limit[];
  approvals?: Approvals;
  /** Further checks of every decision. */
  checks?: readonly Check[];
  /** Labels of information flow: what results carry and what calls do. */
  flow?: FlowLabels;
  /** Decide and record, but enforce nothing of the policy. */
  observe?: boolean;
  /** A gate that is already built, in place of all the options above. */
  gate?: Gate;
}

export type ListenOptions =
  | ({ transport: "stdio" } & StdioServerOptions)
  | ({ transport: "http" } & HttpServerOptions)
  | ({ transport: "websocket" } & WebSocketServerOptions)
  | ({ transport: "tcp" } & TcpServerOptions);

export function createServer(nameOrOptions: string | ServerOptions, options: RunOptions = {}): Server {
  return new Server(nameOrOptions, options);
}

export class Server extends ServerBuilder {
  readonly #options: RunOptions;
  readonly #listeners: Listener[] = [];
  #endpoint: Endpoint | undefined;

  constructor(nameOrOptions: string | ServerOptions, options: RunOptions) {
    super(nameOrOptions);
    this.#options = options;
  }

  /** What the author decided for these tools. `portcullis serve` applies it to the application that it serves. */
  get runOptions(): Readonly<RunOptions> {
    return this.#options;
  }

  /**
   * What any transport can stand in front of. Made when it is first asked for: a policy is checked against the tools
   * that are there then, and a policy text again whenever tools come or go.
   */
  get handler(): Endpoint {
    this.#endpoint ??= this.#open();
    return this.#endpoint;
  }

  #open(): Endpoint {
    const { gate, policy, guardrails, rateLimits, approvals, checks, flow, observe, ...rest } = this.#options;
    // A policy that is already loaded has the rules that its author wanted.
    const text = typeof policy === "string" ? [policy, ...Object.values(flowRules(flow))].join("\n") : policy;
    const labels = flow ? { flow: new InformationFlow(flow) } : {};
    const parts = { policy: text, guardrails, limits: rateLimits, approvals, checks, observe, ...labels };
    return createGateway({ ...rest, server: this, gate: gate ?? parts });
  }

  /**
   * Calls one of the tools from this process. The call passes the gate like a call of a client, as `principal` or as the
   * caller that `identify` finds for a peer in memory, and is recorded. Throws a `Fault` when it is denied or fails.
   */
  invoke(name: string, input: JsonObject, options?: InvokeOptions & { principal?: Principal }): Promise<ToolResult> {
    return this.handler.invoke(name, input, options);
  }

  /** Serves on stdio unless said otherwise. Each transport is loaded only when it is used. */
  async listen(options: ListenOptions = { transport: "stdio" }): Promise<Listener> {
    if (this.#options.identify === undefined) requireLocal(options);
    const listener = await listenOn(this.handler, options);
    this.#listeners.push(listener);
    return listener;
  }

  async close(): Promise<void> {
    this.#endpoint?.close();
    await Promise.all(this.#listeners.splice(0).map((listener) => listener.close()));
  }
}

/** Without `identify` every caller is the local user, so only this machine may connect. */
function requireLocal(options: ListenOptions): void {
  if (options.transport === "stdio" || options.socketPath !== undefined) return;
  const names = [options.host ?? "127.0.0.1", ...("allowedHosts" in options ? (options.allowedHosts ?? []) : [])];
  const exposed = names.find((name) => !isLoopbackHost(name));
  if (exposed === undefined) return;
  throw new TypeError(
    `listen: \`${exposed}\` is not a loopback address and callers are not identified; pass \`identify\` to createServer, or listen on 127.0.0.1`,
  );
}

async function listenOn(handler: TransportHandler, options: ListenOptions): Promise<Listener> {
  switch (options.transport) {
    case "stdio":
      return (await import("./mcp/transports/stdio.js")).listenStdio(handler, options);
    case "http":
      return (await import("./mcp/transports/http.js")).listenHttp(handler, options);
    case "websocket":
      return (await import("./mcp/transports/websocket.js")).listenWebSocket(handler, options);
    case "tcp":
      return (await import("./mcp/transports/tcp.js")).listenTcp(handler, options);
    default:
      throw new TypeError(
        `listen: there is no transport ${JSON.stringify((options as { transport?: unknown }).transport)}; known are "stdio", "http", "websocket" and "tcp"`,
      );
  }
}
