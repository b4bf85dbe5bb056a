import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { Turns } from "./turns.js";

describe("turns", () => {
  it("lets others in between the messages of one that sends without pause", async () => {
    const turns = new Turns();
    const done: string[] = [];
    for (let i = 0; i < 100; i++) turns.take("loud", () => done.push("loud"));
    turns.take("quiet", () => done.push("quiet"));
    expect(done.indexOf("quiet")).toBeLessThan(8);
    for (let i = 0; i < 60; i++) await turn();
    expect(done.filter((app) => app === "loud")).toHaveLength(100);
  });

  it("keeps the order of one application's messages", async () => {
    const turns = new Turns();
    const done: number[] = [];
    for (let i = 0; i < 20; i++) turns.take("a", () => done.push(i));
    for (let i = 0; i < 20; i++) await turn();
    expect(done).toEqual(Array.from({ length: 20 }, (_, i) => i));
  });

  it("runs at once what is alone", () => {
    const turns = new Turns();
    let ran = false;
    turns.take("a", () => {
      ran = true;
    });
    expect(ran).toBe(true);
  });
});
