import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { createDialer } from "./dialer.js";
import { Lookups } from "./lookups.js";

const never = new AbortController().signal;

it("a server whose names are resolved slowly has one lookup under way and then pauses, with its last answers", async () => {
  let now = 0;
  let running = 0;
  const most: number[] = [];
  const asked: string[] = [];
  const resolve = async (host: string): Promise<string[]> => {
    asked.push(host);
    most.push(++running);
    await sleep(1);
    if (host.startsWith("slow")) now += 3_000;
    running--;
    if (host === "slow-gone.example") throw new Error("no such name");
    return ["192.0.2.1"];
  };
  const lookups = new Lookups(resolve, { now: () => now });
  const hosts = ["a.example", "slow.example", "b.example", "c.example"];
  const found = await Promise.allSettled(hosts.map((host) => lookups.resolve(host, never)));
  expect(found.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "rejected"]);
  expect([Math.max(...most), asked]).toEqual([1, ["a.example", "slow.example"]]);
  await expect(lookups.resolve("b.example", never)).rejects.toThrow("resolved in 15 s");
  expect(await lookups.resolve("slow.example", never)).toEqual(["192.0.2.1"]);
  expect(asked).toHaveLength(2);
  now += 15_000;
  expect(await lookups.resolve("b.example", never)).toEqual(["192.0.2.1"]);
  await expect(lookups.resolve("slow-gone.example", never)).rejects.toThrow("no such name");
  await expect(lookups.resolve("slow-gone.example", never)).rejects.toThrow("no such name");
  expect(asked.slice(2)).toEqual(["b.example", "slow-gone.example"]);
});

it("a lookup that no caller waits for any more is not begun", async () => {
  const asked: string[] = [];
  let finish = (): void => {};
  const dialer = createDialer({
    timeoutMs: 20,
    ofServer: true,
    resolve: (host) => {
      asked.push(host);
      return new Promise((done) => {
        finish = () => done(["192.0.2.1"]);
      });
    },
  });
  const dials = ["a.example", "b.example", "c.example"].map((host) => dialer.check({ host, port: 443, tls: true }));
  const ended = await Promise.allSettled(dials);
  expect(ended.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
  finish();
  await sleep(10);
  expect(asked).toEqual(["a.example"]);
});
