import { describe, expect, it } from "vitest";
import { createServer } from "../../server.js";
import { AppCatalogue } from "./catalogue.js";

const INFO = { name: "portcullis", version: "1" };

function catalogueWith(names: readonly string[]): AppCatalogue {
  const server = createServer("module");
  for (const name of names) server.tool(name, "a tool", { type: "object" }, () => "");
  return new AppCatalogue(INFO, [], "short", { server });
}

describe("the names of an application's tools", () => {
  it("the names of an application's tools keep their readable form for clients that take no dots", () => {
    const catalogue = catalogueWith(["fs.read_file", "plain"]);
    expect(catalogue.shownName("fs.read_file")).toBe("fs_read_file");
    expect(catalogue.aliases.get("fs_read_file")).toBe("fs.read_file");
    expect(catalogue.shownName("plain")).toBe("plain");
  });

  it("the names of an application's tools get a digest when two tools would share the readable form", () => {
    const catalogue = catalogueWith(["a.b", "a/b"]);
    const shown = ["a.b", "a/b"].map((name) => catalogue.shownName(name));
    expect(new Set(shown).size).toBe(2);
    for (const name of shown) expect(name).toMatch(/^a_b_[0-9a-f]{8}$/);
    expect(catalogue.aliases.has("a_b")).toBe(false);
  });

  it("never take the name of another tool", () => {
    const catalogue = catalogueWith(["a.b", "a_b"]);
    expect(catalogue.shownName("a.b")).toMatch(/^a_b_[0-9a-f]{8}$/);
    expect(catalogue.tools.has("a_b")).toBe(true);
    expect(catalogue.aliases.get("a_b")).toBeUndefined();
  });
});

describe("a server in this process", () => {
  it("brings its tools, resources, prompts and instructions, and later changes", () => {
    const server = createServer({ name: "module", version: "1", instructions: "how to use it" });
    const catalogue = new AppCatalogue(INFO, [], "full", { server, readOnlyTools: ["look"] });
    const changes: string[] = [];
    catalogue.onChange(({ kind }) => changes.push(kind));
    server.tool("look", "looks", { type: "object" }, () => "");
    server.resource("note://a", "a", "text");
    server.prompt("ask", "asks", {}, () => "text");
    expect(catalogue.info.name).toBe("module");
    expect([...catalogue.tools.keys()]).toEqual(["look"]);
    expect([...catalogue.resources.keys()]).toEqual(["note://a"]);
    expect([...catalogue.prompts.keys()]).toEqual(["ask"]);
    expect(catalogue.readOnlyTools.has("look")).toBe(true);
    expect(catalogue.instructionParts.map(({ instructions }) => instructions)).toEqual(["how to use it"]);
    expect(changes).toEqual(["tools", "resources", "prompts"]);
    catalogue.close();
    server.tool("late", "late", { type: "object" }, () => "");
    expect(catalogue.tools.has("late")).toBe(false);
  });
});
