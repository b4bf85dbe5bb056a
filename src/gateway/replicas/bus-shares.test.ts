import { describe, expect, it } from "vitest";
import { Shares } from "./bus.js";

describe("a share", () => {
  const limits = { perAgent: 2, perApp: 3, burst: 4, perSecond: 1 };
  const a = { app: "shop", agent: "a" };

  it("a share is so many at once for an agent and for an application, and others have theirs", () => {
    const shares = new Shares("lines", { ...limits, burst: 100 });
    const first = shares.take(a);
    shares.take(a);
    expect(() => shares.take(a)).toThrow("too many lines of one caller");
    shares.take({ app: "shop", agent: "b" });
    expect(() => shares.take({ app: "shop", agent: "b" })).toThrow("too many");
    shares.take({ app: "blog", agent: "a" });
    first();
    first();
    shares.take(a);
    expect(() => shares.take(a)).toThrow("too many");
  });

  it("a share is so many in a while, however soon they are given back", () => {
    let now = 0;
    const shares = new Shares("messages", limits, () => now);
    for (let i = 0; i < 4; i++) shares.take(a)();
    expect(() => shares.take(a)).toThrow("too many messages");
    shares.take({ app: "shop", agent: "b" })();
    now = 1_001;
    shares.take(a)();
    expect(() => shares.take(a)).toThrow("too many messages");
  });

  it("a share of callers that are gone takes no room", () => {
    let now = 0;
    const shares = new Shares("messages", limits, () => now);
    for (let i = 0; i < 25_000; i++) {
      now += 2;
      shares.take({ app: "shop", agent: `${i}` })();
    }
  });
});
