import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import { forwardedResult } from "./answers.js";
import { BARE, Namespace, renameContents, renameUris, schemeFor, shortNamesOf } from "./names.js";
import type { RelayUpstream } from "./relay.js";

describe("short names", () => {
  it("short names are the name itself where every client can take it", () => {
    expect(shortNamesOf("read_file-2")).toEqual({ readable: "read_file-2", hashed: "read_file-2" });
  });
  it("short names keep the readable form of a name with dots", () => {
    expect(shortNamesOf("fs.read_file").readable).toBe("fs_read_file");
  });
  it("short names have at most 64 characters and no dots, and the hashed one differs for different names", () => {
    const long = `community.aws.${"very".repeat(20)}.putObject`;
    for (const name of [long, "core.state.getRuntimeValue"]) {
      const { readable, hashed } = shortNamesOf(name);
      for (const short of [readable, hashed]) expect(short).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
    }
    expect(shortNamesOf("a.b").hashed).not.toBe(shortNamesOf("a_b").hashed);
    expect(shortNamesOf("a.b").hashed).not.toBe(shortNamesOf("a/b").hashed);
  });
});

describe("uris of a server among others", () => {
  const files = new Namespace("files.", schemeFor("files"));
  it("uris of a server among others stay uris, and lead back to the server's own", () => {
    expect(files.uri("file:///a")).toBe("files+file:///a");
    expect(files.rawUri("files+file:///a")).toBe("file:///a");
    expect(files.rawUri("other+file:///a")).toBeUndefined();
    expect(BARE.rawUri("file:///a")).toBe("file:///a");
    expect(schemeFor("9 Lives")).toMatch(/^[a-z][a-z0-9.-]*\+$/);
  });
  it("uris of a server among others are renamed in links whatever the server's spelling of their type", () => {
    const text = String.raw`{"content":[{"type":"\u0072esource_link","uri":"other+file:///a"}]}`;
    const answer = { kind: "result", text, value: JSON.parse(text) } as const;
    expect(forwardedResult({ namespace: files } as RelayUpstream, "tools/call", answer)).toEqual({
      content: [{ type: "resource_link", uri: "files+other+file:///a" }],
    });
  });
  it("uris of a server among others are renamed in links and embedded resources, and left alone in data", () => {
    const result = {
      content: [
        { type: "resource_link", uri: "file:///a", name: "a" },
        { type: "resource", resource: { uri: "file:///b", text: "b" } },
        { type: "text", text: "file:///c" },
      ],
      structuredContent: { type: "resource_link", uri: "file:///d" },
    };
    expect(renameUris(result as unknown as JsonObject, files)).toEqual({
      content: [
        { type: "resource_link", uri: "files+file:///a", name: "a" },
        { type: "resource", resource: { uri: "files+file:///b", text: "b" } },
        { type: "text", text: "file:///c" },
      ],
      structuredContent: { type: "resource_link", uri: "file:///d" },
    });
    expect(renameContents({ contents: [{ uri: "file:///a", text: "" }] }, files)).toEqual({
      contents: [{ uri: "files+file:///a", text: "" }],
    });
  });
});
