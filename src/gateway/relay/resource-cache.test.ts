import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import type { Principal } from "../../policy/index.js";
import { ResourceCache } from "./resource-cache.js";

const who = (agent: string): Principal => ({ app: "a", agent, scope: [], via: "key" });
const result = (value: JsonObject) => ({ kind: "result" as const, text: JSON.stringify(value), value });

describe("what was read", () => {
  it("keeps a resource for as long as the server says, for the caller that read it [G7]", () => {
    let now = 0;
    const cache = new ResourceCache(0, () => now);
    cache.put("x://1", who("one"), result({ ttlMs: 100, cacheScope: "private" }));
    expect(cache.get("x://1", who("one"))).toBeDefined();
    expect(cache.get("x://1", who("two"))).toBeUndefined();
    now = 100;
    expect(cache.get("x://1", who("one"))).toBeUndefined();
  });

  it("keeps a resource for the whole application when the server marks it public, and not at all without a lifetime", () => {
    const cache = new ResourceCache();
    cache.put("x://1", who("one"), result({ ttlMs: 1_000, cacheScope: "public" }));
    expect(cache.get("x://1", who("two"))).toBeDefined();
    cache.put("x://2", who("one"), result({}));
    expect(cache.get("x://2", who("one"))).toBeUndefined();
    expect(new ResourceCache(0).get("x://2", who("one"))).toBeUndefined();
  });

  it("what was read is kept by the operator's word where the server cannot say", () => {
    const cache = new ResourceCache(1_000);
    cache.put("x://1", who("one"), result({}));
    expect(cache.get("x://1", who("one"))).toBeDefined();
    cache.put("x://2", who("one"), result({ ttlMs: 0 }));
    expect(cache.get("x://2", who("one"))).toBeUndefined();
  });

  it("what was read is forgotten when it has changed, and the oldest go when there is too much", () => {
    const cache = new ResourceCache(1_000);
    cache.put("x://1", who("one"), result({}));
    cache.forget("x://1");
    expect(cache.get("x://1", who("one"))).toBeUndefined();
    const half = "y".repeat(900_000);
    for (let i = 0; i < 30; i++) cache.put(`x://${i}`, who("one"), result({ half }));
    expect(cache.get("x://0", who("one"))).toBeUndefined();
    expect(cache.get("x://29", who("one"))).toBeDefined();
    cache.put("x://big", who("one"), result({ half: "z".repeat(2_000_000) }));
    expect(cache.get("x://big", who("one"))).toBeUndefined();
  });
});
