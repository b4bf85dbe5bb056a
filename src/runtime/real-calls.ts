// What `doctor` finds by making real calls: one to each server of each application of the store, through a gateway of its
// own that decides and records them. Without applications it is one call to the demonstration, in a directory of its own.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { localIdentity } from "../auth/index.js";
import { type ServedApplication, toolSummaries } from "../gateway/index.js";
import { closeProcess } from "../host/index.js";
import type { Finding } from "../lib/finding.js";
import { type Client, connect } from "../mcp/client/index.js";
import type { ToolSummary } from "../policy/index.js";
import type { Storage } from "../storage/index.js";
import { causeOf } from "../upstream/index.js";
import { demonstration } from "./module.js";
import { startRemedies } from "./server-sandbox.js";
import { type GatewayRuntime, startGateway } from "./start.js";
import { LOCAL_APP } from "./store/open.js";

/** The caller, in policies and records. */
const AGENT = "doctor";
/** A server is started for its call. */
const SERVER_MS = 20_000;
const MAX_APPLICATIONS = 100;

interface RealCallOptions {
  readonly stateDir: string;
  readonly storage?: string;
  /** This application alone. */
  readonly app?: string;
}

export async function realCalls(options: RealCallOptions, hasServers: boolean): Promise<Finding[]> {
  // As `serve` does: servers are started by this process.
  closeProcess();
  try {
    return hasServers ? await callServers(options) : [await callDemonstration()];
  } catch (error) {
    return [{ check: "a real call", ok: false, detail: (error as Error).message, remedy: "see the message" }];
  }
}

/** The applications whose servers are called. */
export async function applicationsWithServers(storage: Storage): Promise<string[]> {
  const { items } = await storage.applications.list({ limit: MAX_APPLICATIONS });
  return items.filter(({ document }) => Object.keys(document.servers ?? {}).length > 0).map(({ id }) => id);
}

async function callServers(options: RealCallOptions): Promise<Finding[]> {
  let app = LOCAL_APP;
  const { app: only, ...places } = options;
  // Nothing listens: only this process can call under a name of its own choice.
  const runtime = await startGateway({
    ...places,
    telemetry: { log: { level: "critical" } },
    identity: async () => ({
      isLocalAccessOn: false,
      identify: (...call) => localIdentity({ app, agent: AGENT })(...call),
      close: async () => {},
    }),
  });
  const findings: Finding[] = [];
  try {
    for (app of await applicationsWithServers(runtime.storage)) {
      if (only === undefined || app === only) findings.push(...(await callApplication(runtime, app)));
    }
  } finally {
    await runtime.close();
  }
  return findings;
}

async function callApplication(runtime: GatewayRuntime, app: string): Promise<Finding[]> {
  const client = await connect(runtime.tenantRouter, { timeouts: { toolMs: SERVER_MS } });
  try {
    await client.listTools();
    const served = await runtime.applications.get(app);
    if (!served) return [];
    const findings: Finding[] = [];
    for (const server of served.upstreams.keys()) findings.push(await callServer(client, served, server));
    return findings;
  } finally {
    await client.close();
  }
}

async function callServer(client: Client, served: ServedApplication, server: string): Promise<Finding> {
  const check = `a real call to ${served.id}/${server}`;
  const remedy = `run \`portcullis server show ${served.id} ${server}\` while a gateway runs`;
  const count = served.toolsOf(server);
  if (count === 0) {
    const health = served.upstreams.get(server)?.health();
    const why =
      health && [health.lastError?.message, health.lastError?.cause ?? causeOf(health)].filter(Boolean).join("; ");
    const detail = `lists no tool (${health?.state}${why ? `: ${why}` : ""})`;
    const remedies = health ? startRemedies(served.id, server, health) : [];
    return { check, ok: false, detail, remedy: remedies.length === 0 ? remedy : remedies.join("; ") };
  }
  const tool = toolToCall(served, server);
  if (tool === undefined) {
    const detail = `lists ${count} tools; policy permits ${AGENT} none that only reads and needs no argument`;
    return { check, ok: true, detail };
  }
  const start = performance.now();
  const { isError, content } = await client.callTool(tool, {});
  const detail = `${tool} answered in ${Math.round(performance.now() - start)} ms`;
  if (!isError) return { check, ok: true, detail };
  const [first] = content as readonly { text?: string }[];
  return { check, ok: false, detail: `${tool} returned an error: ${first?.text ?? ""}`, remedy };
}

/** A call that changes nothing and that no approver is asked for. */
function toolToCall(served: ServedApplication, server: string): string | undefined {
  const { tools } = served.endpoint.gateway.server;
  const isPermitted = ({ name, tags, readOnly }: ToolSummary): boolean => {
    const resource = { type: "Tool", id: name, server, tags, readOnly } as const;
    const request = { app: served.id, agent: AGENT, scope: [], action: name, resource, arguments: {} };
    return served.gate.policy.decide({ ...request, transport: "memory", now: Date.now() }).effect === "permit";
  };
  return toolSummaries(served.endpoint.gateway.server).find((tool) => {
    const { required } = tool.inputSchema as { required?: readonly string[] };
    const isReading = tools.get(tool.name)?.definition.annotations?.readOnlyHint === true;
    return tool.server === server && isReading && (required ?? []).length === 0 && isPermitted(tool);
  })?.name;
}

async function callDemonstration(): Promise<Finding> {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-doctor-"));
  try {
    const { starterPolicy, ...served } = demonstration();
    const runtime = await startGateway({
      stateDir: dir,
      inProcess: { ...served, app: LOCAL_APP },
      ...(starterPolicy ? { starterPolicy } : {}),
      http: { host: "127.0.0.1", port: 0 },
      telemetry: { log: { level: "critical" } },
    });
    try {
      const client = await connect(runtime.listeners[0]?.url as string);
      const result = await client.callTool("math.add", { a: 2, b: 3 });
      await client.close();
      const sum = (result.structuredContent as { sum?: number } | undefined)?.sum;
      return { check: "a real call", ok: sum === 5, detail: `math.add 2 3 = ${sum}`, remedy: "report this" };
    } finally {
      await runtime.close();
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
