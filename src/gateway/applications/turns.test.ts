import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { Turns } from "./turns.js";

describe("turns", () => {
  it("lets others in between the messages of one that sends without pause", async () => {
    const turns = new Turns();
    const done: string[] = [];
    turns.take("loud", () => {});
    turns.take("quiet", () => {});
    for (let i = 0; i < 100; i++) turns.take("loud", () => done.push("loud"));
    turns.take("quiet", () => done.push("quiet"));
    await turn();
    expect(done.indexOf("quiet")).toBeLessThan(8);
    for (let i = 0; i < 110; i++) await turn();
    expect(done.filter((app) => app === "loud")).toHaveLength(100);
  });

  it("keeps the order of one application's messages", async () => {
    const turns = new Turns();
    const done: number[] = [];
    turns.take("b", () => {});
    for (let i = 0; i < 20; i++) turns.take("a", () => done.push(i));
    for (let i = 0; i < 20; i++) await turn();
    expect(done).toEqual(Array.from({ length: 20 }, (_, i) => i));
  });

  it("runs at once what is alone, and again when it has been alone for a while", async () => {
    let now = 0;
    const turns = new Turns(() => now);
    let ran = 0;
    const send = (count: number): void => {
      for (let i = 0; i < count; i++) turns.take("a", () => ran++);
    };
    send(50);
    expect(ran).toBe(50);
    turns.take("b", () => {});
    send(50);
    expect(ran).toBeLessThan(60);
    for (let i = 0; i < 60; i++) await turn();
    expect(ran).toBe(100);
    now = 2_000;
    send(50);
    expect(ran).toBe(150);
  });
});
