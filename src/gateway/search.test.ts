// `names: search`: three tools in place of all.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Ledger, openLedger, read } from "../ledger/index.js";
import { type Client, connect } from "../mcp/client/index.js";
import type { JsonObject } from "../mcp/index.js";
import { createServer, permitAll, type Server } from "../server.js";
import { openWorld, PERMIT_ALL, type World } from "./fixtures/world.js";
import { meantCall, ToolIndex } from "./search.js";

const tool = (name: string, description: string, properties: JsonObject = {}): JsonObject => ({
  name,
  description,
  inputSchema: { type: "object", properties },
});

describe("the search over tools", () => {
  const index = ToolIndex.of([
    tool("fs.read_file", "Read the complete contents of a file", { path: { type: "string" } }),
    tool("fs.listDirectories", "List what is in a directory"),
    tool("git.commit", "Record changes to the repository", { message: { description: "the commit message" } }),
    tool("mail.send", "Send a message to a person", { to: { description: "address of the person" } }),
  ]);
  const names = async (query: string): Promise<unknown[]> =>
    (await (await index).find(query, 2)).map(({ name }) => name);

  it.each([
    ["read a file", "fs.read_file"],
    ["directory listing", "fs.listDirectories"],
    ["commits", "git.commit"],
    ["email someone: send", "mail.send"],
    ["path", "fs.read_file"],
  ])("finds for `%s` the tool %s first", async (query, first) => {
    expect((await names(query))[0]).toBe(first);
  });

  it("returns nothing for words that no tool has, and for none", async () => {
    expect(await Promise.all(["quaternion", "", "the of"].map(names))).toEqual([[], [], []]);
  });

  it("is in slices, and has bounds, where thousands of tools have long texts of words of their own [U12]", async () => {
    const words = (seed: number): string => Array.from({ length: 500 }, (_, at) => `same${seed}x${at}`).join(" ");
    const many = Array.from({ length: 3_000 }, (_, at) =>
      tool(`tool_${at}`, words(at), { path: { description: words(-at) } }),
    );
    let turns = 0;
    const timer = setInterval(() => turns++, 1);
    const hostile = await ToolIndex.of(many);
    // 3,000 tools with a thousand words each would cost half a gigabyte.
    expect(hostile.bytes).toBeLessThan(32 * 1024 * 1024);
    const built = turns;
    const query = Array.from({ length: 200 }, (_, at) => `same${at}`)
      .join(" ")
      .slice(0, 1_000);
    expect(await hostile.find(query, 8)).toHaveLength(8);
    clearInterval(timer);
    expect(built).toBeGreaterThan(3);
    expect(turns - built).toBeGreaterThan(3);
    expect(await hostile.find("tool_2999", 1)).toMatchObject([{ name: "tool_2999" }]);
  });

  it("takes call_tool for a call of the tool that it names, and leaves every other call as it is", () => {
    const others = { name: "git.commit", arguments: { message: "m" } };
    expect(meantCall(others)).toBe(others);
    expect(meantCall({ name: "call_tool", arguments: others, _meta: { a: 1 } })).toEqual({
      ...others,
      _meta: { a: 1 },
    });
    expect(() => meantCall({ name: "call_tool", arguments: {} })).toThrow("`name` must be a string");
  });
});

describe("an application with names: search", () => {
  const folder = mkdtempSync(join(tmpdir(), "portcullis-search-"));
  const effects: string[] = [];
  let upstream: Server;
  let world: World;
  let ledger: Ledger;
  let client: Client;

  beforeAll(async () => {
    upstream = createServer({ name: "up", version: "1" }, { policy: permitAll });
    for (const name of ["send_mail", "erase_disk", ...Array.from({ length: 200 }, (_, i) => `other_${i}`)]) {
      const run = (): string => {
        effects.push(name);
        return `did ${name}`;
      };
      const schema = { type: "object", properties: { to: { type: "string" } } } as const;
      upstream.tool(name, name.replace("_", " "), schema, run, { noGuardrailRequired: true });
    }
    const { url } = await upstream.listen({ transport: "http", port: 0 });
    ledger = await openLedger({ dir: folder, origin: "test" });
    const policy = `${PERMIT_ALL} forbid (principal, action == Action::"up.erase_disk", resource);`;
    world = await openWorld({ ledger, policy });
    await world.put("shop", { names: "search", servers: { up: { url, prefix: "up", noGuardrail: ["*"] } } });
    client = await connect(world.url, { headers: { authorization: "Bearer shop/ann" } });
  });
  afterAll(async () => {
    await client.close();
    await world.close();
    await ledger.close();
    await upstream.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const called = async (name: string, args: JsonObject): Promise<string> => {
    const result = (await client.callTool(name, args)) as { content: { text: string }[]; isError?: boolean };
    return `${result.isError === true ? "error: " : ""}${result.content[0]?.text}`;
  };

  it("lists three tools, and finds what the caller may use by a few words", async () => {
    const { tools } = (await client.request("tools/list", {})) as { tools: { name: string }[] };
    expect(tools.map(({ name }) => name)).toEqual(["find_tools", "describe_tool", "call_tool"]);
    const found = JSON.parse(await called("find_tools", { query: "send a mail", limit: 1 })) as JsonObject;
    expect(found).toEqual({ tools: [{ name: "up.send_mail", description: "send mail" }] });
    expect(JSON.parse(await called("describe_tool", { name: "up.send_mail" }))).toMatchObject({
      name: "up.send_mail",
      inputSchema: { properties: { to: { type: "string" } } },
    });
  });

  it("executes, decides and records a call under the tool's own name", async () => {
    effects.length = 0;
    expect(await called("call_tool", { name: "up.send_mail", arguments: { to: "bob" } })).toBe("did send_mail");
    expect(effects).toEqual(["send_mail"]);
    await ledger.append({ kind: "admin", actor: "test", action: "barrier" });
    const decided: unknown[] = [];
    for await (const { record } of read(folder)) {
      if (record.kind === "decision" && record.method === "tools/call") decided.push([record.tool, record.effect]);
    }
    expect(decided).toContainEqual(["up.send_mail", "permit"]);
    expect(decided).not.toContainEqual(["call_tool", expect.anything()]);
  });

  it("neither finds, describes nor calls what the caller may not use", async () => {
    effects.length = 0;
    expect(await called("find_tools", { query: "erase disk" })).toBe('{"tools":[]}');
    const denied = await called("call_tool", { name: "up.erase_disk" }).catch((error: Error) => error.message);
    expect(denied).toMatch(/denied|not permitted|forbid/i);
    const hidden = await called("describe_tool", { name: "up.erase_disk" }).catch((error: Error) => error.message);
    const absent = await called("describe_tool", { name: "up.erase_dusk" }).catch((error: Error) => error.message);
    expect(hidden.replace("erase_disk", "X")).toBe(absent.replace("erase_dusk", "X"));
    expect(effects).toEqual([]);
  });
});
