// The two libraries that can read an SQLite file, behind the few calls that are needed.

import { createRequire } from "node:module";
import { type Row, type SqlValue, StorageError } from "../sql.js";

export interface SqliteDriver {
  readonly library: SqliteLibrary;
  all(text: string, values: readonly SqlValue[]): Row[];
  close(): void;
}

export type SqliteLibrary = "node:sqlite" | "libsql";

interface Statement {
  all(...values: readonly SqlValue[]): unknown[];
  run(...values: readonly SqlValue[]): unknown;
  /** libsql only: whether it answers with rows. */
  readonly reader?: boolean;
}

interface Database {
  prepare(text: string): Statement;
  close(): void;
}

/** What comes with Node where it does (22.13 and later); otherwise the library with its own SQLite. */
export function openDriver(file: string, library?: SqliteLibrary): SqliteDriver {
  if (library !== "libsql") {
    const open = nodeSqlite();
    if (open) return wrap("node:sqlite", open(file));
    if (library === "node:sqlite") {
      throw new StorageError(
        "STORAGE_UNAVAILABLE",
        `Node ${process.version} has no node:sqlite; use Node 22.13 or later`,
      );
    }
  }
  const Libsql = createRequire(import.meta.url)("libsql") as new (file: string) => Database;
  return wrap("libsql", new Libsql(file));
}

function nodeSqlite(): ((file: string) => Database) | undefined {
  const warn = process.emitWarning;
  // Node 22 warns that the module is experimental; the contract test runs on it.
  process.emitWarning = () => {};
  try {
    const loaded = process.getBuiltinModule("node:sqlite") as
      | { DatabaseSync: new (file: string) => Database }
      | undefined;
    return loaded && ((file) => new loaded.DatabaseSync(file));
  } finally {
    process.emitWarning = warn;
  }
}

/** Statements are literals of this module and few; more than this would be a defect. */
const MAX_STATEMENTS = 500;

function wrap(library: SqliteLibrary, database: Database): SqliteDriver {
  const prepared = new Map<string, Statement>();
  let isOpen = true;
  const prepare = (text: string): Statement => {
    let statement = prepared.get(text);
    if (!statement) {
      statement = database.prepare(text);
      if (prepared.size >= MAX_STATEMENTS) prepared.clear();
      prepared.set(text, statement);
    }
    return statement;
  };
  return {
    library,
    all(text, values) {
      const statement = prepare(text);
      if (statement.reader === false) {
        statement.run(...values);
        return [];
      }
      return statement.all(...values) as Row[];
    },
    close() {
      prepared.clear();
      if (isOpen) database.close();
      isOpen = false;
    },
  };
}
