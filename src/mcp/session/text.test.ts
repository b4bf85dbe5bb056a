import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { notificationText, type Received, readMessage, requestText } from "./text.js";

const read = (text: string): Received => readMessage(text, 128) as Received;

describe("a request", () => {
  it("a request is spliced from the pieces, and reads as what they say", () => {
    const params = fc.dictionary(
      fc.string().filter((key) => key !== "_meta"),
      fc.jsonValue(),
    );
    fc.assert(
      fc.property(params, fc.dictionary(fc.string(), fc.jsonValue()), (given, meta) => {
        const inside = JSON.stringify(meta).slice(1, -1);
        const text = requestText(7, "tools/call", JSON.stringify(given), inside);
        const wanted = inside === "" ? given : { ...given, _meta: meta };
        expect(JSON.parse(text)).toEqual(
          JSON.parse(JSON.stringify({ jsonrpc: "2.0", id: 7, method: "tools/call", params: wanted })),
        );
      }),
      { numRuns: 300 },
    );
  });

  it("a request keeps the very characters of the given texts", () => {
    expect(requestText(1, "m", '{"a":1.0e0}', '"k":2')).toBe(
      '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1.0e0,"_meta":{"k":2}}}',
    );
    expect(requestText(1, "m", "{}", '"k":2')).toBe('{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"k":2}}}');
    expect(notificationText("n", undefined)).toBe('{"jsonrpc":"2.0","method":"n"}');
  });
});

describe("an answer", () => {
  it.each([
    ['{"jsonrpc":"2.0","id":1,"result":{"n":1.0,"big":12345678901234567890}}', '{"n":1.0,"big":12345678901234567890}'],
    ['{"result":{"a":"}]\\"{"},"jsonrpc":"2.0","id":1}', '{"a":"}]\\"{"}'],
    ['{ "jsonrpc" : "2.0" , "result" : { "a" : [ 1 , 2 ] } , "id" : 1 }', '{ "a" : [ 1 , 2 ] }'],
    ['{"jsonrpc":"2.0","id":1,"r\\u0065sult":{"x":1}}', '{"x":1}'],
    ['{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"},"x":[1,{"result":5}]}', '{"code":-1,"message":"m"}'],
  ])("an answer is cut out of %s as it was written", (text, part) => {
    const { message, text: cut } = read(text);
    expect(message.kind).toBe("response");
    expect(cut).toBe(part);
  });

  it("reads the same as what was cut out, whatever it holds and however it is laid out", () => {
    const result = fc.dictionary(fc.string(), fc.jsonValue());
    fc.assert(
      fc.property(result, fc.constantFrom(undefined, 1, "\t"), fc.nat(2), (value, indent, place) => {
        const entries: [string, unknown][] = [
          ["jsonrpc", "2.0"],
          ["id", 1],
          ["x", value],
        ];
        entries.splice(place, 0, ["result", value]);
        const text = JSON.stringify(Object.fromEntries(entries), null, indent);
        expect(JSON.parse(read(text).text)).toEqual(JSON.parse(JSON.stringify(value)));
      }),
      { numRuns: 300 },
    );
  });

  it.each([
    ['{"jsonrpc":"2.0","id":1,"result":{"a":1},"result":{"b":2}}', '{"b":2}'],
    ['{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","resultType":"x"}}', '{"resultType":"x"}'],
    ['{"jsonrpc":"2.0","id":1,"result":{"a":1,"\\u0061":2}}', '{"a":2}'],
    ['{"jsonrpc":"2.0","id":1,"result":{"a":1,"b":{"c":0},"a":3}}', '{"a":3,"b":{"c":0}}'],
  ])("an answer with a key twice is passed on the way it was read here: %s", (text, part) => {
    expect(read(text).text).toBe(part);
  });

  it("an answer that is not JSON, or endlessly deep, is rejected", () => {
    expect(() => read("{")).toThrow(SyntaxError);
    expect(() => read('{"a":"\\u00"}')).toThrow(SyntaxError);
    expect(() => read("[".repeat(100_000))).toThrow(/deeper than 128/);
    expect(() => readMessage('{"a":"[[[[\\"[[["}', 2)).not.toThrow();
    expect(() => read(`{"a":${"[".repeat(127)}${"]".repeat(127)}}`)).not.toThrow();
  });
});
