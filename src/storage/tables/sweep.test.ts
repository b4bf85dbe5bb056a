import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { sweep } from "../open.js";
import type { Engine } from "../sql.js";
import { openSqlite } from "../sqlite/engine.js";

describe("sweep", () => {
  let engine: Engine;
  beforeEach(async () => {
    engine = await openSqlite(":memory:", { origin: "test", waitMs: () => 1_000, maxWaiting: 100 });
  });
  afterEach(() => engine.close());

  const backlog = (rows: number) =>
    engine.write((sql) =>
      sql.all(
        `INSERT INTO spent (key, expires_at) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
         SELECT 'k' || i, i FROM n`,
        [rows],
      ),
    );
  const left = async () => (await engine.read((sql) => sql.all("SELECT count(*) AS n FROM spent")))[0]?.n as number;

  it("removes a backlog of many batches in one round, and other operations run between the batches [H12]", async () => {
    await backlog(25_000);
    await engine.write((sql) => sql.all("INSERT INTO spent (key, expires_at) VALUES ('current', @now + 60000)"));
    const round = sweep(engine);
    const meanwhile: number[] = [];
    let done = false;
    void round.then(() => (done = true));
    while (!done) meanwhile.push(await left());
    expect(await left()).toBe(1);
    expect(meanwhile.some((rows) => rows > 1 && rows < 25_001)).toBe(true);
  });

  it("continues with the other tables when one fails [H12]", async () => {
    await backlog(10);
    await engine.write((sql) => sql.all("DROP TABLE sessions"));
    await expect(sweep(engine)).rejects.toThrow(/sessions/);
    expect(await left()).toBe(0);
  });

  it("stops between two batches when the store is closed [H12]", async () => {
    await backlog(25_000);
    const stop = new AbortController();
    const round = sweep(engine, stop.signal);
    while ((await left()) === 25_000);
    stop.abort();
    await round;
    expect(await left()).toBeGreaterThan(0);
  });
});
