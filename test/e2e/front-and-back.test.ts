// The reference servers from npm, all at once behind a gateway, and clients that nobody here wrote in front of it.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { main, type Newcomer, newcomer } from "./first-hour.js";
import { inspect } from "./inspector.js";

const info = { name: "test", version: "1.0.0" };
const PREFIXES = ["everything", "filesystem", "memory", "thinking"];
/** One tool of each server, and what its answer holds. */
const calls = (files: string): [string, Record<string, unknown>, string][] => [
  ["everything.get-sum", { a: 20, b: 22 }, "42"],
  ["everything.echo", { message: "hello there" }, "hello there"],
  ["filesystem.read_text_file", { path: join(files, "plan.txt") }, "water the plants"],
  ["filesystem.list_directory", { path: files }, "plan.txt"],
  ["memory.read_graph", {}, "entities"],
  [
    "thinking.sequentialthinking",
    { thought: "hm", thoughtNumber: 1, totalThoughts: 1, nextThoughtNeeded: false },
    "thoughtHistoryLength",
  ],
];

interface Caller {
  callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<unknown>;
  listTools(): Promise<{ tools: { name: string }[] }>;
  listPrompts(): Promise<{ prompts: { name: string }[] }>;
  listResources(): Promise<{ resources: { uri: string }[] }>;
  readResource(which: { uri: string }): Promise<unknown>;
}

describe("four servers behind one gateway", { timeout: 120_000 }, () => {
  let world: Newcomer;
  let gateway: Awaited<ReturnType<Newcomer["serve"]>>;
  beforeAll(async () => {
    world = newcomer();
    expect(world.run("import", "--from", "claude-desktop", "--yes").code).toBe(0);
    const open = '@id("all") permit (principal, action, resource);';
    expect(world.run("app", "set", "local", "/policies", JSON.stringify({ "open.cedar": open })).code).toBe(0);
    gateway = await world.serve();
  }, 60_000);
  afterAll(() => world.close());

  const everythingWorks = async (client: Caller): Promise<void> => {
    const names = (await client.listTools()).tools.map(({ name }) => name);
    expect([...new Set(names.map((name) => name.split(".")[0]))].sort()).toEqual(PREFIXES);
    const answers = await Promise.all(
      calls(world.files).map(([name, args]) => client.callTool({ name, arguments: args })),
    );
    for (const [i, [name, , expected]] of calls(world.files).entries()) {
      expect(answers[i], name).not.toMatchObject({ isError: true });
      expect(JSON.stringify(answers[i]), name).toContain(expected);
    }
    expect((await client.listPrompts()).prompts.map(({ name }) => name)).toContain("everything.simple-prompt");
    const [resource] = (await client.listResources()).resources;
    expect(await client.readResource({ uri: resource?.uri as string })).toMatchObject({
      contents: [{ uri: resource?.uri }],
    });
  };

  it("four servers behind one gateway work with the official SDK v1 [H2 G2]", async () => {
    const client = new ClientV1(info);
    await client.connect(new HttpV1(new URL(gateway.url)));
    await everythingWorks(client as Caller);
    await client.close();
  });

  it.each(["2026-07-28", "2025-11-25"])(
    "four servers behind one gateway work with the official SDK v2 in revision %s [G2]",
    async (revision) => {
      const versionNegotiation = revision === "2026-07-28" ? ({ mode: { pin: revision } } as const) : undefined;
      const client = new ClientV2(info, versionNegotiation ? { versionNegotiation } : undefined);
      await client.connect(new HttpV2(new URL(gateway.url)));
      expect(client.getNegotiatedProtocolVersion()).toBe(revision);
      await everythingWorks(client as unknown as Caller);
      await client.close();
    },
  );

  it("four servers behind one gateway work with the inspector, which starts Portcullis itself [H2]", () => {
    const config = join(world.home, "inspector.json");
    const args = [main, "--dir", world.data, "serve", "--stdio"];
    writeFileSync(config, JSON.stringify({ mcpServers: { "portcullis-host": { command: process.execPath, args } } }));
    const env = { ...process.env, HOME: world.home } as Record<string, string>;
    const listed = inspect(config, ["--method", "tools/list"], { env });
    const names = (listed.answer?.tools ?? []).map(({ name }: { name: string }) => name) as string[];
    expect([...new Set(names.map((name) => name.split(".")[0]))].sort(), listed.text).toEqual(PREFIXES);
    const call = [
      "--method",
      "tools/call",
      "--tool-name",
      "everything.get-sum",
      "--tool-arg",
      "a=1",
      "--tool-arg",
      "b=2",
    ];
    const sum = inspect(config, call, { env });
    expect(JSON.stringify(sum.answer), sum.text).toContain("The sum of 1 and 2 is 3");
  });
});
