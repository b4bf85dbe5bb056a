import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { eachLane, Graph, hasBit, PASS, setBit, type Transfer } from "./graph.js";
import { Reach } from "./reach.js";

const NODES = 7;
const LANES = 40;
const WORDS = 2;

const lanes = fc.uniqueArray(fc.nat(LANES - 1), { maxLength: 12 });
const transfer = fc.oneof(
  fc.constant(PASS),
  fc.record({
    mask: fc.option(lanes.map(bitsOf), { nil: undefined }),
    moves: fc.array(fc.tuple(fc.nat(LANES - 1), fc.nat(LANES - 1)), { maxLength: 3 }),
  }),
);
const edge = fc.record({ from: fc.nat(NODES - 1), to: fc.nat(NODES - 1), transfer });
type Edge = { from: number; to: number; transfer: Transfer };
const setup = fc.record({
  edges: fc.array(edge, { maxLength: 14 }),
  keep: fc.array(fc.oneof(fc.constant(Array.from({ length: LANES }, (_, i) => i)), lanes), {
    minLength: NODES,
    maxLength: NODES,
  }),
  sources: fc.array(fc.oneof(fc.constant<number[]>([]), lanes), { minLength: NODES, maxLength: NODES }),
});

function bitsOf(list: readonly number[]): Uint32Array {
  const bits = new Uint32Array(WORDS);
  for (const lane of list) setBit(bits, 0, lane);
  return bits;
}

function flat(lists: readonly (readonly number[])[]): Uint32Array {
  const all = new Uint32Array(NODES * WORDS);
  for (const [node, list] of lists.entries()) for (const lane of list) setBit(all, node * WORDS, lane);
  return all;
}

function graphOf(edges: readonly Edge[]): Graph {
  const transfers = new Map(edges.map((e, i) => [i, e.transfer] as const).filter(([, t]) => t !== PASS));
  return new Graph(
    NODES,
    edges.map((e) => e.from),
    edges.map((e) => e.to),
    transfers,
  );
}

/** The plainest search there is: one (node, lane) pair after another. */
function naive(
  edges: readonly Edge[],
  keep: readonly (readonly number[])[],
  sources: readonly (readonly number[])[],
): Map<string, number> {
  const distance = new Map<string, number>();
  let frontier: [number, number][] = [];
  const enter = (node: number, lane: number, level: number, next: [number, number][]): void => {
    if (!keep[node]?.includes(lane) || distance.has(`${node} ${lane}`)) return;
    distance.set(`${node} ${lane}`, level);
    next.push([node, lane]);
  };
  for (const [node, list] of sources.entries()) for (const lane of list) enter(node, lane, 0, frontier);
  for (let level = 1; frontier.length > 0; level++) {
    const next: [number, number][] = [];
    for (const [node, lane] of frontier) {
      for (const { from, to, transfer: t } of edges) {
        if (from !== node) continue;
        if (t.mask === undefined || hasBit(t.mask, 0, lane)) enter(to, lane, level, next);
        for (const [s, target] of t.moves) if (s === lane) enter(to, target, level, next);
      }
    }
    frontier = next;
  }
  return distance;
}

function distances(reach: Reach): Map<string, number> {
  const all = new Map<string, number>();
  for (let node = 0; node < NODES; node++)
    eachLane(reach.at(node), (lane) => all.set(`${node} ${lane}`, reach.distance(node, lane)));
  return all;
}

function expectWalkable(reach: Reach, sources: readonly (readonly number[])[]): void {
  for (let node = 0; node < NODES; node++) {
    eachLane(reach.at(node), (lane) => {
      const path = reach.path(node, lane) ?? [];
      expect(path.length).toBe(reach.distance(node, lane));
      let possible = new Set<number>(path.length === 0 ? [lane] : sources[reach.graph.from(path[0] as number)]);
      for (const step of path) {
        const t = reach.graph.transfer(step);
        const passed = [...possible].filter((l) => t.mask === undefined || hasBit(t.mask, 0, l));
        possible = new Set([...passed, ...t.moves.filter(([s]) => possible.has(s)).map(([, to]) => to)]);
      }
      expect(possible.has(lane)).toBe(true);
    });
  }
}

describe("reach", () => {
  it("finds the same lanes at the same distance as the plainest search", () => {
    fc.assert(
      fc.property(setup, ({ edges, keep, sources }) => {
        const reach = new Reach(graphOf(edges), WORDS, flat(keep), flat(sources));
        expect(distances(reach)).toEqual(naive(edges, keep, sources));
        expectWalkable(reach, sources);
      }),
      { numRuns: 250 },
    );
  });

  it("answers after any changes as it would from scratch", () => {
    const change = fc.oneof(
      edge.map((e) => ({ kind: "add" as const, edge: e })),
      fc.nat(30).map((index) => ({ kind: "remove" as const, index })),
      fc.tuple(fc.nat(NODES - 1), lanes).map(([node, list]) => ({ kind: "sources" as const, node, list })),
    );
    fc.assert(
      fc.property(setup, fc.array(change, { maxLength: 8 }), ({ edges, keep, sources: first }, changes) => {
        const reach = new Reach(graphOf(edges), WORDS, flat(keep), flat(first));
        const alive = new Map<number, Edge>(edges.map((e, i) => [i, e]));
        const sources = first.map((list) => [...list]);
        for (const c of changes) {
          const before = Array.from({ length: NODES }, (_, node) => reach.at(node).slice());
          let shifts: { node: number; gained: Uint32Array; lost: Uint32Array }[] = [];
          if (c.kind === "add") {
            const added = reach.addEdge(c.edge.from, c.edge.to, c.edge.transfer);
            alive.set(added.edge, c.edge);
            shifts = added.shifts;
          } else if (c.kind === "remove" && alive.delete(c.index)) shifts = reach.removeEdge(c.index);
          else if (c.kind === "sources") {
            sources[c.node] = c.list;
            shifts = reach.setSources(c.node, bitsOf(c.list));
          }
          expect(distances(reach)).toEqual(naive([...alive.values()], keep, sources));
          expectWalkable(reach, sources);
          for (const { node, gained, lost } of shifts) {
            const after = before[node]?.map((bits, w) => ((bits | (gained[w] as number)) & ~(lost[w] as number)) >>> 0);
            expect(reach.at(node)).toEqual(after);
          }
          const changed = new Set(shifts.map((shift) => shift.node));
          for (let node = 0; node < NODES; node++) if (!changed.has(node)) expect(reach.at(node)).toEqual(before[node]);
        }
      }),
      { numRuns: 250 },
    );
  });
});
