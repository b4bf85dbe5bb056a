// Analysis and gate on the same generated workflows.

import { expect } from "vitest";
import { toolSummaries } from "../../src/gateway/index.js";
import { entriesFor, type WorkflowFile } from "../../src/lattice/fixtures/workflows.js";
import type { CapabilityGrant } from "../../src/lattice/index.js";
import { type CallTarget, loadPolicy, makeIntent, spendDelegation } from "../../src/policy/index.js";
import { emitPolicy } from "../../src/runtime/workflow/serving.js";
import { holds, openLive, openWorld, tokenAlong, type World } from "./workflow-world.js";

const NUMBERS = [1, 2, 3, 4];

/** Every way without a circle from a root along declared delegations. */
function* ways({ loaded }: World): Iterable<readonly string[]> {
  const { agents, delegations } = loaded.workflow;
  const open = agents.filter(({ isRoot }) => isRoot).map(({ name }) => [name]);
  for (let way = open.pop(); way !== undefined; way = open.pop()) {
    yield way;
    const next = new Set(delegations.filter(({ from }) => from === way.at(-1)).map(({ to }) => to));
    for (const to of next) if (!way.includes(to)) open.push([...way, to]);
  }
}

/** What the gate says to one call of the last agent of a way. */
async function decided(world: World, way: readonly string[], tool: string, n: number): Promise<boolean> {
  const token = spendDelegation(tokenAlong(world.keys, way));
  const peer = { transport: "http", address: "127.0.0.1", headers: { "portcullis-delegation": token } };
  const principal = await world.identify(peer as never);
  if (principal.tools?.has(tool) !== true) return false;
  const target: CallTarget = {
    type: "Tool",
    name: tool,
    action: tool,
    binding: "local:noting",
    server: "noting",
    definitionHash: world.server.tools.get(tool)?.definitionHash ?? "",
    tags: [],
    readOnly: false,
    noGuardrailRequired: true,
    builtin: false,
  };
  const args = { n };
  const intent = makeIntent({ principal, method: "tools/call", target, arguments: args, forwarded: {} });
  const proposed = { principal, method: "tools/call", target, arguments: args, transport: "http" };
  const decision = await world.gate.decide(proposed, intent);
  return decision.permit !== undefined;
}

/**
 * The gate permits a call on some way exactly when the analysis says that it arrives and the allow list has it; the
 * emitted policy by itself permits exactly what the analysis says an agent can hold.
 */
export async function checkAgreement(file: WorkflowFile): Promise<{ decisions: number; permits: number }> {
  const world = openWorld(file);
  const { loaded, server } = world;
  const tools = toolSummaries(server);
  const { text, unsaid } = emitPolicy(loaded, { app: "local" });
  expect(unsaid).toEqual([]);
  const policy = loadPolicy([{ file: "emitted.cedar", text }], tools);
  const permitted = new Set<string>();
  let decisions = 0;
  for (const way of ways(world)) {
    for (const tool of server.tools.keys()) {
      for (const n of NUMBERS) {
        decisions++;
        const isPermitted = await decided(world, way, tool, n);
        const isExpected = arrives(file, way, tool, n) && allows(file.agents[way.at(-1) ?? ""]?.allow, tool, n);
        expect([way, tool, n, isPermitted]).toEqual([way, tool, n, isExpected]);
        if (isPermitted) permitted.add(`${way.at(-1)} ${tool} ${n}`);
      }
    }
  }
  const expected = new Set<string>();
  for (const { name: agent } of loaded.workflow.agents) {
    const allow = file.agents[agent]?.allow;
    for (const tool of server.tools.keys()) {
      for (const n of NUMBERS) {
        const isHeld = holds(loaded, agent, tool, { n });
        if (isHeld && allows(allow, tool, n)) expected.add(`${agent} ${tool} ${n}`);
        const { effect } = policy.decide({
          app: "local",
          agent,
          scope: [],
          action: tool,
          resource: { type: "Tool", id: tool, server: "noting", tags: [], readOnly: false },
          arguments: { n },
          transport: "http",
          approvedRules: [],
        });
        // A number that the tool does not take never gets as far as the policy.
        const isTaken = server.tools.get(tool)?.validate({ n });
        if ((await isTaken)?.ok === true)
          expect([agent, tool, n, effect]).toEqual([agent, tool, n, isHeld ? "permit" : "deny"]);
      }
    }
  }
  expect([...permitted].sort()).toEqual([...expected].sort());
  world.endpoint.close();
  return { decisions, permits: permitted.size };
}

function allows(allow: WorkflowFile["agents"][string]["allow"], tool: string, n: number): boolean {
  return allow === undefined || takesAll(entriesFor(allow, tool) ?? [false], n);
}

/** Read off the file itself: every agent is offered the tool, and every step lets the number through. */
function arrives(file: WorkflowFile, way: readonly string[], tool: string, n: number): boolean {
  const [server = "", name] = tool.split(".");
  const offered = way.every((agent) => file.agents[agent]?.servers.includes(server));
  const steps = way
    .slice(1)
    .every((to, i) =>
      file.delegations.some(
        ({ from, to: target, tools, arguments: narrowed }) =>
          from === way[i] &&
          target === to &&
          (tools?.includes(tool) ?? true) &&
          takesAll(entriesFor(narrowed ?? {}, tool) ?? [], n),
      ),
    );
  const own = file.servers[server]?.tools.find((each) => each.name === name)?.inputSchema;
  return offered && steps && takes(own, n);
}

function takesAll(schemas: readonly unknown[], n: number): boolean {
  return schemas.every((schema) => takes(schema, n));
}

function takes(schema: unknown, n: number): boolean {
  if (typeof schema === "boolean" || schema === undefined) return schema === true;
  return (schema as { properties: { n: { enum: number[] } } }).properties.n.enum.includes(n);
}

/**
 * Every witness over HTTP. Without allow lists the call at the end of the way runs; with them it is denied by the allow
 * list and nothing else, and nothing runs.
 */
export async function replayWitnesses(file: WorkflowFile): Promise<number> {
  const open = Object.fromEntries(Object.entries(file.agents).map(([name, { allow: _, ...agent }]) => [name, agent]));
  const closed = await openLive(file);
  const free = await openLive({ ...file, agents: open });
  let replayed = 0;
  const runs = async ({ agents, capability, argument }: CapabilityGrant): Promise<void> => {
    replayed++;
    expect(argument).toBeDefined();
    const before = free.world.ran.length;
    expect(await free.call(agents, capability, argument?.value)).toBeUndefined();
    expect(free.world.ran.slice(before)).toEqual([{ tool: capability, args: argument?.value }]);
  };
  try {
    for (const violation of closed.world.loaded.violations) {
      if (violation.kind === "rule") {
        for (const { grant } of violation.terms) await runs(grant);
        continue;
      }
      const { agents, capability, argument } = violation.grant;
      await runs(violation.grant);
      expect(await closed.call(agents, capability, argument?.value)).toBe("workflow.allow");
      expect(closed.world.ran).toEqual([]);
    }
  } finally {
    await closed.close();
    await free.close();
  }
  return replayed;
}
