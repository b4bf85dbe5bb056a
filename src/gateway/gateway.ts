// `createGateway` puts a pipeline with safe defaults behind one endpoint, which any transport can serve.

import { type Identify, localIdentity } from "../auth/index.js";
import type { Ledger } from "../ledger/index.js";
import { RetainedBytes } from "../mcp/index.js";
import type { ServerDefinition } from "../mcp/server/index.js";
import {
  CallsInFlight,
  callInside,
  DEFAULT_GATEWAY_LIMITS,
  type GatewayLimits,
  Refusals,
  type Relayed,
  routeFor,
  StateCipher,
  sendClientRequest,
} from "../pipeline/index.js";
import {
  createGate,
  type Gate,
  type GateOptions,
  loadPolicy,
  MemoryApprovals,
  type ToolSummary,
} from "../policy/index.js";
import { createTelemetry, type Telemetry } from "../telemetry/index.js";
import type { Gateway } from "./application-types.js";
import { Endpoint } from "./endpoint.js";
import { Lists } from "./lists.js";

export interface GatewayOptions {
  server: ServerDefinition;
  /** A gate, or what one is made of. Nothing means that every call is denied. */
  gate?: Gate | GateOptions;
  ledger?: Ledger;
  identify?: Identify;
  telemetry?: Telemetry;
  /** Shared by the endpoints of one process. */
  retained?: RetainedBytes;
  calls?: CallsInFlight;
  limits?: Partial<GatewayLimits>;
  plainMethods?: Iterable<string>;
  readOnlyTools?: Iterable<string>;
  unguardedTools?: Iterable<string>;
  keepArguments?: boolean;
  /** The page of an approval request, as callers see its URL. */
  approvalUrl?: (challenge: string) => string;
}

export function createGateway(options: GatewayOptions): Endpoint {
  const { server } = options;
  // A library logs errors only; `serve` logs more.
  const telemetry = options.telemetry ?? createTelemetry({ log: { level: "error" } });
  const gate = isGate(options.gate) ? options.gate : gateFor(server, options.gate ?? {}, telemetry);
  const limits = { ...DEFAULT_GATEWAY_LIMITS, ...options.limits };
  const retained = options.retained ?? new RetainedBytes(limits);
  if (gate.approvals instanceof MemoryApprovals) gate.approvals.chargeTo((caller) => retained.of(caller));
  const gateway: Gateway = {
    server,
    gate,
    ledger: options.ledger,
    recordDenials: true,
    identify: options.identify ?? localIdentity(),
    telemetry,
    limits,
    retained,
    calls: options.calls ?? new CallsInFlight(limits, (bound) => options.telemetry?.metrics.shed.inc(bound)),
    plainMethods: new Set(options.plainMethods),
    readOnlyTools: new Set(options.readOnlyTools),
    unguardedTools: new Set(options.unguardedTools),
    keepArguments: options.keepArguments ?? false,
    approvalUrl: options.approvalUrl,
    stateCipher: new StateCipher(),
    lists: new Lists(server),
    refusals: new Refusals({ perMinute: limits.refusalsPerMinute, ledger: options.ledger, telemetry }),
    resolveRoute: (principal, method, params) => routeFor(gateway, principal, method, params),
    callTool: (outer, tool, args) => callInside(gateway, outer, tool, args),
    sendClientRequest: (request) => sendClientRequest(gateway, request),
  };
  return new Endpoint(gateway);
}

/** A policy given as text is for the tools that are there: when those change, it is loaded again. */
function gateFor(server: ServerDefinition, options: GateOptions, telemetry: Telemetry): Gate {
  const gate = createGate({ tools: toolSummaries(server), ...options });
  const { policy, tools } = options;
  if (typeof policy !== "string" || tools !== undefined) return gate;
  let isDue = false;
  const reload = (): void => {
    isDue = false;
    try {
      // A rule may outlive the tool that it names.
      const how = { unknownTools: "warn" } as const;
      gate.swap(loadPolicy([{ file: "policy.cedar", text: policy }], toolSummaries(server), how));
    } catch (error) {
      const problem = (error as Error).message;
      telemetry.log.error("the policy does not match the tools any more; it stays as it was loaded", { problem });
    }
  };
  server.onChange(({ kind }) => {
    if (kind !== "tools" || isDue) return;
    isDue = true;
    // Once for all the tools of this turn, and before the clients that are notified can call.
    queueMicrotask(reload);
  });
  return gate;
}

function isGate(gate: Gate | GateOptions | undefined): gate is Gate {
  return gate !== undefined && "decide" in gate;
}

/** What a policy is checked against. */
export function toolSummaries(server: ServerDefinition, readOnlyTools: ReadonlySet<string> = new Set()): ToolSummary[] {
  return [...server.tools.values()].map((tool) => ({
    name: tool.definition.name,
    server: (tool as { relayed?: Relayed }).relayed?.server ?? server.info.name,
    inputSchema: tool.definition.inputSchema,
    tags: tool.tags,
    readOnly: readOnlyTools.has(tool.definition.name),
  }));
}
