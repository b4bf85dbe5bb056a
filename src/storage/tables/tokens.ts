import { asPage, checkName, checkSize, type Engine, pageLimit, type Row, StorageError } from "../sql.js";
import type { DownstreamToken, DownstreamTokens, Secrets, TokenId } from "../types.js";

const MAX_SEALED_BYTES = 128 * 1024;

export function secretsIn(engine: Engine): Secrets {
  return {
    async put(app, name, sealed, by) {
      checkName("the secret's name", name, 128);
      checkSize("a sealed secret", sealed.byteLength, MAX_SEALED_BYTES);
      return engine.write(async (sql, note) => {
        const [known] = await sql.all("SELECT id FROM applications WHERE id = $1", [app]);
        if (!known) throw new StorageError("STORAGE_INVALID", `there is no application \`${app}\`; add it first`);
        await sql.all(
          `INSERT INTO secrets (app, name, sealed, updated_at) VALUES ($1, $2, $3, @now)
           ON CONFLICT (app, name) DO UPDATE SET sealed = excluded.sealed, updated_at = excluded.updated_at`,
          [app, name, sealed],
        );
        note({ topic: "secret", action: "put", app, name, by });
      });
    },

    async get(app, name) {
      const [row] = await engine.read((sql) =>
        sql.all("SELECT * FROM secrets WHERE app = $1 AND name = $2", [app, name]),
      );
      return row && { ...readSecret(row), sealed: row.sealed as Uint8Array };
    },

    async list(app, page) {
      const limit = pageLimit(page);
      const rows = await engine.read((sql) =>
        sql.all("SELECT app, name, updated_at FROM secrets WHERE app = $1 AND name > $2 ORDER BY name LIMIT $3", [
          app,
          page?.after ?? "",
          limit + 1,
        ]),
      );
      return asPage(rows, limit, readSecret, (row) => row.name as string);
    },

    async remove(app, name, by) {
      return engine.write(async (sql, note) => {
        const gone = await sql.all("DELETE FROM secrets WHERE app = $1 AND name = $2 RETURNING name", [app, name]);
        if (gone.length > 0) note({ topic: "secret", action: "remove", app, name, by });
        return gone.length > 0;
      });
    },
  };
}

function readSecret(row: Row): { app: string; name: string; updatedAt: number } {
  return { app: row.app as string, name: row.name as string, updatedAt: row.updated_at as number };
}

const THIS_ONE = "app = $1 AND server = $2 AND subject = $3";

export function tokensIn(engine: Engine): DownstreamTokens {
  return {
    async get(id) {
      const [row] = await engine.read((sql) => sql.all(`SELECT * FROM tokens WHERE ${THIS_ONE}`, values(id)));
      return row && readToken(row);
    },

    async put(id, sealed, version) {
      checkName("the application's name", id.app);
      checkName("the server's name", id.server);
      if (id.user !== "") checkName("the user's name", id.user, 512);
      checkSize("a sealed token", sealed.byteLength, MAX_SEALED_BYTES);
      const rows = await engine.write(async (sql, note) => {
        const done = await put(sql.all, id, sealed, version);
        if (done.length > 0) {
          note({ topic: "token", action: "put", app: id.app, name: nameOf(id), by: `app:${id.app}` });
        }
        return done;
      });
      return rows[0] && readToken(rows[0]);
    },

    async list(page) {
      const limit = pageLimit(page);
      const [app = "", server = "", subject = ""] = (page?.after ?? "").split("\n");
      const rows = await engine.read((sql) =>
        sql.all(
          `SELECT * FROM tokens WHERE (app, server, subject) > ($1, $2, $3) ORDER BY app, server, subject LIMIT $4`,
          [app, server, subject, limit + 1],
        ),
      );
      return asPage(rows, limit, readToken, (row) => [row.app, row.server, row.subject].join("\n"));
    },

    async remove(id) {
      return engine.write(async (sql, note) => {
        const gone = await sql.all(`DELETE FROM tokens WHERE ${THIS_ONE} RETURNING app`, values(id));
        if (gone.length > 0) {
          note({ topic: "token", action: "remove", app: id.app, name: nameOf(id), by: `app:${id.app}` });
        }
        return gone.length > 0;
      });
    },
  };
}

type All = (text: string, values: (string | number | Uint8Array)[]) => Promise<Row[]>;

function put(all: All, id: TokenId, sealed: Uint8Array, version: number | undefined): Promise<Row[]> {
  const insert = `INSERT INTO tokens (app, server, subject, sealed, version, updated_at)
                  VALUES ($1, $2, $3, $4, 1, @now) ON CONFLICT (app, server, subject)`;
  const given = [...values(id), sealed];
  if (version === 0) return all(`${insert} DO NOTHING RETURNING *`, given);
  if (version !== undefined) {
    return all(
      `UPDATE tokens SET sealed = $4, version = version + 1, updated_at = @now
       WHERE ${THIS_ONE} AND version = $5 RETURNING *`,
      [...given, version],
    );
  }
  return all(
    `${insert} DO UPDATE SET sealed = excluded.sealed, version = tokens.version + 1, updated_at = excluded.updated_at
     RETURNING *`,
    given,
  );
}

function values({ app, server, user }: TokenId): string[] {
  return [app, server, user];
}

/** In the feed: `server user`. */
function nameOf({ server, user }: TokenId): string {
  return `${server} ${user}`;
}

function readToken(row: Row): DownstreamToken {
  return {
    app: row.app as string,
    server: row.server as string,
    user: row.subject as string,
    sealed: row.sealed as Uint8Array,
    version: row.version as number,
    updatedAt: row.updated_at as number,
  };
}
