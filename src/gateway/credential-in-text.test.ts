import { describe, expect, it } from "vitest";
import { claimIn } from "./admission.js";

const AUTH = { type: "bearer", token: 'pk_"quoted\\' };
const call = (more: object = {}): string => JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping", ...more });

describe("the credential in a message", () => {
  it("the credential in a message is found at the top of the message and in `_meta`, and nowhere else", () => {
    expect(claimIn(call())).toBeUndefined();
    expect(claimIn(call({ auth: AUTH }))).toEqual({ auth: AUTH, meta: undefined });
    const meta = { "x/auth": 1, "portcullis/delegation": "chain" };
    expect(claimIn(call({ params: { a: [{ auth: 1 }], _meta: meta } }))).toEqual({
      auth: undefined,
      meta: { "portcullis/delegation": "chain" },
    });
    expect(claimIn(call({ params: { arguments: { auth: AUTH, _meta: meta } } }))).toBeUndefined();
    expect(
      claimIn('{ "params" : {"x":"}"} , "\\u0061uth" : { "type" : "bearer", "token":"t" }, "y":["auth"] }'),
    ).toEqual({ auth: { type: "bearer", token: "t" }, meta: undefined });
    expect(claimIn(call({ auth: AUTH }).replace("pk_", "portcullis\\/"))).toMatchObject({ auth: { type: "bearer" } });
  });

  it("the credential in a message of a batch is the one that all its messages carry", () => {
    const batch = (...messages: object[]): string => JSON.stringify(messages.map((each) => JSON.parse(call(each))));
    expect(claimIn(batch({ auth: AUTH }, { auth: AUTH }))).toEqual({ auth: AUTH, meta: undefined });
    expect(claimIn(batch({ auth: AUTH }, {}))).toEqual({ auth: false, meta: undefined });
    expect(claimIn(batch({ auth: AUTH }, { auth: { type: "bearer", token: "other" } }))).toMatchObject({ auth: false });
  });

  it("the credential in a message that is there twice, malformed or too long belongs to no caller", () => {
    expect(claimIn('{"auth":1,"auth":2}')).toMatchObject({ auth: false });
    expect(claimIn('{"auth":{')).toMatchObject({ auth: false });
    expect(claimIn(`{"auth":"${"x".repeat(100_000)}"}`)).toMatchObject({ auth: false });
  });
});
