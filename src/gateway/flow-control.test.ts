import { setImmediate as turn } from "node:timers/promises";
import { afterEach, describe, expect, it, vi } from "vitest";
import { CallsInFlight } from "../pipeline/index.js";
import { ANONYMOUS_APP, FlowControl, type WaitingMessages } from "./flow-control.js";

/** What waits, as the tests set it: `app/agent` to a number of messages. */
class Waiting implements WaitingMessages {
  readonly counts = new Map<string, number>();

  set(caller: string, count: number): void {
    if (count > 0) this.counts.set(caller, count);
    else this.counts.delete(caller);
  }
  get size(): number {
    return new Set([...this.counts.keys()].map((caller) => caller.split("/")[0])).size;
  }
  waiting(app: string): number {
    let sum = 0;
    for (const [caller, count] of this.counts) if (caller.startsWith(`${app}/`)) sum += count;
    return sum;
  }
  waitingOf(app: string, agent: string): number {
    return this.counts.get(`${app}/${agent}`) ?? 0;
  }
  agents(app: string): number {
    return [...this.counts.keys()].filter((caller) => caller.startsWith(`${app}/`)).length;
  }
}

const read: string[] = [];

class Connection {
  readonly name: string;
  isPaused = false;

  constructor(name: string) {
    this.name = name;
  }
  pause(): void {
    this.isPaused = true;
  }
  resume(): void {
    if (this.isPaused) read.push(this.name);
    this.isPaused = false;
  }
}

const NO_BOUND = { maxCalls: 10_000, maxAppCalls: 10_000, maxAgentCalls: 10_000 };

function setUp(limits = NO_BOUND) {
  const waiting = new Waiting();
  const calls = new CallsInFlight(limits);
  let now = 0;
  const control = new FlowControl(calls, waiting, { maxPauseMs: 1_000, now: () => now });
  const connect = (caller: string, count: number) => {
    const [app, agent] = caller.split("/") as [string, string];
    const flow = control.of({ app, agent });
    const connections = Array.from({ length: count }, (_, i) => new Connection(`${caller} ${i}`));
    for (const connection of connections) {
      flow.attach();
      flow.rest(connection);
    }
    return { flow, connections };
  };
  return { waiting, calls, control, connect, pass: (ms: number) => void (now += ms) };
}

afterEach(() => {
  read.length = 0;
  vi.useRealTimers();
});

describe("flow control", () => {
  it("stops reading the connections of the caller that sent too much, and reads those of all others [G5]", () => {
    const { waiting, control, connect } = setUp();
    const loud = connect("loud/a", 100);
    const quiet = connect("quiet/a", 3);
    waiting.set("loud/a", 64);
    loud.flow.arrived();
    quiet.flow.arrived();
    expect(loud.connections.every(({ isPaused }) => isPaused)).toBe(true);
    expect(quiet.connections.some(({ isPaused }) => isPaused)).toBe(false);
    expect(control.paused).toBe(100);
  });

  it("reads a quiet agent of an application whose other agent sent too much", () => {
    const { waiting, connect } = setUp();
    const loud = connect("shop/loud", 10);
    const quiet = connect("shop/quiet", 2);
    waiting.set("shop/loud", 70);
    loud.flow.arrived();
    quiet.flow.arrived();
    expect(loud.connections.every(({ isPaused }) => isPaused)).toBe(true);
    expect(quiet.connections.some(({ isPaused }) => isPaused)).toBe(false);
  });

  it("stops reading all agents of an application when many of them have one message waiting each", () => {
    const { waiting, connect } = setUp();
    const busy = connect("shop/agent 0", 1);
    const others = Array.from({ length: 200 }, (_, i) => connect(`shop/agent ${i + 100}`, 1));
    const quiet = connect("quiet/a", 1);
    for (let i = 0; i < 63; i++) waiting.set(`shop/agent ${i}`, 1);
    busy.flow.arrived();
    expect(others.some(({ connections }) => connections[0]?.isPaused)).toBe(false);
    waiting.set("shop/agent 63", 1);
    busy.flow.arrived();
    expect(others.every(({ connections }) => connections[0]?.isPaused)).toBe(true);
    quiet.flow.arrived();
    expect(quiet.connections[0]?.isPaused).toBe(false);
  });

  it("reads as many connections again as there is room for, longest paused first, agents in turn", () => {
    const { waiting, control, connect } = setUp();
    const a = connect("shop/a", 5);
    const b = connect("shop/b", 5);
    waiting.set("shop/a", 64);
    waiting.set("shop/b", 64);
    a.flow.arrived();
    b.flow.arrived();
    waiting.set("shop/a", 30);
    waiting.set("shop/b", 30);
    control.handled();
    expect(read).toEqual(["shop/a 0", "shop/b 0", "shop/a 1", "shop/b 1"]);
    waiting.set("shop/a", 33);
    control.handled();
    expect(read.slice(4)).toEqual(["shop/a 2"]);
    waiting.set("shop/a", 0);
    waiting.set("shop/b", 0);
    control.handled();
    expect(read).toHaveLength(10);
    expect(control.paused).toBe(0);
  });

  it("reads connections again when calls end, no more than the bounds leave room for", async () => {
    const { calls, connect } = setUp({ maxCalls: 100, maxAppCalls: 100, maxAgentCalls: 4 });
    const caller = { app: "shop", agent: "a" };
    for (let i = 0; i < 4; i++) calls.enter(caller);
    const { flow } = connect("shop/a", 10);
    for (let i = 0; i < 32; i++) flow.refused();
    flow.arrived();
    await turn();
    expect(read).toEqual([]);
    calls.leave(caller);
    calls.leave(caller);
    await turn();
    await turn();
    expect(read).toEqual(["shop/a 0", "shop/a 1"]);
  });

  it("keeps reading a caller at its bound while few of its calls are refused, since its answers come on the same connections", () => {
    const { calls, connect } = setUp({ maxCalls: 100, maxAppCalls: 100, maxAgentCalls: 1 });
    calls.enter({ app: "shop", agent: "a" });
    const { flow, connections } = connect("shop/a", 3);
    for (let i = 0; i < 10; i++) flow.refused();
    flow.arrived();
    expect(connections.some(({ isPaused }) => isPaused)).toBe(false);
  });

  it("reads every connection after a second, a bounded number at a time [G5]", () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    const { waiting, control, connect, pass } = setUp();
    const loud = connect("loud/a", 100);
    const other = connect("other/a", 30);
    waiting.set("loud/a", 64);
    waiting.set("other/a", 64);
    loud.flow.arrived();
    other.flow.arrived();
    pass(999);
    vi.advanceTimersByTime(50);
    expect(read).toEqual([]);
    pass(1);
    vi.advanceTimersByTime(50);
    expect(read).toHaveLength(25);
    // Both applications have their share of it.
    expect(read.filter((name) => name.startsWith("other"))).toHaveLength(12);
    vi.advanceTimersByTime(1_000);
    expect(read).toHaveLength(130);
    expect(control.paused).toBe(0);
  });

  it("forgets a connection that closes while it is paused", () => {
    const { waiting, control, connect } = setUp();
    const { flow, connections } = connect("loud/a", 3);
    waiting.set("loud/a", 64);
    flow.arrived();
    flow.detach(connections[0] as Connection);
    expect(control.paused).toBe(2);
    waiting.set("loud/a", 0);
    control.handled();
    expect(read).toEqual(["loud/a 1", "loud/a 2"]);
  });

  it("keeps one flow for a caller for as long as a connection carries its requests", () => {
    const { control, connect } = setUp();
    const { flow, connections } = connect("shop/a", 2);
    expect(control.of({ app: "shop", agent: "a" })).toBe(flow);
    for (const connection of connections) flow.detach(connection);
    expect(control.of({ app: "shop", agent: "a" })).not.toBe(flow);
  });

  it("divides what may wait among many busy applications", () => {
    const { waiting, connect } = setUp();
    for (let i = 0; i < 200; i++) waiting.set(`app${i}/a`, 8);
    const { flow, connections } = connect("app0/a", 1);
    flow.arrived();
    expect(connections[0]?.isPaused).toBe(true);
  });

  it("refuses calls only when several times as many messages wait as stop the reading", () => {
    const { waiting, control } = setUp();
    waiting.set("loud/a", 255);
    expect(control.isOverfull("loud")).toBe(false);
    waiting.set("loud/a", 256);
    expect(control.isOverfull("loud")).toBe(true);
    expect(control.isOverfull("quiet")).toBe(false);
  });

  it("treats callers that are not authenticated as one caller for each address", () => {
    const { waiting, connect } = setUp();
    const loud = connect(`${ANONYMOUS_APP}/10.0.0.1`, 2);
    const other = connect(`${ANONYMOUS_APP}/10.0.0.2`, 2);
    waiting.set(`${ANONYMOUS_APP}/10.0.0.1`, 64);
    loud.flow.arrived();
    other.flow.arrived();
    expect(loud.flow.isAnonymous).toBe(true);
    expect(loud.connections.every(({ isPaused }) => isPaused)).toBe(true);
    expect(other.connections.some(({ isPaused }) => isPaused)).toBe(false);
  });
});

describe("calls in flight", () => {
  it("calls in flight leave a share of the process to applications with few calls when others take all they can [G5]", () => {
    const calls = new CallsInFlight({ maxCalls: 100, maxAppCalls: 100, maxAgentCalls: 100 });
    const loud = { app: "loud", agent: "a" };
    let entered = 0;
    for (; calls.refusal(loud) === undefined; entered++) calls.enter(loud);
    expect(entered).toBe(75);
    for (let i = 0; i < 8; i++) {
      const quiet = { app: `quiet${i}`, agent: "a" };
      expect(calls.refusal(quiet)).toBeUndefined();
      calls.enter(quiet);
    }
    expect(calls.refusal(loud)?.type).toBe("Unavailable");
  });

  it("never exceed the bound of the process", () => {
    const calls = new CallsInFlight({ maxCalls: 40, maxAppCalls: 40, maxAgentCalls: 40 });
    let entered = 0;
    for (let i = 0; i < 1_000; i++) {
      const caller = { app: `app${i}`, agent: "a" };
      if (calls.refusal(caller) !== undefined) continue;
      calls.enter(caller);
      entered++;
    }
    expect(entered).toBe(40);
  });
});
