import { expect, test } from "vitest";
import { Connections, type Evictable } from "./connections.js";

interface Named extends Evictable {
  readonly name: string;
  busy: boolean;
}

function listener(max: number, maxPerAddress?: number) {
  const evicted: string[] = [];
  const connections = new Connections<Named>(max, maxPerAddress);
  const named = new Map<string, Named>();
  const arrive = (name: string, how: Partial<Named> = {}): boolean => {
    const connection = { name, busy: false, address: "127.0.0.1", evict: () => evicted.push(name), ...how };
    named.set(name, connection);
    return connections.admit(connection);
  };
  const of = (name: string): Named => named.get(name) as Named;
  return { connections, evicted, arrive, of };
}

test("admits every connection while there is room", () => {
  const { connections, evicted, arrive } = listener(3);
  expect([arrive("a"), arrive("b"), arrive("c")]).toEqual([true, true, true]);
  expect([connections.size, evicted]).toEqual([3, []]);
});

test("evicts incomplete requests first, oldest first, and then the connection that was idle longest", () => {
  const { connections, evicted, arrive, of } = listener(4);
  for (const name of ["used", "unfinished", "used later", "silent"]) arrive(name);
  connections.completed(of("used"));
  connections.completed(of("used later"));
  connections.began(of("used"));
  connections.completed(of("used"));
  for (const name of ["new 1", "new 2", "new 3", "new 4"]) {
    expect(arrive(name)).toBe(true);
    connections.completed(of(name));
  }
  expect(evicted).toEqual(["unfinished", "silent", "used later", "used"]);
  expect(connections.size).toBe(4);
});

test("evicts a known connection whose next request stays unfinished before an idle one", () => {
  const { connections, evicted, arrive, of } = listener(2);
  for (const name of ["idle", "unfinished"]) {
    arrive(name);
    connections.completed(of(name));
  }
  connections.began(of("unfinished"));
  arrive("new");
  expect(evicted).toEqual(["unfinished"]);
});

test("never interrupts a complete request: when all are busy the new connection is refused", () => {
  const { connections, evicted, arrive } = listener(2);
  arrive("a", { busy: true });
  arrive("b", { busy: true });
  expect(arrive("c")).toBe(false);
  expect([...connections].map((connection) => connection.name)).toEqual(["a", "b"]);
  expect(evicted).toEqual([]);
});

test("an address at its own limit evicts its own connections and none of another address", () => {
  const { connections, evicted, arrive, of } = listener(10, 2);
  arrive("other", { address: "192.0.2.1" });
  arrive("idle");
  connections.completed(of("idle"));
  arrive("unfinished");
  expect(arrive("next")).toBe(true);
  expect(arrive("one more")).toBe(true);
  expect(evicted).toEqual(["unfinished", "next"]);
  of("idle").busy = true;
  of("one more").busy = true;
  expect(arrive("too many")).toBe(false);
  expect(arrive("another address", { address: "192.0.2.2" })).toBe(true);
  expect(connections.size).toBe(4);
});
