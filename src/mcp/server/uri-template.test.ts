import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { UriTemplate } from "./uri-template.js";

const match = (template: string, uri: string) => new UriTemplate(template).match(uri);

describe("a URI template", () => {
  it.each<[string, string, Record<string, string> | undefined]>([
    ["test://template/{id}/data", "test://template/123/data", { id: "123" }],
    ["test://template/{id}/data", "test://template/1/2/data", undefined],
    ["test://template/{id}/data", "test://template//data", undefined],
    ["test://template/{id}/data", "test://template/1/data/", undefined],
    ["file:///{+path}", "file:///a/b/c.txt", { path: "a/b/c.txt" }],
    ["file:///{name}.json", "file:///x.json.json", { name: "x.json" }],
    ["x://{+a}-{b}", "x://p/q-r/s-t", { a: "p/q-r/s", b: "t" }],
    ["x://{a}-{b}", "x://1-2-3", { a: "1", b: "2-3" }],
    ["x://a{/b}", "x://a/1", { b: "1" }],
    ["x://a{/b}", "x://a", {}],
    ["x://a{/b}{/c}", "x://a/1/2", { b: "1", c: "2" }],
    ["x://s{?q,page}", "x://s?page=2&q=a%20b", { page: "2", q: "a b" }],
    ["x://s{?q,page}", "x://s", {}],
    ["x://s{?q,page}", "x://s?other=1", undefined],
    ["x://s{?q,page}", "x://s?q=1&q=2", undefined],
    ["x://{name}", "x://caf%C3%A9", { name: "café" }],
    ["x://{name}", "x://%E0%A4%A", undefined],
    ["x://{a}", `x://${"a".repeat(9_000)}`, undefined],
  ])("%s matches %s as %j", (template, uri, expected) => {
    expect(match(template, uri)).toEqual(expected);
  });

  it("matching is linear: many parts on a long URI that nearly fits", () => {
    const template = new UriTemplate(`x://${Array.from({ length: 18 }, (_, i) => `a{v${i}}`).join("")}b`);
    expect(template.match(`x://${"a".repeat(8_000)}`)).toBeUndefined();
  });

  it("what it expands, it matches again", () => {
    const template = new UriTemplate("db://{table}/rows{/id}{?limit}");
    const value = fc.string({ unit: "grapheme", minLength: 1, maxLength: 10 }).filter((text) => text.isWellFormed());
    fc.assert(
      fc.property(fc.record({ table: value, id: value, limit: value }, { requiredKeys: ["table"] }), (values) => {
        expect(template.match(template.expand(values))).toEqual(values);
      }),
      { numRuns: 300 },
    );
    expect(new UriTemplate("f:///{+p}").expand({ p: "a/b c" })).toBe("f:///a/b%20c");
  });

  it.each([
    ["x://{a}{b}", /right after another variable/],
    ["x://{a}/{a}", /uses the variable a twice/],
    ["x://{a", /a brace without its partner/],
    ["x://{#frag}", /only \{name\}, \{\+name\}, \{\/name\} and \{\?a,b\} are understood/],
    ["x://{a,b}", /only \{name\}/],
    ["x://{}", /not one of/],
    ["x://{a*}", /not one of/],
    ["x://plain", /has no variable; offer it as a plain resource/],
    ["x://{?q}/more", /must end with its query expression/],
    [`x://{a}${"b".repeat(2_000)}`, /longer than 2000 characters/],
    [`x://${Array.from({ length: 30 }, (_, i) => `/{v${i}}`).join("")}`, /more than 40 parts/],
  ])("%s is refused", (template, message) => {
    expect(() => new UriTemplate(template)).toThrow(message);
  });
});
