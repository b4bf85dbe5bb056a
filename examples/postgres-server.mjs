#!/usr/bin/env node
// A community server for PostgreSQL: `query` reads in a read-only transaction, `execute` changes rows. The role in the address
// is the application's own: what it may read and change is what PostgreSQL grants it.
//   DATABASE_URL=postgres://blog:…@db.example/blog node examples/postgres-server.mjs
import pg from "pg";
import { createServer, permitAll, structured } from "portcullis/server";

const { DATABASE_URL } = process.env;
if (!DATABASE_URL) {
  console.error("set DATABASE_URL");
  process.exit(64);
}

const MAX_ROWS = 1000;
const STATEMENT_MS = 10_000;
const pool = new pg.Pool({
  connectionString: DATABASE_URL,
  max: 4,
  connectionTimeoutMillis: 5000,
  statement_timeout: STATEMENT_MS,
});
// A lost idle connection is not an error of a call.
pool.on("error", () => undefined);

const input = {
  type: "object",
  properties: {
    sql: { type: "string", minLength: 1, maxLength: 10_000, description: "One statement; values as $1, $2, …" },
    parameters: { type: "array", items: { type: ["string", "number", "boolean", "null"] }, maxItems: 100 },
  },
  required: ["sql"],
  additionalProperties: false,
};

/** One statement in a transaction of its own. The extended protocol refuses a second statement in the same text. */
async function inTransaction(mode, sql, parameters, read) {
  const client = await pool.connect();
  let failure;
  try {
    await client.query(`BEGIN TRANSACTION ${mode}`);
    const result = await read(client, { text: sql, values: parameters, queryMode: "extended" });
    await client.query("COMMIT");
    return result;
  } catch (error) {
    failure = error;
    throw new Error(`PostgreSQL answered ${error.code ?? "with an error"}: ${error.message}`, { cause: error });
  } finally {
    // A connection in the middle of a failed transaction is closed, not used again.
    client.release(failure !== undefined);
  }
}

/** Reads at most `MAX_ROWS` rows from the server, however many there are. */
async function readRows(client, { text, values }) {
  await client.query({ text: `DECLARE rows NO SCROLL CURSOR FOR ${text}`, values, queryMode: "extended" });
  const { rows } = await client.query(`FETCH ${MAX_ROWS + 1} FROM rows`);
  return { rows: JSON.parse(JSON.stringify(rows.slice(0, MAX_ROWS))), truncated: rows.length > MAX_ROWS };
}

const server = createServer({ name: "postgres", version: "1.0.0" }, { policy: permitAll });
server.tool(
  "query",
  `Runs one SELECT in a read-only transaction; at most ${MAX_ROWS} rows.`,
  input,
  async ({ sql, parameters = [] }) => structured(await inTransaction("READ ONLY", sql, parameters, readRows)),
  { noGuardrailRequired: true, annotations: { readOnlyHint: true } },
);
server.tool(
  "execute",
  "Runs one statement that changes rows; answers with how many.",
  input,
  async ({ sql, parameters = [] }) =>
    structured(
      await inTransaction("READ WRITE", sql, parameters, async (client, statement) => ({
        rowCount: (await client.query(statement)).rowCount ?? 0,
      })),
    ),
  { noGuardrailRequired: true, annotations: { readOnlyHint: false, destructiveHint: true } },
);
await server.listen({ transport: "stdio" });
