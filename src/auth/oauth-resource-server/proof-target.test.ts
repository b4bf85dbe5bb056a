import { describe, expect, it } from "vitest";
import { isTarget, proofRoots } from "./proof.js";
import { readOAuthSettings } from "./settings.js";

const at = (resource: string, more?: string[]) => {
  const roots = proofRoots(resource, more);
  return (htu: string, path: string): boolean => isTarget(htu, path, roots);
};

describe("the address that a proof names", () => {
  const isFor = at("https://gateway.example/mcp");

  it.each<[string, string]>([
    ["https://gateway.example/mcp", "/mcp"],
    ["HTTPS://Gateway.Example:443/mcp", "/mcp"],
    ["https://gateway.example/mcp?query#fragment", "/mcp"],
    ["https://gateway.example/other/../mcp", "/mcp"],
    ["https://gateway.example/%6dcp", "/mcp"],
    ["https://gateway.example/tools/notes.read", "/tools/notes.read"],
    ["https://gateway.example/tools/a%2fb", "/tools/a%2Fb"],
    ["https://gateway.example/tools/%C3%BC%7E", "/tools/%c3%bc~"],
    ["https://gateway.example/openapi.json", "/openapi.json"],
    ["wss://gateway.example/mcp", "/mcp"],
  ])("%s is that of %s", (htu, path) => {
    expect(isFor(htu, path)).toBe(true);
  });

  it.each<[string, string]>([
    ["https://gateway.example/mcp/", "/mcp"],
    ["https://gateway.example/MCP", "/mcp"],
    ["https://gateway.example/", "/mcp"],
    ["http://gateway.example/mcp", "/mcp"],
    ["ws://gateway.example/mcp", "/mcp"],
    ["https://gateway.example:8443/mcp", "/mcp"],
    ["https://gateway.example.evil.example/mcp", "/mcp"],
    ["https://evil.example/https://gateway.example/mcp", "/mcp"],
    ["https://gateway.example@evil.example/mcp", "/mcp"],
    ["https://user@gateway.example/mcp", "/mcp"],
    ["https://gateway.example\\mcp", "/mcp"],
    ["https://gateway.example/\tmcp", "/mcp"],
    ["https:gateway.example/mcp", "/mcp"],
    ["https:///gateway.example/mcp", "/mcp"],
    [" https://gateway.example/mcp", "/mcp"],
    ["file://gateway.example/mcp", "/mcp"],
    ["https://gateway.example/tools/a/b", "/tools/a%2Fb"],
    ["https://evil.example/mcp", "//evil.example/mcp"],
    ["https://evil.example/mcp", "@evil.example/mcp"],
    [`https://gateway.example/mcp?${"x".repeat(4_096)}`, "/mcp"],
    ["", "/mcp"],
  ])("%s is not that of %s", (htu, path) => {
    expect(isFor(htu, path)).toBe(false);
  });

  it("the address that a proof names may stand above the path, as the resource does", () => {
    for (const resource of ["https://gateway.example", "https://gateway.example/"]) {
      expect(at(resource)("https://gateway.example/mcp", "/mcp")).toBe(true);
    }
  });

  it("the address that a proof names is behind the prefix that a proxy takes away", () => {
    const behind = at("https://gateway.example/team-a/mcp");
    expect(behind("https://gateway.example/team-a/mcp", "/mcp")).toBe(true);
    expect(behind("https://gateway.example/team-a/tools/x", "/tools/x")).toBe(true);
    expect(behind("https://gateway.example/team-b/mcp", "/mcp")).toBe(false);
  });

  it("the address that a proof names is at other roots that the operator names", () => {
    const also = at("https://gateway.example/mcp", ["wss://gateway.example:7421/", "https://inside.example/gate"]);
    expect(also("ws://gateway.example:7421/mcp", "/mcp")).toBe(false);
    expect(also("wss://gateway.example:7421/mcp", "/mcp")).toBe(true);
    expect(also("https://gateway.example:7421/mcp", "/mcp")).toBe(true);
    expect(also("https://inside.example/gate/tools/x", "/tools/x")).toBe(true);
    expect(also("https://inside.example/tools/x", "/tools/x")).toBe(false);
  });

  it("the address that a proof names has roots that are addresses, or the settings are refused", () => {
    for (const root of ["gateway.example", "ftp://a.example", "https://a.example/?x"]) {
      const read = readOAuthSettings({ resource: "https://a.example", issuers: [], proofs: { roots: [root] } });
      expect(read).toMatchObject({ ok: false, problems: [{ path: ["proofs", "roots", 0] }] });
    }
  });
});
