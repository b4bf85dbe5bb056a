// Whether callers without a credential are served as the machine's own user. Once a key or an issuer was configured the
// answer is no for good, whatever becomes of that key: see `Access`.

import type { Engine, Row, Sql } from "../sql.js";
import type { Access, AccessState } from "../types.js";

/** Access belongs to the store, not to one of its applications. */
const CHANGE = { topic: "access", action: "changed", app: "~gateway" } as const;
const COLUMNS = "local_access, has_credentials";

export function accessIn(engine: Engine): Access {
  return {
    get: () => engine.read(async (sql) => read((await sql.all(`SELECT ${COLUMNS} FROM access`))[0])),
    setLocalAccess: (isOn, by) =>
      engine.write(async (sql, note) => {
        const statement = isOn
          ? "UPDATE access SET local_access = 1 WHERE local_access = 0 AND has_credentials = 0 RETURNING local_access"
          : "UPDATE access SET local_access = 0 WHERE local_access = 1 RETURNING local_access";
        if ((await sql.all(statement)).length > 0) note({ ...CHANGE, name: isOn ? "local on" : "local off", by });
        return read((await sql.all(`SELECT ${COLUMNS} FROM access`))[0]);
      }),
    issuerConfigured: (by) =>
      engine.write(async (sql, note) => {
        if (await markCredentials(sql)) note({ ...CHANGE, name: "issuer", by });
      }),
  };
}

/** Part of the transaction that configures a credential. Returns whether it is the first one. */
export async function markCredentials(sql: Sql): Promise<boolean> {
  const rows = await sql.all("UPDATE access SET has_credentials = 1 WHERE has_credentials = 0 RETURNING 1 AS first");
  return rows.length > 0;
}

/** A store without the row answers as one that has credentials. */
function read(row: Row | undefined): AccessState {
  return { localAccess: row?.local_access === 1, hasCredentials: row?.has_credentials !== 0 };
}
