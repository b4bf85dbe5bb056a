import { describe, expect, it } from "vitest";
import { DefinitionError } from "../../schema/types.js";
import { Fault } from "../index.js";
import { text } from "./content.js";
import { defineServer } from "./server.js";
import { defineTool } from "./tool.js";
import type { CallContext, ListChange, ServerDefinition } from "./types.js";

const context = {} as CallContext;

describe("a server's definition", () => {
  it("a server's definition is what the gateway reads", () => {
    const server: ServerDefinition = defineServer({
      name: "math",
      version: "1.2.3",
      title: "Math",
      instructions: "Be exact",
      websiteUrl: "https://example.com",
    });
    expect(server.info).toEqual({ name: "math", version: "1.2.3", title: "Math", websiteUrl: "https://example.com" });
    expect(server.instructions).toBe("Be exact");
    expect(defineServer("x").info).toEqual({ name: "x", version: "0.0.0" });
    expect(() => defineServer("")).toThrow("a server needs a name");
  });

  it("a server's definition takes tools in place and ready made, each name once", () => {
    const ready = defineTool({
      name: "b",
      description: "",
      input: {},
      tags: ["x"],
      metadata: { category: "demo" },
      handler: () => "",
    });
    const server = defineServer("s")
      .tool("a", "first", { type: "object" }, () => "a", { noGuardrailRequired: true, timeoutMs: 5 })
      .tool(ready);
    expect([...server.tools.keys()]).toEqual(["a", "b"]);
    expect(server.tools.get("a")).toMatchObject({ noGuardrailRequired: true, timeoutMs: 5, tags: [], metadata: {} });
    expect(server.tools.get("b")).toMatchObject({
      noGuardrailRequired: false,
      tags: ["x"],
      metadata: { category: "demo" },
    });
    expect(() => server.tool(ready)).toThrow("a tool named `b` is registered already");
    expect(() =>
      defineServer({ name: "s", maxEntries: 1 })
        .tool(ready)
        .tool("c", "", {}, () => ""),
    ).toThrow("there are 1 tools already");
  });

  it("offers resources: fixed, read on demand, text or bytes", async () => {
    const server = defineServer("s")
      .resource("test://text", "text", "hello", { mimeType: "text/plain" })
      .resource("test://bytes", "bytes", new Uint8Array([1, 2, 3]), { mimeType: "image/png", size: 3 })
      .resource("test://live", "live", (uri) => ({ contents: [{ uri, text: "now" }], _meta: { fresh: true } }));
    expect(server.resources.get("test://text")?.definition).toEqual({
      uri: "test://text",
      name: "text",
      mimeType: "text/plain",
    });
    expect(await server.resources.get("test://text")?.read("test://text", context)).toEqual({
      contents: [{ uri: "test://text", mimeType: "text/plain", text: "hello" }],
    });
    expect(await server.resources.get("test://bytes")?.read("test://bytes", context)).toEqual({
      contents: [{ uri: "test://bytes", mimeType: "image/png", blob: "AQID" }],
    });
    expect(await server.resources.get("test://live")?.read("test://live", context)).toEqual({
      contents: [{ uri: "test://live", text: "now" }],
      _meta: { fresh: true },
    });
    expect(() => server.resource("test://text", "again", "")).toThrow(DefinitionError);
    expect(() => server.resource("notes.txt", "relative", "")).toThrow("the URI must be absolute");
  });

  it("offers resource templates", async () => {
    const server = defineServer("s").template("test://template/{id}/data", "data", (_uri, { id }) => `row ${id}`, {
      mimeType: "application/json",
      complete: { id: (value) => ["1", "12", "3"].filter((id) => id.startsWith(value)) },
    });
    const [template] = server.templates;
    expect(template?.match("test://template/7/data")).toEqual({ id: "7" });
    expect(await template?.read("test://template/7/data", { id: "7" }, context)).toEqual({
      contents: [{ uri: "test://template/7/data", mimeType: "application/json", text: "row 7" }],
    });
    expect(await template?.complete?.({ name: "id", value: "1" }, {})).toEqual({
      values: ["1", "12"],
      total: 2,
      hasMore: false,
    });
    expect(await template?.complete?.({ name: "constructor", value: "" }, {})).toEqual({
      values: [],
      total: 0,
      hasMore: false,
    });
    expect(() => server.template("test://template/{id}/data", "twice", () => "")).toThrow("offered already");
  });

  it("offers prompts, and checks what they are asked with", async () => {
    const server = defineServer("s")
      .prompt(
        "hello",
        "Greets",
        { name: { description: "whom", required: true }, style: {} },
        ({ name, style }) => `Hello ${name}${style ?? ""}`,
      )
      .prompt("talk", "Several turns", {}, () => ({
        description: "d",
        messages: [{ role: "assistant", content: text("hi") }],
      }));
    const hello = server.prompts.get("hello");
    expect(hello?.definition).toEqual({
      name: "hello",
      description: "Greets",
      arguments: [{ name: "name", description: "whom", required: true }, { name: "style" }],
    });
    expect(await hello?.get({ name: "Ada" }, context)).toEqual({
      messages: [{ role: "user", content: { type: "text", text: "Hello Ada" } }],
    });
    await expect(hello?.get({}, context)).rejects.toThrow("prompt `hello` needs the argument `name`");
    await expect(hello?.get({ name: "x", nmae: "y" }, context)).rejects.toThrow(Fault);
    await expect(hello?.get({ name: 5 as never }, context)).rejects.toThrow("must be a string");
    expect(server.prompts.get("talk")?.definition.arguments).toBeUndefined();
    expect(await server.prompts.get("talk")?.get({}, context)).toMatchObject({ description: "d" });
  });

  it("limits completions to what MCP allows", async () => {
    const many = Array.from({ length: 150 }, (_, i) => String(i));
    const server = defineServer("s").prompt("p", "", { a: {} }, () => "", { complete: { a: () => many } });
    const answer = await server.prompts.get("p")?.complete?.({ name: "a", value: "" }, {});
    expect(answer).toMatchObject({ total: 150, hasMore: true });
    expect(answer?.values).toHaveLength(100);
  });

  it("notifies listeners of changes until they unsubscribe", () => {
    const server = defineServer("s");
    const heard: ListChange[] = [];
    const stop = server.onChange((change) => heard.push(change));
    server
      .tool("a", "", {}, () => "")
      .resource("test://r", "r", "")
      .template("test://{t}", "t", () => "")
      .prompt("p", "", {}, () => "")
      .changed("test://r")
      .removeTool("a")
      .removeTool("a")
      .removeResource("test://r")
      .removeTemplate("test://{t}")
      .removePrompt("p");
    stop();
    server.tool("b", "", {}, () => "");
    expect(heard).toEqual([
      { kind: "tools" },
      { kind: "resources" },
      { kind: "resources" },
      { kind: "prompts" },
      { kind: "resource", uri: "test://r" },
      { kind: "tools" },
      { kind: "resources" },
      { kind: "resources" },
      { kind: "prompts" },
    ]);
    expect([server.tools.size, server.resources.size, server.templates.length, server.prompts.size]).toEqual([
      1, 0, 0, 0,
    ]);
  });
});
