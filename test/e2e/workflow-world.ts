// A gateway that serves a workflow, with tools that note what really ran.

import { createHash } from "node:crypto";
import type { Identify } from "../../src/auth/index.js";
import { createGateway, type Endpoint, toolSummaries } from "../../src/gateway/index.js";
import { ajvValidator } from "../../src/lattice/fixtures/ajv.js";
import * as lattice from "../../src/lattice/index.js";
import { defineServer, type ServerBuilder } from "../../src/mcp/server/index.js";
import { type Listener, listenHttp } from "../../src/mcp/transports/index.js";
import {
  createGate,
  type DelegationKeys,
  type Gate,
  generateDelegationKeys,
  handOnDelegation,
  mintDelegation,
  spendDelegation,
} from "../../src/policy/index.js";
import type { LoadedWorkflow } from "../../src/runtime/workflow/load.js";
import { emitPolicy, inForce } from "../../src/runtime/workflow/serving.js";

const ajv = ajvValidator();
const compiled = new Map<string, (value: unknown) => boolean>();

/** Generated workflows use few schemas, and Ajv takes its time for each. */
const validator: lattice.InclusionValidator = (schema) => {
  const key = JSON.stringify(schema);
  let check = compiled.get(key);
  if (check === undefined) compiled.set(key, (check = ajv(schema)));
  return check;
};

export function load(file: unknown): LoadedWorkflow {
  const text = JSON.stringify(file);
  const workflow = lattice.parseWorkflow(text);
  const analysis = lattice.analyse(workflow, { validator });
  const hash = createHash("sha256").update(text).digest("hex");
  return { lattice, file: "workflow.json", hash, workflow, analysis, violations: analysis.violations() };
}

/** Whether the analysis says that an agent can come to hold this very call. */
export function holds({ analysis }: LoadedWorkflow, agent: string, capability: string, value: unknown): boolean {
  const accepts = (type: lattice.ValueType): boolean =>
    type.is === "schema" ? validator(type.schema)(value) : type.of[type.is === "all" ? "every" : "some"](accepts);
  const held = analysis.scope(agent).get(capability);
  return held !== undefined && accepts(held.arguments);
}

export interface Ran {
  readonly tool: string;
  readonly args: unknown;
}

/** The tools of a workflow; each call that reaches one is noted. */
export function notingServer({ workflow }: LoadedWorkflow, ran: Ran[]): ServerBuilder {
  const server = defineServer({ name: "noting", version: "1.0.0" });
  for (const [capability, { arguments: type }] of workflow.capabilities) {
    const name = workflow.servedAs?.get(capability) ?? capability;
    const schema = (type.is === "schema" ? type.schema : { type: "object" }) as { type: "object" };
    const run = (args: unknown): string => {
      ran.push({ tool: name, args });
      return "done";
    };
    server.tool(name, name, schema, run, { noGuardrailRequired: true });
  }
  return server;
}

export interface World {
  readonly loaded: LoadedWorkflow;
  readonly keys: DelegationKeys;
  readonly gate: Gate;
  readonly identify: Identify;
  readonly server: ServerBuilder;
  readonly endpoint: Endpoint;
  readonly ran: Ran[];
}

export function openWorld(file: unknown, keys = generateDelegationKeys()): World {
  const loaded = load(file);
  const ran: Ran[] = [];
  const server = notingServer(loaded, ran);
  const workflow = inForce(loaded, { keys: () => keys });
  const { text } = emitPolicy(loaded, { app: "local", argumentsElsewhere: true });
  const gate = createGate({ policy: text, tools: toolSummaries(server), checks: workflow.checks() });
  const identify = workflow.identify();
  const endpoint = createGateway({ server, gate, identify });
  return { loaded, keys, gate, identify, server, endpoint, ran };
}

/** The token of the last agent of a way that begins at a root. */
export function tokenAlong(keys: DelegationKeys, [root, ...rest]: readonly string[]): string {
  return rest.reduce((token, to) => handOnDelegation(token, { to }), mintDelegation(keys, { agent: root as string }));
}

export interface Live {
  readonly world: World;
  readonly listener: Listener;
  close(): Promise<void>;
  /** Calls a tool over HTTP as the agent at the end of a way. Undefined when it ran, else the rule that was against it. */
  call(way: readonly string[], tool: string, args: unknown): Promise<string | undefined>;
}

export async function openLive(file: unknown): Promise<Live> {
  const world = openWorld(file);
  const listener = await listenHttp(world.endpoint, { host: "127.0.0.1", port: 0 });
  return {
    world,
    listener,
    async close() {
      await listener.close();
      world.endpoint.close();
    },
    async call(way, tool, args) {
      const delegation = spendDelegation(tokenAlong(world.keys, way));
      const response = await fetch(new URL(`/tools/${tool}`, listener.url), {
        method: "POST",
        headers: { "content-type": "application/json", "portcullis-delegation": delegation },
        body: JSON.stringify(args),
      });
      const body = (await response.json()) as { error?: { rule?: string; reason?: string } };
      return response.ok ? undefined : (body.error?.rule ?? body.error?.reason ?? String(response.status));
    },
  };
}
