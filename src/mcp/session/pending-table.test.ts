import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type PendingRequest, PendingTable } from "./pending.js";

describe("a table of calls in flight", () => {
  it("finds each by its own id, whatever came and went before", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(5)), (steps) => {
        const table = new PendingTable(8);
        const known = new Map<number, PendingRequest>();
        let last = 0;
        for (const step of steps) {
          const id = step < 4 ? table.nextId() : undefined;
          if (id !== undefined) {
            expect(id).toBeGreaterThan(last);
            last = id;
            const pending = { id } as PendingRequest;
            table.add(pending);
            known.set(id, pending);
          } else if (known.size > 0) {
            const [, some] = [...known][step % known.size] as [number, PendingRequest];
            known.delete(some.id);
            table.remove(some);
            table.remove(some);
          }
          expect(table.size).toBe(known.size);
          expect(new Set(table)).toEqual(new Set(known.values()));
          for (let n = 0; n <= last + 9; n++) expect(table.get(n)).toBe(known.get(n));
        }
      }),
      { numRuns: 300 },
    );
  });

  it("a table of calls in flight has room for so many, and says when it is full", () => {
    const table = new PendingTable(4);
    for (let n = 1; n <= 4; n++) table.add({ id: table.nextId() } as PendingRequest);
    expect(table.nextId()).toBeUndefined();
    for (const id of [0, -1, 1.5, 2 ** 53, Number.NaN, "1", null, undefined]) expect(table.get(id)).toBeUndefined();
  });
});
