import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { addCallHeaders, headerValue } from "./exchange.js";

describe("header values", () => {
  it.each([
    ["us-west1", "us-west1"],
    ["us west 1", "us west 1"],
    ["Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="],
    [" padded ", "=?base64?IHBhZGRlZCA=?="],
    ["line1\nline2", "=?base64?bGluZTEKbGluZTI=?="],
    ["=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="],
    ["", "=?base64??="],
  ])("%j travels as %s", (value, header) => {
    expect(headerValue(value)).toBe(header);
  });

  it("any text is safe on the wire and comes back whole", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const header = headerValue(text);
        expect(header).toMatch(/^[\x20-\x7e]+$/);
        expect(header).toBe(header.trim());
        const encoded = /^=\?base64\?(.*)\?=$/.exec(header);
        const back = encoded ? Buffer.from(encoded[1] as string, "base64").toString("utf8") : header;
        expect(back).toBe(text.toWellFormed());
      }),
    );
  });
});

describe("headers of a call", () => {
  it("headers of a call name the revision, the method and what the request is about", () => {
    const headersOf = (method: string, name?: string): string[] => {
      const list: string[] = [];
      addCallHeaders(list, { method, params: "{}", timeoutMs: 0, ...(name === undefined ? {} : { name }) }, true);
      return list;
    };
    const version = ["mcp-protocol-version", "2026-07-28"];
    expect(headersOf("tools/call", "sum")).toEqual([...version, "mcp-method", "tools/call", "mcp-name", "sum"]);
    expect(headersOf("resources/read", "test://é").at(-1)).toBe("=?base64?dGVzdDovL8Op?=");
    expect(headersOf("tools/list")).toEqual([...version, "mcp-method", "tools/list"]);
  });
});
