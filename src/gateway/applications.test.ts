import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../mcp/client/index.js";
import { official, openWorld, type World } from "./fixtures/world.js";

const folder = realpathSync(mkdtempSync(join(tmpdir(), "apps-")));
writeFileSync(join(folder, "note.txt"), "of the blog");
let world: World;

beforeAll(async () => {
  world = await openWorld();
  await world.put("blog", {
    servers: { everything: official("server-everything"), files: official("server-filesystem", folder) },
  });
  await world.put("shop", { servers: { memory: official("server-memory") } });
});
afterAll(async () => {
  await world.close();
  rmSync(folder, { recursive: true, force: true });
});

const as = (who: string, revision?: "2026-07-28" | "2025-11-25") =>
  connect(world.url, { headers: { authorization: `Bearer ${who}` }, ...(revision ? { revision } : {}) });

describe.each(["2026-07-28", "2025-11-25"] as const)("an application in revision %s", (revision) => {
  it("has the tools of all its servers under their names, and nothing else [H2]", async () => {
    const client = await as("blog/writer", revision);
    const names = (await client.listTools()).map((tool) => tool.name);
    expect(names).toContain("everything.echo");
    expect(names).toContain("files.read_text_file");
    expect(names.filter((name) => name.startsWith("memory"))).toEqual([]);
    const result = await client.callTool("everything.echo", { message: "hello" });
    expect(result.content).toMatchObject([{ type: "text", text: "Echo: hello" }]);
    const read = await client.callTool("files.read_text_file", { path: join(folder, "note.txt") });
    expect(read.content).toMatchObject([{ type: "text", text: "of the blog" }]);
    await client.close();
  });

  it("keeps a server's own names when it stands alone [H2]", async () => {
    const client = await as("shop/seller", revision);
    const names = (await client.listTools()).map((tool) => tool.name);
    expect(names).toContain("read_graph");
    expect((await client.callTool("read_graph", {})).structuredContent).toEqual({ entities: [], relations: [] });
    await client.close();
  });

  it("does not have what another application has", async () => {
    const client = await as("shop/seller", revision);
    const foreign = client.callTool("everything.echo", { message: "x" });
    const absent = client.callTool("everything.nothing", { message: "x" });
    const [one, other] = await Promise.all([
      foreign.catch((e: Error) => e.message),
      absent.catch((e: Error) => e.message),
    ]);
    expect(String(one).replace("everything.echo", "NAME")).toBe(String(other).replace("everything.nothing", "NAME"));
    await client.close();
  });
});
