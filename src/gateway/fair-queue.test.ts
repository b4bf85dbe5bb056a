import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { FairQueue } from "./fair-queue.js";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const of = (app: string) => ({ app, agent: "a" });

describe("turns", () => {
  it("lets others in between the messages of one that sends without pause", async () => {
    const turns = new FairQueue();
    const done: string[] = [];
    turns.enqueue(of("loud"), () => {});
    turns.enqueue(of("quiet"), () => {});
    for (let i = 0; i < 100; i++) turns.enqueue(of("loud"), () => done.push("loud"));
    turns.enqueue(of("quiet"), () => done.push("quiet"));
    await turn();
    expect(done.indexOf("quiet")).toBeLessThan(8);
    for (let i = 0; i < 110; i++) await turn();
    expect(done.filter((app) => app === "loud")).toHaveLength(100);
  });

  it("makes an application pause in proportion after a message that took long, and no other one [U12]", async () => {
    let now = 0;
    const turns = new FairQueue({ now: () => now });
    const done: string[] = [];
    const costly = (): void => {
      now += 50;
      done.push("costly");
    };
    turns.enqueue(of("quiet"), () => {});
    for (let i = 0; i < 3; i++) turns.enqueue(of("loud"), costly);
    for (let i = 0; i < 5; i++) {
      turns.enqueue(of("quiet"), () => done.push("quiet"));
      await turn();
    }
    expect(done).toEqual(["costly", "quiet", "quiet", "quiet", "quiet", "quiet"]);
    now += 100;
    turns.enqueue(of("quiet"), () => {});
    await turn();
    await turn();
    expect(done.filter((what) => what === "costly")).toHaveLength(2);
  });

  it("counts what it took to receive a long message before its turn", async () => {
    let now = 0;
    const turns = new FairQueue({ now: () => now });
    let ran = 0;
    turns.enqueue(of("quiet"), () => {});
    for (let i = 0; i < 3; i++) turns.enqueue(of("loud"), () => ran++, 4_000_000);
    for (let i = 0; i < 10; i++) {
      turns.enqueue(of("quiet"), () => {});
      await turn();
    }
    expect(ran).toBe(1);
    now = 30;
    turns.enqueue(of("quiet"), () => {});
    await turn();
    await turn();
    expect(ran).toBe(2);
  });

  it("lets in at last what waited for its application's pause", async () => {
    const turns = new FairQueue();
    const done: number[] = [];
    const busy = (i: number) => (): void => {
      const until = performance.now() + 5;
      while (performance.now() < until);
      done.push(i);
    };
    turns.enqueue(of("quiet"), () => {});
    for (let i = 0; i < 3; i++) turns.enqueue(of("loud"), busy(i));
    await expect.poll(() => done, { timeout: 30_000 }).toEqual([0, 1, 2]);
  });

  it("keeps the order of one application's messages", async () => {
    const turns = new FairQueue();
    const done: number[] = [];
    turns.enqueue(of("b"), () => {});
    for (let i = 0; i < 20; i++) turns.enqueue(of("a"), () => done.push(i));
    for (let i = 0; i < 20; i++) await turn();
    expect(done).toEqual(Array.from({ length: 20 }, (_, i) => i));
  });

  it("runs at once what is alone, and again when it has been alone for a while", async () => {
    let now = 0;
    const turns = new FairQueue({ now: () => now });
    let ran = 0;
    const send = (count: number): void => {
      for (let i = 0; i < count; i++) turns.enqueue(of("a"), () => ran++);
    };
    send(50);
    expect(ran).toBe(50);
    turns.enqueue(of("b"), () => {});
    send(50);
    expect(ran).toBeLessThan(60);
    for (let i = 0; i < 60; i++) await turn();
    expect(ran).toBe(100);
    now = 2_000;
    send(50);
    expect(ran).toBe(150);
  });

  it("gives no turn to messages whose callers have left", async () => {
    const turns = new FairQueue();
    let ran = 0;
    turns.enqueue(of("loud"), () => {});
    turns.enqueue(of("quiet"), () => {});
    turns.enqueue(of("loud"), () => {});
    const run = (): void => {
      ran++;
    };
    for (let i = 0; i < 5_000; i++) turns.enqueue(of("loud"), run, 0, () => true);
    turns.enqueue(of("loud"), run);
    await turn();
    await turn();
    await turn();
    expect(ran).toBe(1);
  });

  it("releases a message that has had its turn while others still wait", async () => {
    const turns = new FairQueue();
    const texts: WeakRef<object>[] = [];
    let ran = 0;
    const send = (): void => {
      const text = {};
      texts.push(new WeakRef(text));
      turns.enqueue(of("loud"), () => {
        if (text !== undefined) ran++;
      });
    };
    turns.enqueue(of("loud"), () => {});
    turns.enqueue(of("quiet"), () => {});
    turns.enqueue(of("loud"), () => {});
    for (let i = 0; i < 500; i++) send();
    while (ran < 400) await turn();
    const waiting = 500 - ran;
    await turn();
    collect();
    expect(waiting).toBeGreaterThan(0);
    expect(texts.filter((text) => text.deref() !== undefined).length).toBeLessThanOrEqual(waiting + 2);
  });
});
