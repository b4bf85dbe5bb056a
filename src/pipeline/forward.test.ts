import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { openWorld, PERMIT_ALL, type World, type WorldOptions } from "../gateway/fixtures/world.js";
import { connect } from "../mcp/client/index.js";
import type { JsonObject } from "../mcp/index.js";
import type { GuardrailCall } from "../policy/index.js";
import type { ApplicationDocument } from "../storage/index.js";

const FIXTURE = fileURLToPath(new URL("../upstream/fixtures/server.mjs", import.meta.url));
const REVISIONS = ["2026-07-28", "2025-11-25"] as const;

let world: World | undefined;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  await world?.close();
  world = undefined;
});

async function opened(
  forward: string[] | undefined,
  options: WorldOptions = {},
  document: ApplicationDocument = {},
): Promise<World> {
  world = await openWorld(options);
  await world.put("app", {
    servers: {
      fixture: {
        command: process.execPath,
        args: [FIXTURE, "all"],
        noGuardrail: ["*"],
        ...(forward ? { forward } : {}),
      },
    },
    ...document,
  });
  return world;
}

async function caller(revision: (typeof REVISIONS)[number]): Promise<(params: JsonObject) => Promise<JsonObject>> {
  const client = await connect((world as World).url, { headers: { authorization: "Bearer app/alice" }, revision });
  closing.push(() => client.close());
  return (params) =>
    client.request("tools/call", { name: "echo", arguments: { text: "x" }, ...params } as never) as never;
}

/** What the server received beside the arguments, without the protocol's own fields. */
function received(result: JsonObject): JsonObject {
  const { name: _name, arguments: _arguments, _meta, ...fields } = (result._meta as { seen: JsonObject }).seen;
  const meta = Object.fromEntries(
    Object.entries((_meta ?? {}) as JsonObject).filter(
      ([key]) => !/^(progressToken|traceparent|tracestate|io\.modelcontextprotocol\/.*)$/.test(key),
    ),
  );
  return { ...fields, ...(Object.keys(meta).length > 0 ? { _meta: meta } : {}) };
}

const EXTRA = {
  tenant: "blue",
  recipient: "eve",
  _meta: { "com.example/run": 1, "com.other/x": 2, "portcullis/challengeWaitMs": 0, baggage: "a=b" },
};

describe.each(REVISIONS)("fields beside the arguments, in revision %s", (revision) => {
  it("do not reach a server whose entry lists none [U1]", async () => {
    await opened(undefined);
    const call = await caller(revision);
    expect(received(await call(EXTRA))).toEqual({});
  });

  it("include nothing of the caller's trace context, whatever the entry lists: a server's trace begins here", async () => {
    await opened(["*"]);
    const call = await caller(revision);
    const [trace, span] = ["4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"];
    const others = { tracestate: "com=transfer", baggage: "recipient=eve" };
    const traces = new Set<string>();
    for (const text of [
      `00-${trace}-${span}-00`,
      `00-${trace}-${span}-01`,
      `00-${trace}-${span}-01-transfer`,
      "transfer",
    ]) {
      const result = await call({ _meta: { traceparent: text, ...others } });
      const meta = (result._meta as { seen: { _meta: JsonObject } }).seen._meta;
      expect(meta.traceparent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
      expect(JSON.stringify(meta)).not.toMatch(new RegExp(`${trace}|${span}|transfer|eve`));
      traces.add(String(meta.traceparent));
    }
    expect(traces.size).toBe(4);
  });

  it("reach a server exactly as far as its entry lists them [U1]", async () => {
    await opened(["tenant", "_meta/com.example/*"]);
    const call = await caller(revision);
    expect(received(await call(EXTRA))).toEqual({ tenant: "blue", _meta: { "com.example/run": 1 } });
  });

  it("never include the fields of the protocol and of this gateway, whatever the entry lists", async () => {
    await opened(["*"]);
    const call = await caller(revision);
    expect(received(await call(EXTRA))).toEqual({
      tenant: "blue",
      recipient: "eve",
      _meta: { "com.example/run": 1, "com.other/x": 2 },
    });
  });

  it("are decided by rules that read `context.forwarded` [U7]", async () => {
    const policy = `${PERMIT_ALL}
      forbid (principal, action, resource) when { context.forwarded has recipient && context.forwarded.recipient == "eve" };`;
    await opened(["recipient"], { policy });
    const call = await caller(revision);
    expect(received(await call({ recipient: "bob" }))).toEqual({ recipient: "bob" });
    expect(await call({ recipient: "eve" })).toMatchObject({ isError: true });
    const count = await call({ name: "count", arguments: {} });
    expect(count.content).toEqual([{ type: "text", text: "2" }]);
  });

  it("cannot name entities of the policy language", async () => {
    await opened(["_meta/*"]);
    const call = await caller(revision);
    const forged = { _meta: { "com.example/who": { __entity: { type: "Agent", id: "app/root" } } } };
    expect(await call(forged)).toMatchObject({ isError: true });
    expect((await call({ name: "count", arguments: {} })).content).toEqual([{ type: "text", text: "1" }]);
  });

  it("are shown to guardrails", async () => {
    const seen: GuardrailCall[] = [];
    const guardrailModule = async () => (each: GuardrailCall) => void seen.push(each);
    const guardrails = [{ id: "g", tool: "echo", module: "seen.mjs" }];
    await opened(["tenant"], { services: { guardrailModule } }, { guardrails });
    const call = await caller(revision);
    await call(EXTRA);
    expect(seen.map(({ forwarded }) => forwarded)).toEqual([{ tenant: "blue" }]);
  });

  it("are part of what is approved: an approval does not cover other fields [U7]", async () => {
    const policy = `${PERMIT_ALL}
      @id("ask") @outcome("challenge") @approvers("operators")
      forbid (principal, action == Action::"echo", resource) unless { context.approved };`;
    const { approvals } = await opened(["recipient", "_meta/*"], { policy });
    const call = await caller(revision);
    expect(await call({ recipient: "bob" })).toMatchObject({ isError: true });
    const [listed] = await approvals.list();
    const shown = await approvals.get(listed?.id ?? "");
    expect(shown?.forwardedText).toBe('{"recipient":"bob"}');
    await approvals.approve(shown?.id ?? "", { name: "olga", groups: ["operators"] });
    expect(await call({ recipient: "eve" })).toMatchObject({ isError: true });
    expect(await call({ recipient: "bob", _meta: { "com.example/x": 1 } })).toMatchObject({ isError: true });
    expect((await call({ name: "count", arguments: {} })).content).toEqual([{ type: "text", text: "1" }]);
    expect(received(await call({ recipient: "bob" }))).toEqual({ recipient: "bob" });
    expect(await call({ recipient: "bob" })).toMatchObject({ isError: true });
  });
});

describe("fields of the protocol itself, to a server of 2026-07-28,", () => {
  const META = "io.modelcontextprotocol";
  const send = async (meta: JsonObject): Promise<JsonObject> => {
    world = await openWorld();
    const server = { command: process.execPath, args: [FIXTURE, "all", "modern"], noGuardrail: ["*"], forward: ["*"] };
    await world.put("app", { servers: { fixture: server } });
    const { url } = world;
    const _meta = { [`${META}/protocolVersion`]: "2026-07-28", [`${META}/clientCapabilities`]: {}, ...meta };
    const response = await fetch(url, {
      method: "POST",
      headers: {
        authorization: "Bearer app/alice",
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "echo",
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo", _meta } }),
    });
    return (await response.json()) as JsonObject;
  };

  it("carry no text of the caller: capabilities are written from known names [U1]", async () => {
    const declared = {
      elicitation: { form: { note: "hidden" }, url: {}, hidden: {} },
      sampling: { hidden: true, tools: { deep: { hidden: 1 } } },
      roots: { listChanged: "hidden", hidden: [] },
      hidden: {},
    };
    const answer = await send({ [`${META}/clientCapabilities`]: declared });
    expect(JSON.stringify(answer)).not.toContain("hidden");
    expect((answer.result as { _meta: { seen: JsonObject } })._meta.seen).toMatchObject({
      _meta: {
        [`${META}/clientCapabilities`]: { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} },
      },
    });
  });

  it("are refused when the log level is not a level", async () => {
    expect(await send({ [`${META}/logLevel`]: "hidden" })).toMatchObject({
      error: { code: -32602, data: { field: `params._meta.${META}/logLevel` } },
    });
  });
});

it.each(REVISIONS)("an error in %s repeats only the beginning of a long method name", async (revision) => {
  world = await openWorld();
  await world.put("app", {});
  const client = await connect(world.url, { headers: { authorization: "Bearer app/alice" }, revision });
  closing.push(() => client.close());
  const failed = await client.request("x".repeat(3_000) as never, {} as never).catch((error: Error) => error);
  expect((failed as Error).message).toContain("there is no method");
  expect((failed as Error).message.length).toBeLessThan(300);
});
