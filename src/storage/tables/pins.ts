import { createHash } from "node:crypto";
import { isSliceOver, nextSlice } from "../../mcp/index.js";
import { asPage, checkName, checkSize, type Engine, pageLimit, type Row, type Sql } from "../sql.js";
import type { OfferedPin, Pin, PinKind, PinState, Pins, RefusedPin, StoredPinId } from "../types.js";

const MAX_DEFINITION_BYTES = 1024 * 1024;
/** Rows in one statement, and in one page of states. */
const ROWS_AT_ONCE = 50;
const STATES_AT_ONCE = 1_000;
/** Stands for "nothing was accepted yet". No definition has this text. */
const NOTHING_HASH = createHash("sha256").update("").digest("hex");
const THIS_ONE = "app = $1 AND server = $2 AND kind = $3 AND name = $4";

/** `hash` and `definition` are what the server lists now; the accepted ones are kept only while they differ. */
export function pinsIn(engine: Engine): Pins {
  return {
    async get(id) {
      const [row] = await engine.read((sql) => sql.all(`SELECT * FROM pins WHERE ${THIS_ONE}`, values(id)));
      return row && read(row);
    },

    async list(app, server, page) {
      const limit = pageLimit(page);
      const { kind, name } = place(page?.after);
      const rows = await engine.read((sql) =>
        sql.all(
          `SELECT * FROM pins WHERE app = $1 AND server = $2 AND (kind > $3 OR (kind = $3 AND name > $4))
           ORDER BY kind, name LIMIT $5`,
          [app, server, kind, name, limit + 1],
        ),
      );
      return asPage(rows, limit, read, (row) => `${row.kind as string} ${row.name as string}`);
    },

    async states(app, server) {
      const found: PinState[] = [];
      for (let [kind, name] = ["", ""]; ; ) {
        const rows = await engine.read((sql) =>
          sql.all(
            `SELECT kind, name, hash, accepted_hash, accepted_definition IS NOT NULL AND accepted_definition = '' AS unseen,
                    length(definition) + length(coalesce(accepted_definition, '')) AS size
             FROM pins WHERE app = $1 AND server = $2 AND (kind > $3 OR (kind = $3 AND name > $4))
             ORDER BY kind, name LIMIT $5`,
            [app, server, kind, name, STATES_AT_ONCE],
          ),
        );
        for (const row of rows) found.push(readState(row));
        const last = rows[STATES_AT_ONCE - 1];
        if (!last) return found;
        [kind, name] = [last.kind as string, last.name as string];
        await nextSlice();
      }
    },

    async record(app, server, offered, { by, trustsFirst, remove = [] }) {
      checkName("the application's name", app);
      checkName("the server's name", server);
      const refused: RefusedPin[] = [];
      const valid = offered.filter((pin) => {
        const reason = problemOf(pin);
        if (reason !== undefined) refused.push({ kind: pin.kind, name: pin.name, reason });
        return reason === undefined;
      });
      await engine.write(async (sql, note) => {
        // The store is held meanwhile; the event loop is not.
        for (const gone of remove) {
          await sql.all(`DELETE FROM pins WHERE ${THIS_ONE}`, values({ app, server, ...gone }));
          if (isSliceOver()) await nextSlice();
        }
        let count = 0;
        for (let at = 0; at < valid.length; at += ROWS_AT_ONCE) {
          const rows = valid.slice(at, at + ROWS_AT_ONCE);
          const made = await insertNew(sql, app, server, rows, { by, trustsFirst });
          const isMade = new Set(made.map((row) => `${row.kind as string} ${row.name as string}`));
          const known = rows.filter(({ kind, name }) => !isMade.has(`${kind} ${name}`));
          count += made.length + (await noteChanged(sql, app, server, known));
          if (isSliceOver()) await nextSlice();
        }
        // One change entry for all: readers of the feed read all pins of the server.
        if (count + remove.length > 0) note({ topic: "pin", action: "changed", app, name: server, by });
      });
      return refused;
    },

    async acceptAll(app, server, pins, by) {
      for (const pin of pins) checkName("the name of who accepts", pin.by ?? by);
      await engine.write(async (sql, note) => {
        for (const { kind, name, hash, by: own = by } of pins) {
          await sql.all(
            `UPDATE pins SET accepted_hash = NULL, accepted_definition = NULL, by_whom = $6, at = @now
             WHERE ${THIS_ONE} AND hash = $5`,
            [...values({ app, server, kind, name }), hash, own],
          );
          if (isSliceOver()) await nextSlice();
        }
        if (pins.length > 0) note({ topic: "pin", action: "changed", app, name: server, by });
      });
    },

    async clear(app, server, by) {
      return engine.write(async (sql, note) => {
        const gone = await sql.all("DELETE FROM pins WHERE app = $1 AND server = $2 RETURNING name", [app, server]);
        if (gone.length > 0) note({ topic: "pin", action: "remove", app, name: server, by });
        return gone.length;
      });
    },

    async accept(id, hash, by) {
      checkName("the name of who accepts", by);
      return engine.write(async (sql, note) => {
        const [row] = await sql.all(
          `UPDATE pins SET accepted_hash = NULL, accepted_definition = NULL, by_whom = $6, at = @now
           WHERE ${THIS_ONE} AND hash = $5 RETURNING *`,
          [...values(id), hash, by],
        );
        if (row) note({ topic: "pin", action: "accept", app: id.app, name: nameOf(id), by });
        return row && read(row);
      });
    },

    async remove(id, by) {
      return engine.write(async (sql, note) => {
        const gone = await sql.all(`DELETE FROM pins WHERE ${THIS_ONE} RETURNING name`, values(id));
        if (gone.length > 0) note({ topic: "pin", action: "remove", app: id.app, name: nameOf(id), by });
        return gone.length > 0;
      });
    },
  };
}

function problemOf({ name, definition }: OfferedPin): string | undefined {
  try {
    checkName("the definition's name", name, 2048);
    checkSize("a definition", Buffer.byteLength(definition), MAX_DEFINITION_BYTES);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Pins what is not pinned yet: as accepted, or as a change from nothing, which waits like any other. */
async function insertNew(
  sql: Sql,
  app: string,
  server: string,
  rows: readonly OfferedPin[],
  { by, trustsFirst }: { readonly by: string; readonly trustsFirst: boolean },
): Promise<Row[]> {
  const places = rows.map((_, i) => {
    const at = 6 + i * 4;
    return `($1, $2, $${at}, $${at + 1}, $${at + 2}, $${at + 3}, $4, $5, $3, @now)`;
  });
  const accepted = trustsFirst ? [null, null] : [NOTHING_HASH, ""];
  return sql.all(
    `INSERT INTO pins (app, server, kind, name, hash, definition, accepted_hash, accepted_definition, by_whom, at)
     VALUES ${places.join(", ")} ON CONFLICT (app, server, kind, name) DO NOTHING RETURNING kind, name`,
    [
      app,
      server,
      by,
      ...accepted,
      ...rows.flatMap(({ kind, name, hash, definition }) => [kind, name, hash, definition]),
    ],
  );
}

/** Keeps what was accepted beside what is new; back to what was accepted makes it accepted again. */
async function noteChanged(sql: Sql, app: string, server: string, rows: readonly OfferedPin[]): Promise<number> {
  let count = 0;
  for (const { kind, name, hash, definition } of rows) {
    const changed = await sql.all(
      `UPDATE pins SET
         accepted_definition = CASE WHEN accepted_hash = $5 THEN NULL ELSE coalesce(accepted_definition, definition) END,
         accepted_hash = CASE WHEN accepted_hash = $5 THEN NULL ELSE coalesce(accepted_hash, hash) END,
         hash = $5, definition = $6, at = @now
       WHERE ${THIS_ONE} AND hash <> $5 RETURNING kind`,
      [...values({ app, server, kind: kind as PinKind, name }), hash, definition],
    );
    count += changed.length;
  }
  return count;
}

function values({ app, server, kind, name }: StoredPinId): string[] {
  return [app, server, kind, name];
}

/** In the feed: `server kind name`; the first two hold no space. */
function nameOf({ server, kind, name }: StoredPinId): string {
  return `${server} ${kind} ${name}`;
}

function place(after: string | undefined): { kind: string; name: string } {
  if (after === undefined) return { kind: "", name: "" };
  const space = after.indexOf(" ");
  return { kind: after.slice(0, space), name: after.slice(space + 1) };
}

function readState(row: Row): PinState {
  return {
    kind: row.kind as PinKind,
    name: row.name as string,
    hash: row.hash as string,
    status: row.accepted_hash === null ? "accepted" : "changed",
    wasAccepted: !row.unseen,
    size: Number(row.size),
  };
}

function read(row: Row): Pin {
  const changed = row.accepted_hash !== null;
  return {
    app: row.app as string,
    server: row.server as string,
    kind: row.kind as PinKind,
    name: row.name as string,
    hash: row.hash as string,
    definition: row.definition as string,
    status: changed ? "changed" : "accepted",
    ...(changed
      ? { accepted: { hash: row.accepted_hash as string, definition: row.accepted_definition as string } }
      : {}),
    by: row.by_whom as string,
    at: row.at as number,
  };
}
