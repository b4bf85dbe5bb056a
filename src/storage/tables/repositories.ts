// The history of every application's definition files, as packs of git. The head moves by compare-and-set and brings its
// pack along in the same transaction: a history is never without what it names.

import { randomBytes } from "node:crypto";
import {
  checkName,
  checkSize,
  type Engine,
  MAX_BATCH,
  optionalColumn,
  type Row,
  type Sql,
  StorageError,
} from "../sql.js";
import type { PackBytes, RepositoryTable, StoredPack, StoredRepository } from "../types.js";

/** Small enough for one statement, however slow the line. */
const PART_BYTES = 4 * 1024 * 1024;
const MAX_PACK_BYTES = 1024 * 1024 * 1024;

export function repositoriesIn(engine: Engine): RepositoryTable {
  return {
    async state(app) {
      const [row] = await engine.read((sql) =>
        sql.all(
          `SELECT store.id AS store, repositories.id, head, seq, bytes,
             CASE WHEN claimed_until > @now THEN claimed_by END AS claimed_by
           FROM store LEFT JOIN repositories ON repositories.app = $1`,
          [app],
        ),
      );
      const { store, id } = row as Row;
      return {
        store: store as string,
        ...(id === null
          ? {}
          : { repository: { ...read(row as Row), ...optionalColumn("claimedBy", row?.claimed_by as string | null) } }),
      };
    },

    async push(app, from, head, pack, by) {
      checkName("the head", head);
      checkSize("a pack", pack.byteLength, MAX_PACK_BYTES);
      return engine.write(async (sql) => {
        const [known] = await sql.all("SELECT id FROM applications WHERE id = $1", [app]);
        if (!known) throw new StorageError("STORAGE_INVALID", `there is no application \`${app}\`; add it first`);
        const [moved] =
          from === undefined
            ? await sql.all(
                `INSERT INTO repositories (app, id, head, seq, bytes) VALUES ($1, $2, $3, 1, $4)
                 ON CONFLICT (app) DO NOTHING RETURNING *`,
                [app, newName(), head, pack.byteLength],
              )
            : await sql.all(
                `UPDATE repositories SET head = $4, seq = seq + 1, bytes = bytes + $5,
                   claimed_by = CASE WHEN claimed_by = $6 THEN NULL ELSE claimed_by END
                 WHERE app = $1 AND id = $2 AND seq = $3 RETURNING *`,
                [app, from.id, from.seq, head, pack.byteLength, by],
              );
        if (moved === undefined) return undefined;
        const repository = read(moved);
        await insert(sql, app, { seq: repository.seq, parent: from?.head, head }, pack);
        return repository;
      });
    },

    async claim(app, id, by, ms) {
      checkName("the name of who claims", by);
      const claimed = await engine.write((sql) =>
        sql.all(
          `UPDATE repositories SET claimed_by = $3, claimed_until = @now + CAST($4 AS BIGINT)
           WHERE app = $1 AND id = $2 AND (claimed_by IS NULL OR claimed_by = $3 OR claimed_until <= @now)
           RETURNING app`,
          [app, id, by, Math.ceil(ms)],
        ),
      );
      return claimed.length > 0;
    },

    async packs(app, id, after) {
      const rows = await engine.read((sql) =>
        sql.all(
          `SELECT packs.name, packs.seq, parent, packs.head, packs.bytes FROM packs
           JOIN repositories ON repositories.app = packs.app
           WHERE packs.app = $1 AND repositories.id = $2 AND packs.seq > $3 AND part = 0 ORDER BY packs.seq LIMIT $4`,
          [app, id, after, MAX_BATCH],
        ),
      );
      return rows.map(readPack);
    },

    async part(app, { seq, name }, part) {
      const [row] = await engine.read((sql) =>
        sql.all("SELECT data FROM packs WHERE app = $1 AND seq = $2 AND name = $3 AND part = $4", [
          app,
          seq,
          name,
          part,
        ]),
      );
      const data = row?.data as Uint8Array | ArrayBuffer | undefined;
      // One of the SQLite libraries answers with bare buffers.
      return data instanceof ArrayBuffer ? new Uint8Array(data) : data;
    },

    async merge(app, id, packs, merged) {
      const [first, last] = [packs[0], packs.at(-1)];
      if (first === undefined || last === undefined) return false;
      checkSize("a pack", merged.byteLength, MAX_PACK_BYTES);
      const before = packs.reduce((sum, { bytes }) => sum + bytes, 0);
      return engine.write(async (sql) => {
        // Held until the end: neither another merge nor a push comes in between.
        const held = await sql.all("UPDATE repositories SET seq = seq WHERE app = $1 AND id = $2 RETURNING seq", [
          app,
          id,
        ]);
        if (held.length === 0) return false;
        const found = await sql.all(
          "SELECT name FROM packs WHERE app = $1 AND seq >= $2 AND seq <= $3 AND part = 0 ORDER BY seq",
          [app, first.seq, last.seq],
        );
        if (found.map(({ name }) => name).join() !== packs.map(({ name }) => name).join()) return false;
        await sql.all("DELETE FROM packs WHERE app = $1 AND seq >= $2 AND seq <= $3", [app, first.seq, last.seq]);
        await insert(sql, app, { seq: last.seq, parent: first.parent, head: last.head }, merged);
        await sql.all("UPDATE repositories SET bytes = bytes + $2 WHERE app = $1", [app, merged.byteLength - before]);
        return true;
      });
    },
  };
}

interface Place {
  readonly seq: number;
  readonly parent: string | undefined;
  readonly head: string;
}

async function insert(sql: Sql, app: string, { seq, parent, head }: Place, pack: PackBytes): Promise<void> {
  const size = pack.byteLength;
  const name = newName();
  for (let part = 0; part === 0 || part * PART_BYTES < size; part++) {
    const data = pack.subarray(part * PART_BYTES, Math.min(size, (part + 1) * PART_BYTES));
    await sql.all(
      `INSERT INTO packs (app, seq, part, name, parent, head, bytes, data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [app, seq, part, name, parent ?? null, head, size, data],
    );
  }
}

function newName(): string {
  return randomBytes(12).toString("base64url");
}

function read(row: Row): StoredRepository {
  return {
    id: row.id as string,
    head: row.head as string,
    seq: row.seq as number,
    bytes: row.bytes as number,
  };
}

function readPack(row: Row): StoredPack {
  return {
    name: row.name as string,
    seq: row.seq as number,
    ...optionalColumn("parent", row.parent as string | null),
    head: row.head as string,
    bytes: row.bytes as number,
  };
}
