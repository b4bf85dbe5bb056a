// What the snippets of misuses.ts find around them: a real server behind its gate, and agents in every phase.

import { z } from "zod";
import { type Agent, type CapabilitiesOf, createAgent, type GuardrailToken, toolset } from "../../src/client/index.js";
import { createServer, defineTool, permitAll, type Server, structured } from "../../src/server.js";

export interface Tools {
  "fs.read": { args: { path: string; encoding?: "utf8" | "base64" }; result: { content: string } };
  "fs.write": { args: { path: string; content: string }; result: { bytes: number } };
  "fs.remove": { args: { path: string }; result: { removed: boolean } };
}
const files = toolset<Tools>()({
  names: ["fs.read", "fs.write", "fs.remove"],
  noGuardrailRequired: ["fs.read"],
});
export type Files = CapabilitiesOf<typeof files>;

/** `ran` names every call that reached a tool. */
export function fileServer(): Server & { ran: string[] } {
  const ran: string[] = [];
  const open = { noGuardrailRequired: true };
  const server = createServer({ name: "files", version: "1.0.0" }, { policy: permitAll })
    .tool(
      defineTool({
        ...open,
        name: "fs.read",
        description: "Reads",
        input: z.strictObject({ path: z.string(), encoding: z.enum(["utf8", "base64"]).optional() }),
        output: z.object({ content: z.string() }),
        handler: ({ path }) => {
          ran.push(`read ${path}`);
          return structured({ content: `of ${path}` });
        },
      }),
    )
    .tool(
      defineTool({
        ...open,
        name: "fs.write",
        description: "Writes",
        input: z.strictObject({ path: z.string(), content: z.string() }),
        output: z.object({ bytes: z.int() }),
        handler: ({ path, content }) => {
          ran.push(`write ${path}`);
          return structured({ bytes: Buffer.byteLength(content) });
        },
      }),
    )
    .tool(
      defineTool({
        ...open,
        name: "fs.remove",
        description: "Removes",
        input: z.strictObject({ path: z.string() }),
        output: z.object({ removed: z.boolean() }),
        handler: ({ path }) => {
          ran.push(`remove ${path}`);
          return structured({ removed: true });
        },
      }),
    );
  return Object.assign(server, { ran });
}

const pass = (): undefined => undefined;

/** Agents named by what they are: `planned` is not connected, `closed` no longer. */
export async function newWorld() {
  const server = fileServer();
  const guardrails = { "fs.write": pass, "fs.remove": pass };
  const planned = createAgent("planned", files, { app: "shop", guardrails });
  const root = await createAgent("root", files, { app: "shop", guardrails }).connect(server);
  const helper = root.delegate("helper", ["fs.read", "fs.write"], { guardrails: { "fs.write": pass } });
  const writer = root.delegate("writer", ["fs.write"], { guardrails: { "fs.write": pass } });
  const closed = await (await createAgent("closed", files, { app: "shop" }).connect(server)).close();
  return {
    server,
    files,
    createAgent,
    ofTools: toolset<Tools>(),
    planned,
    root,
    helper,
    writer,
    closed,
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
