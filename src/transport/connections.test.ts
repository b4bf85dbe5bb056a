import { expect, test } from "vitest";
import { Connections, type Guest } from "./connections.js";

interface Named extends Guest {
  name: string;
  busy: boolean;
}

function house(max: number) {
  const evicted: string[] = [];
  const connections = new Connections<Named>(max);
  const arrive = (name: string, how: Partial<Named> = {}): boolean =>
    connections.admit({ name, busy: false, recent: false, evict: () => evicted.push(name), ...how });
  return { connections, evicted, arrive };
}

test("as long as there is room, everybody gets in", () => {
  const { connections, evicted, arrive } = house(3);
  expect([arrive("a"), arrive("b"), arrive("c")]).toEqual([true, true, true]);
  expect([connections.size, evicted]).toEqual([3, []]);
});

test("who never said anything goes first, in the order of arrival; then who was idle longest", () => {
  const { connections, evicted, arrive } = house(4);
  arrive("spoke", { recent: true });
  arrive("silent 1");
  arrive("busy", { busy: true });
  arrive("silent 2");
  for (const name of ["new 1", "new 2"]) expect(arrive(name, { recent: true })).toBe(true);
  expect(evicted).toEqual(["silent 1", "silent 2"]);
  arrive("new 3", { recent: true });
  expect(evicted).toEqual(["silent 1", "silent 2", "spoke"]);
  expect(connections.size).toBe(4);
});

test("when all were heard of lately, the first of them still makes room", () => {
  const { evicted, arrive } = house(3);
  for (const name of ["a", "b", "c"]) arrive(name, { recent: true });
  expect(arrive("d")).toBe(true);
  expect(evicted).toEqual(["a"]);
});

test("work is never interrupted: when all are busy the newcomer stays out", () => {
  const { connections, evicted, arrive } = house(2);
  arrive("a", { busy: true });
  arrive("b", { busy: true });
  expect(arrive("c")).toBe(false);
  expect([...connections].map((guest) => guest.name)).toEqual(["a", "b"]);
  expect(evicted).toEqual([]);
});
