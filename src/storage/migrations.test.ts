import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "./fixtures/postgres.js";
import { LEVEL, migrate, migrateBack, POSTGRES, SQLITE } from "./migrations.js";
import { openPostgres } from "./postgres/engine.js";
import type { Engine, Sql } from "./sql.js";
import { openSqlite } from "./sqlite/engine.js";

const directory = mkdtempSync(join(tmpdir(), "portcullis-migrations-"));
let postgres: PostgresCluster;
beforeAll(async () => {
  postgres = await startPostgres();
}, 120_000);
afterAll(async () => {
  await postgres.stop();
  rmSync(directory, { recursive: true, force: true });
});

const options = { origin: "test", waitMs: () => 5_000, maxWaiting: 100 };
const engines: Record<"sqlite" | "postgres", () => Promise<Engine>> = {
  sqlite: () => openSqlite(join(directory, "store.db"), options),
  postgres: async () =>
    openPostgres(await postgres.database(), {
      ...options,
      maxConnections: 2,
      statementTimeoutMs: 10_000,
      stalledTransactionMs: 1_000,
    }),
};

/** Everything that the tables of a store are made of. */
function shapeOf(kind: Engine["kind"], sql: Sql): Promise<unknown[]> {
  return kind === "sqlite"
    ? sql.all("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
    : sql.all(
        `SELECT proname AS table_name, prosrc AS column_name, '' AS data_type, '' AS is_nullable, '' AS column_default
         FROM pg_proc WHERE proname LIKE 'portcullis%' UNION ALL SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
         WHERE table_schema = current_schema() ORDER BY 1, 2`,
      );
}

describe.each(["sqlite", "postgres"] as const)("the newest migration in %s", (kind) => {
  it("is taken back to exactly the tables that the version before makes", async () => {
    const types = kind === "sqlite" ? SQLITE : POSTGRES;
    const engine = await engines[kind]();
    const newest = await engine.read((sql) => shapeOf(kind, sql));
    expect(await engine.write((sql) => migrateBack(sql, types))).toBe(LEVEL - 1);
    const back = await engine.read((sql) => shapeOf(kind, sql));
    // The version before, which knows one level less, accepts it and refuses the newer one.
    await engine.write((sql) => migrate(sql, types, undefined, LEVEL - 1));
    expect(await engine.read((sql) => shapeOf(kind, sql))).toEqual(back);
    await engine.write((sql) => migrate(sql, types));
    expect(await engine.read((sql) => shapeOf(kind, sql))).toEqual(newest);
    await expect(engine.write((sql) => migrate(sql, types, undefined, LEVEL - 1))).rejects.toThrow(
      "portcullis store downgrade",
    );
    await engine.close();
  });
});
