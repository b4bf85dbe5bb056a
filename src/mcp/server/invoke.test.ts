import { describe, expect, it } from "vitest";
import { createServer } from "../../server.js";
import type { JsonObject } from "../index.js";
import { text } from "./content.js";
import { ToolRegistry } from "./registry.js";
import { composeTools, defineTool, type Handler, type ToolOptions } from "./tool.js";
import type { HandlerResult, Tool } from "./types.js";

const pair = {
  type: "object",
  properties: { a: { type: "number" }, b: { type: "number" } },
  required: ["a", "b"],
} as const;
const sum = { type: "object", properties: { sum: { type: "number" } }, required: ["sum"] } as const;

const add = defineTool({
  name: "add",
  description: "Adds",
  input: pair,
  output: sum,
  noGuardrailRequired: true,
  handler: ({ a, b }) => ({ structuredContent: { sum: a + b } }),
});
const twice = composeTools({
  name: "twice",
  description: "Adds a number to itself",
  input: { type: "object", properties: { a: { type: "number" } }, required: ["a"] } as const,
  steps: [{ tool: add, args: ({ input: { a } }) => ({ a, b: a }) }],
});
const tool = (name: string, handler: Handler<JsonObject, HandlerResult>, more: ToolOptions = {}): Tool =>
  defineTool({ name, description: "", input: {}, noGuardrailRequired: true, handler, ...more });

const registry = (): ToolRegistry =>
  new ToolRegistry().register(
    add,
    twice,
    tool("again", (_args, context) => context.call("again", {})),
    tool("crashed", () => {
      throw new Error("disk on fire");
    }),
    tool("endless", () => new Promise<string>(() => {}), { timeoutMs: 20 }),
    tool("written", async (_args, context) => {
      await context.write("first");
      return "second";
    }),
    defineTool({
      name: "wrong",
      description: "",
      input: {},
      output: sum,
      handler: () => ({ structuredContent: { sum: "three" as unknown as number } }),
    }),
    tool("asking", async (_args, context) => JSON.stringify(await context.listRoots())),
  );

describe("ToolRegistry.invoke", () => {
  it("validates the input, runs the tool and checks its output [G1]", async () => {
    expect(await registry().invoke("add", { a: 1, b: 2 })).toMatchObject({ structuredContent: { sum: 3 } });
    await expect(registry().invoke("add", { a: 1, b: "2" })).rejects.toMatchObject({
      type: "ValidationError",
      detail: { field: "b" },
    });
    await expect(registry().invoke("wrong", {})).rejects.toMatchObject({ type: "OutputInvalid" });
    await expect(registry().invoke("missing", {})).rejects.toMatchObject({ type: "ToolNotFound" });
  });

  it("runs composed tools, and ends calls that nest too deep [G1]", async () => {
    expect(await registry().invoke("twice", { a: 4 })).toMatchObject({ structuredContent: { sum: 8 } });
    await expect(registry().invoke("again", {})).rejects.toMatchObject({ type: "TooMany" });
  });

  it("reports a crash, a timeout, a cancellation and a missing client as faults", async () => {
    await expect(registry().invoke("crashed", {})).rejects.toMatchObject({
      type: "ToolExecution",
      message: "disk on fire",
    });
    await expect(registry().invoke("endless", {})).rejects.toMatchObject({ type: "ToolTimeout" });
    const signal = AbortSignal.abort();
    await expect(registry().invoke("add", { a: 1, b: 2 }, { signal })).rejects.toMatchObject({ type: "Cancelled" });
    await expect(registry().invoke("asking", {})).rejects.toMatchObject({ type: "MissingCapability" });
  });

  it("joins what a handler wrote with what it returned", async () => {
    expect(await registry().invoke("written", {})).toEqual({ content: [text("first"), text("second")] });
  });
});

describe("Server.invoke", () => {
  const policy = 'permit (principal, action == Action::"add", resource);';

  it("passes the gate: a permitted call runs, a denied call throws the denial and has no effect [G1]", async () => {
    let runs = 0;
    const server = createServer("sums", { policy })
      .tool(add)
      .tool(
        tool("wipe", () => {
          runs += 1;
          return "wiped";
        }),
      );
    expect(await server.invoke("add", { a: 1, b: 2 })).toMatchObject({ structuredContent: { sum: 3 } });
    await expect(server.invoke("wipe", {})).rejects.toMatchObject({ type: "PolicyDeny" });
    await expect(server.invoke("add", { a: 1 })).rejects.toMatchObject({ type: "ValidationError" });
    expect(runs).toBe(0);
    await server.close();
  });

  it("calls as the principal that is given, or as the caller that `identify` finds", async () => {
    const whoami = tool("whoami", (_args, { app, agent }) => `${app}/${agent}`);
    const server = createServer("names", { policy: "permit (principal, action, resource);" }).tool(whoami);
    const principal = { app: "blog", agent: "writer", via: "local" } as never;
    expect(await server.invoke("whoami", {}, { principal })).toMatchObject({ content: [text("blog/writer")] });
    expect(await server.invoke("whoami", {})).toMatchObject({ content: [{ text: expect.stringMatching(/^local\//) }] });
    const closed = createServer("closed", {
      policy: "permit (principal, action, resource);",
      identify: () => {
        throw new Error("no credential");
      },
    }).tool(whoami);
    await expect(closed.invoke("whoami", {})).rejects.toThrow("no credential");
  });
});
