import { StorageError } from "../errors.js";
import type { Engine, Row, Sql } from "../sql.js";
import type { Pin, PinId, PinKind, Pins } from "../types.js";
import { asPage, checkName, checkSize, pageLimit } from "./bounds.js";

const MAX_DEFINITION_BYTES = 1024 * 1024;
const THIS_ONE = "app = $1 AND server = $2 AND kind = $3 AND name = $4";

/** `hash` and `definition` are what the server says now; the accepted ones are kept only while they differ. */
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

    async first(id, hash, definition, by) {
      checkPin(id, definition);
      return engine.write(async (sql, note) => {
        const [made] = await sql.all(
          `INSERT INTO pins (app, server, kind, name, hash, definition, by_whom, at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, @now) ON CONFLICT (app, server, kind, name) DO NOTHING RETURNING *`,
          [...values(id), hash, definition, by],
        );
        if (made) note({ topic: "pin", action: "put", app: id.app, name: nameOf(id), by });
        return made ? read(made) : present(await one(sql, id));
      });
    },

    async changed(id, hash, definition) {
      checkPin(id, definition);
      return engine.write(async (sql, note) => {
        const before = await one(sql, id);
        if (!before) return undefined;
        const pin = read(before);
        if (pin.hash === hash) return pin;
        const back = pin.accepted?.hash === hash;
        const accepted = back ? undefined : (pin.accepted ?? pin);
        const [after] = await sql.all(
          `UPDATE pins SET hash = $5, definition = $6, accepted_hash = $7, accepted_definition = $8, at = @now
           WHERE ${THIS_ONE} AND hash = $9 RETURNING *`,
          [...values(id), hash, definition, accepted?.hash ?? null, accepted?.definition ?? null, pin.hash],
        );
        if (after) {
          const by = `server:${id.server}`;
          note({ topic: "pin", action: back ? "accept" : "changed", app: id.app, name: nameOf(id), by });
        }
        return after ? read(after) : present(await one(sql, id));
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

function checkPin(id: PinId, definition: string): void {
  checkName("the application's name", id.app);
  checkName("the server's name", id.server);
  checkName("the definition's name", id.name, 2048);
  checkSize("a definition", Buffer.byteLength(definition), MAX_DEFINITION_BYTES);
}

async function one(sql: Sql, id: PinId): Promise<Row | undefined> {
  const [row] = await sql.all(`SELECT * FROM pins WHERE ${THIS_ONE}`, values(id));
  return row;
}

function present(row: Row | undefined): Pin {
  if (row) return read(row);
  throw new StorageError("STORAGE_UNAVAILABLE", "the pin was removed at this very moment; try again");
}

function values({ app, server, kind, name }: PinId): string[] {
  return [app, server, kind, name];
}

/** In the feed: `server kind name`; the first two hold no space. */
function nameOf({ server, kind, name }: PinId): string {
  return `${server} ${kind} ${name}`;
}

function place(after: string | undefined): { kind: string; name: string } {
  if (after === undefined) return { kind: "", name: "" };
  const space = after.indexOf(" ");
  return { kind: after.slice(0, space), name: after.slice(space + 1) };
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
