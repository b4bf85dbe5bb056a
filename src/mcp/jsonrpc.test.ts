import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { JsonValue } from "./json.js";
import { classify } from "./jsonrpc.js";

describe("JSON-RPC messages", () => {
  it.each([
    [{ jsonrpc: "2.0", id: 1, method: "a" }, "request"],
    [{ jsonrpc: "2.0", id: "x", method: "a", params: {} }, "request"],
    [{ jsonrpc: "2.0", id: 0, method: "" }, "request"],
    [{ jsonrpc: "2.0", method: "a" }, "notification"],
    [{ jsonrpc: "2.0", id: 1, result: {} }, "response"],
    [{ jsonrpc: "2.0", id: null, error: { code: 1, message: "m" } }, "response"],
  ])("tells %j apart as a %s", (message, kind) => {
    expect(classify(message as JsonValue).kind).toBe(kind);
  });

  it.each([
    [[], null],
    [null, null],
    ["text", null],
    [{ id: 1, method: "a" }, 1],
    [{ jsonrpc: "1.0", id: 1, method: "a" }, 1],
    [{ jsonrpc: "2.0", id: null, method: "a" }, null],
    [{ jsonrpc: "2.0", id: 1.5, method: "a" }, null],
    [{ jsonrpc: "2.0", id: {}, method: "a" }, null],
    [{ jsonrpc: "2.0", id: 1, method: 7 }, 1],
    [{ jsonrpc: "2.0", id: 1, method: "a", params: [] }, 1],
    [{ jsonrpc: "2.0", id: 1 }, 1],
    [{ jsonrpc: "2.0", id: 1, result: {}, error: { code: 1, message: "m" } }, 1],
    [{ jsonrpc: "2.0", id: 1, result: "text" }, 1],
    [{ jsonrpc: "2.0", id: 1, error: { code: "1", message: "m" } }, 1],
    [{ jsonrpc: "2.0", id: null, result: {} }, null],
  ])("refuses %j and answers under the id it could read", (message, id) => {
    const read = classify(message as JsonValue);
    expect(read.kind).toBe("invalid");
    expect(read.kind === "invalid" && read.id).toBe(id);
  });

  it("never throws for a JSON-RPC message and never changes it, whatever it is [U1]", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const before = JSON.stringify(value);
        classify(value as JsonValue);
        expect(JSON.stringify(value)).toBe(before);
      }),
    );
  });

  it("keeps unknown fields of a JSON-RPC message [U1]", () => {
    const message = { jsonrpc: "2.0", id: 1, method: "a", params: { b: 1 }, future: { c: [1, 2] } };
    const read = classify(message as JsonValue);
    expect(read.kind === "request" && read.message).toEqual(message);
  });
});
