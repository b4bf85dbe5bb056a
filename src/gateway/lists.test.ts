// Lists of many tools: built between the messages of others, once for all who see the same.

import { describe, expect, it } from "vitest";
import { ByteBudget, type JsonObject } from "../mcp/index.js";
import type { ServerDefinition, Tool } from "../mcp/server/index.js";
import type { Principal } from "../policy/index.js";
import type { Gateway } from "./application-types.js";
import { type ListCaller, Lists } from "./lists.js";

const TOOLS = 5_000;
const PAGE = 1_000;

function manyTools(): ServerDefinition {
  const inputSchema = { type: "object", properties: { path: { type: "string", description: "p".repeat(200) } } };
  const tools = Array.from({ length: TOOLS }, (_, i): [string, Tool] => [
    `tool-${i}`,
    { definition: { name: `tool-${i}`, inputSchema }, tags: [], metadata: {} } as unknown as Tool,
  ]);
  const info = { name: "many", version: "1" };
  const empty = { resources: new Map(), templates: [], prompts: new Map() };
  return { info, tools: new Map(tools), ...empty, onChange: () => () => {} } as unknown as ServerDefinition;
}

const by = (agent: string): ListCaller => {
  const principal: Principal = { app: "shop", agent, scope: [], via: "key" };
  return { principal, transport: "http" };
};

describe("the list of 5,000 tools", () => {
  const world = (budget?: ByteBudget): { lists: Lists; gateway: Gateway } => {
    const outlook = ({ agent, resource }: { agent: string; resource: { id: string } }): string => {
      if (agent === "narrow") return resource.id === "tool-7" ? "challenge" : "never";
      return "possible";
    };
    const gate = { policy: { hash: "p", outlook }, observe: false };
    const gateway = { gate, limits: { pageSize: PAGE }, readOnlyTools: new Set() } as unknown as Gateway;
    return { lists: new Lists(manyTools(), budget), gateway };
  };
  const turnsDuring = async (work: Promise<unknown>): Promise<number> => {
    let isOver = false;
    void work.finally(() => {
      isOver = true;
    });
    let turns = 0;
    while (!isOver) {
      await new Promise(setImmediate);
      turns++;
    }
    return turns;
  };

  it("the list of 5,000 tools is built in slices, so that other messages are answered meanwhile [U12]", async () => {
    const { lists, gateway } = world();
    const listing = Promise.all([
      lists.page(gateway, by("ann"), "tools/list", undefined),
      lists.document(gateway, by("ann"), "openapi").catch(() => {}),
    ]);
    expect(await turnsDuring(listing)).toBeGreaterThan(3);
  });

  it("the list of 5,000 tools is complete over its pages, and kept for the caller", async () => {
    const { lists, gateway } = world();
    const names: string[] = [];
    let cursor: string | undefined;
    do {
      const inside = await lists.page(gateway, by("ann"), "tools/list", cursor);
      const page = JSON.parse(`{${inside}}`) as { tools: { name: string }[]; nextCursor?: string };
      names.push(...page.tools.map(({ name }) => name));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    expect(names).toEqual(Array.from({ length: TOOLS }, (_, i) => `tool-${i}`));
    expect(lists.page(gateway, by("ann"), "tools/list", undefined)).toBeTypeOf("string");
  });

  it("the list of 5,000 tools is kept once for callers that see the same, and apart for those that see less", async () => {
    const { lists, gateway } = world();
    const stringify = JSON.stringify;
    let written = 0;
    JSON.stringify = ((...given: Parameters<typeof stringify>) => {
      if ((given[0] as JsonObject | undefined)?.inputSchema !== undefined) written++;
      return stringify(...given);
    }) as typeof stringify;
    try {
      const first = await lists.page(gateway, by("ann"), "tools/list", undefined);
      expect(await lists.page(gateway, by("bob"), "tools/list", undefined)).toBe(first);
      expect(written).toBe(TOOLS);
      const narrow = await lists.page(gateway, by("narrow"), "tools/list", undefined);
      expect(narrow).toContain('"portcullis/outlook":"challenge"');
      expect(JSON.parse(`{${narrow}}`).tools).toHaveLength(1);
    } finally {
      JSON.stringify = stringify;
    }
  });

  it("the list of 5,000 tools is charged to its application while it is kept, its search included [U12]", async () => {
    const budget = new ByteBudget(64 * 1024 * 1024);
    const { lists, gateway } = world(budget);
    const { length } = await lists.page(gateway, by("ann"), "tools/list", undefined);
    expect(budget.used).toBeGreaterThan((length * TOOLS) / PAGE);
    const listed = budget.used;
    await lists.search(gateway, by("ann"));
    expect(budget.used).toBeGreaterThan(listed + TOOLS * 16);
    lists.end();
    expect(budget.used).toBe(0);
  });

  it("the list of 5,000 tools is served, and not kept, where its application may not keep so much", async () => {
    const budget = new ByteBudget(100_000);
    const { lists, gateway } = world(budget);
    expect(await lists.page(gateway, by("ann"), "tools/list", undefined)).toContain("tool-999");
    expect(budget.used).toBe(0);
    expect(lists.page(gateway, by("ann"), "tools/list", undefined)).toBeInstanceOf(Promise);
  });

  it("the list of 5,000 tools is refused as a document that would be longer than a message may be", async () => {
    const { lists, gateway } = world();
    await expect(lists.document(gateway, by("ann"), "openapi")).rejects.toThrow(
      /longer than 4000000 characters; use `tools\/list`/,
    );
    const narrow = JSON.parse(await lists.document(gateway, by("narrow"), "openapi")) as { paths: object };
    expect(Object.keys(narrow.paths)).toEqual(["/tools/tool-7"]);
  });
});
