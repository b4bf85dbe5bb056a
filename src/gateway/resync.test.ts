import { afterEach, expect, it } from "vitest";
import { createServer, permitAll } from "../server.js";
import type { Feed, FeedListener } from "../storage/index.js";
import { openWorld, type World } from "./fixtures/world.js";

const open: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

/** A feed that lost its connection: changes do not arrive, until a resync is announced. */
function silentFeed(): { wrap: (feed: Feed) => Feed; resync: () => void } {
  const listeners: FeedListener[] = [];
  return {
    wrap: (feed) => ({
      since: (seq, last) => feed.since(seq, last),
      lagMs: 0,
      resync: () => {},
      latest: () => feed.latest(),
      kept: (from) => feed.kept(from),
      recordedBy: (ledger) => feed.recordedBy(ledger),
      setRecorded: (ledger, seq) => feed.setRecorded(ledger, seq),
      announce: (change) => feed.announce(change),
      watch: async (listener) => {
        listeners.push(listener);
        return () => {};
      },
    }),
    resync: () => {
      for (const listener of listeners) listener.resync();
    },
  };
}

async function upstream(name: string): Promise<string> {
  const server = createServer(name, { policy: permitAll }).tool(name, "Answers", { type: "object" }, () => name, {
    noGuardrailRequired: true,
  });
  open.push(server);
  return (await server.listen({ transport: "http", port: 0 })).url;
}

async function start(feed: ReturnType<typeof silentFeed>, connected: string[] = []): Promise<World> {
  const world = await openWorld({ feed: feed.wrap, onConnect: (server) => connected.push(server) });
  open.push(world);
  return world;
}

async function eventually(condition: () => boolean): Promise<void> {
  const until = performance.now() + 30_000;
  while (!condition()) {
    if (performance.now() > until) throw new Error("waited for 30 s");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

it("takes over the document of a restored store although its revision is not above the one in memory [H12]", async () => {
  const feed = silentFeed();
  const world = await start(feed);
  const [before, after] = [await upstream("before"), await upstream("after")];
  await world.put("team", { servers: { one: { url: before, noGuardrail: ["*"] } } });
  const servedApplication = await world.applications.get("team");
  expect(servedApplication?.endpoint.gateway.server.tools.has("before")).toBe(true);
  await world.storage.applications.remove("team", "test");
  await world.put("team", { servers: { one: { url: after, noGuardrail: ["*"] } } });
  feed.resync();
  await eventually(() => servedApplication?.endpoint.gateway.server.tools.has("after") === true);
  expect(servedApplication?.endpoint.gateway.server.tools.has("before")).toBe(false);
});

it("connects again after a resync to the servers whose secrets changed meanwhile, and to no others [H12]", async () => {
  const feed = silentFeed();
  const connected: string[] = [];
  const world = await start(feed, connected);
  const headers = { authorization: "Bearer ${secret:token}" };
  await world.put("team", {
    servers: { held: { url: await upstream("held"), headers }, plain: { url: await upstream("plain") } },
  });
  await world.storage.secrets.put("team", "token", Buffer.from("one"), "test");
  await world.applications.get("team");
  feed.resync();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(connected.sort()).toEqual(["held", "plain"]);
  await new Promise((resolve) => setTimeout(resolve, 2));
  await world.storage.secrets.put("team", "token", Buffer.from("two"), "test");
  feed.resync();
  await eventually(() => connected.length === 3);
  expect(connected.at(-1)).toBe("held");
});
