// What the snippets of misuses.ts find around them: a real server behind its gate, and agents in every phase.

import { type Agent, createAgent, type GuardrailToken, toolset } from "../../src/mcp/client/index.js";
import { type Files, fileServer, files, type Tools } from "../../src/mcp/client/typed/fixtures/files.js";

const pass = (): undefined => undefined;

/** One for all: nothing can be done with it any more. */
let closed: ReturnType<typeof endedAgent> | undefined;

async function endedAgent() {
  const server = fileServer();
  const agent = await createAgent("closed", files, { app: "shop" }).connect(server);
  await server.close();
  return agent.close();
}

/** Agents named by what they are: `planned` is not connected, `closed` no longer. */
export async function newWorld() {
  const server = fileServer();
  const guardrails = { "fs.write": pass, "fs.remove": pass };
  const planned = createAgent("planned", files, { app: "shop", guardrails });
  const root = await createAgent("root", files, { app: "shop", guardrails }).connect(server);
  const helper = root.delegate("helper", ["fs.read", "fs.write"], { guardrails: { "fs.write": pass } });
  const writer = root.delegate("writer", ["fs.write"], { guardrails: { "fs.write": pass } });
  closed ??= endedAgent();
  return {
    server,
    files,
    createAgent,
    ofTools: toolset<Tools>(),
    planned,
    root,
    helper,
    writer,
    closed: await closed,
    always: Date.now() > 0,
    removeOne: async <Id extends string>(agent: Agent<Id, Pick<Files, "fs.remove">, "active">) =>
      agent.call("fs.remove", await agent.guard("fs.remove", { path: "a" })),
    writeAsHelper: async (
      agent: Agent<"helper", Pick<Files, "fs.write">, "active">,
      token: GuardrailToken<"fs.write", "helper">,
    ) => agent.call("fs.write", token),
    end: async (): Promise<void> => {
      await root.close().catch(() => {});
      await server.close();
    },
  };
}

export type World = Awaited<ReturnType<typeof newWorld>>;
