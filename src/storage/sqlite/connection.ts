// One connection to an SQLite file: on the calling thread for commands, which have nothing else to do, and on a thread of
// its own for a gateway, whose event loop must not wait for the disk.

import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import { type Row, type SqlValue, StorageError } from "../sql.js";
import { openDriver, type SqliteLibrary } from "./driver.js";

/** Device and number of the file and of its journal; "" where there is none. */
export type FileIdentities = readonly [file: string, journal: string];

export interface SqliteConnection {
  all(text: string, values: readonly SqlValue[]): Promise<Row[]>;
  identities(): Promise<FileIdentities>;
  /** A statement runs whose caller has given up. */
  readonly isBusy: boolean;
  /** Resolves when nothing runs any more; rejects with STORAGE_UNAVAILABLE when that takes longer. */
  idle(withinMs: number): Promise<void>;
  close(): Promise<void>;
}

export interface SqliteConnectionOptions {
  readonly library?: SqliteLibrary | undefined;
  /** A thread of its own, with a bound on how long a statement may take; the calling thread without it. */
  readonly statementMs?: (() => number) | undefined;
}

const journalOf = (file: string): string => `${file}-wal`;

export async function openConnection(
  file: string,
  { library, statementMs }: SqliteConnectionOptions,
): Promise<SqliteConnection> {
  if (statementMs === undefined || file === ":memory:") return new DirectConnection(file, library);
  const connection = new ThreadConnection(file, library, statementMs);
  await connection.opened();
  return connection;
}

class DirectConnection implements SqliteConnection {
  readonly isBusy = false;
  readonly #file: string;
  readonly #driver: ReturnType<typeof openDriver>;

  constructor(file: string, library: SqliteLibrary | undefined) {
    this.#file = file;
    this.#driver = openDriver(file, library);
  }

  async all(text: string, values: readonly SqlValue[]): Promise<Row[]> {
    return this.#driver.all(text, values);
  }

  async identities(): Promise<FileIdentities> {
    const identityOf = (file: string): string => {
      const stats = statSync(file, { throwIfNoEntry: false });
      return stats === undefined ? "" : `${stats.dev} ${stats.ino}`;
    };
    return [identityOf(this.#file), identityOf(journalOf(this.#file))];
  }

  async idle(): Promise<void> {}

  async close(): Promise<void> {
    this.#driver.close();
  }
}

// Plain JavaScript without imports, so that it runs the same from sources, from the package and from a bundle.
const PROGRAM = `
const { parentPort, workerData: { file, journal, libsql } } = require("node:worker_threads");
const { statSync } = require("node:fs");
const open = () => {
  if (libsql !== null) return new (require(libsql))(file);
  process.emitWarning = () => {};
  return new (process.getBuiltinModule("node:sqlite").DatabaseSync)(file);
};
const identityOf = (path) => {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats === undefined ? "" : stats.dev + " " + stats.ino;
};
let database;
const prepared = new Map();
const all = (text, values) => {
  let statement = prepared.get(text);
  if (statement === undefined) {
    statement = database.prepare(text);
    if (prepared.size >= 500) prepared.clear();
    prepared.set(text, statement);
  }
  if (statement.reader !== false) return statement.all(...values);
  statement.run(...values);
  return [];
};
const answer = ({ what, text, values }) => {
  if (what === "open") return void (database = open());
  if (what === "identities") return [identityOf(file), identityOf(journal)];
  if (what === "all") return all(text, values);
  prepared.clear();
  return void database?.close();
};
parentPort.on("message", (request) => {
  try {
    parentPort.postMessage({ value: answer(request) });
  } catch ({ message, code, errcode, rawCode }) {
    parentPort.postMessage({ failed: { message, code, errcode, rawCode } });
  }
});`;

interface ThreadRequest {
  readonly what: "open" | "identities" | "all" | "close";
  readonly text?: string;
  readonly values?: readonly SqlValue[];
}

interface ThreadAnswer {
  readonly value?: unknown;
  readonly failed?: { readonly message: string };
}

/** INVARIANT: one request at a time. Its caller may give up, and the next one then waits until the thread has answered. */
class ThreadConnection implements SqliteConnection {
  readonly #file: string;
  readonly #statementMs: () => number;
  readonly #worker: Worker;
  #answered: ((answer: ThreadAnswer) => void) | undefined;
  /** The request that runs, and since when. */
  #running: Promise<unknown> | undefined;
  #since = 0;

  constructor(file: string, library: SqliteLibrary | undefined, statementMs: () => number) {
    this.#file = file;
    this.#statementMs = statementMs;
    const hasOwn = library !== "libsql" && process.getBuiltinModule("node:sqlite") !== undefined;
    const libsql = hasOwn ? null : createRequire(import.meta.url).resolve("libsql");
    const workerData = { file, journal: journalOf(file), libsql };
    this.#worker = new Worker(PROGRAM, { eval: true, workerData, execArgv: [] });
    this.#worker.unref();
    this.#worker.on("message", (answer: ThreadAnswer) => this.#answered?.(answer));
    const ended = (why: string): void => this.#answered?.({ failed: { message: `the store's thread ended: ${why}` } });
    this.#worker.on("error", (error) => ended(error.message));
    this.#worker.on("exit", (code) => ended(`exit ${code}`));
  }

  get isBusy(): boolean {
    return this.#running !== undefined;
  }

  async opened(): Promise<void> {
    await this.#ask({ what: "open" });
  }

  all(text: string, values: readonly SqlValue[]): Promise<Row[]> {
    return this.#ask({ what: "all", text, values }) as Promise<Row[]>;
  }

  identities(): Promise<FileIdentities> {
    return this.#ask({ what: "identities" }) as Promise<FileIdentities>;
  }

  async idle(withinMs: number): Promise<void> {
    if (this.#running === undefined) return;
    const ended = this.#running.catch(() => {});
    await this.#bounded(ended, withinMs);
  }

  async close(): Promise<void> {
    await this.#ask({ what: "close" }).catch(() => {});
    // A thread that waits for its disk ends when the disk answers, or with the process.
    const ended = this.#worker.terminate();
    if (!this.isBusy) await ended;
  }

  async #ask(request: ThreadRequest): Promise<unknown> {
    if (this.isBusy) throw this.#late();
    const running = new Promise((resolve, reject) => {
      this.#answered = ({ value, failed }) => {
        this.#answered = undefined;
        this.#running = undefined;
        this.#worker.unref();
        if (failed === undefined) resolve(value);
        else reject(Object.assign(new Error(failed.message), failed));
      };
    });
    this.#running = running;
    this.#since = performance.now();
    this.#worker.ref();
    this.#worker.postMessage(request);
    return this.#bounded(running, this.#statementMs());
  }

  #late(): StorageError {
    const ms = Math.round(performance.now() - this.#since);
    const message = `the disk of the store ${this.#file} has not answered for ${ms} ms`;
    return new StorageError("STORAGE_UNAVAILABLE", message);
  }

  async #bounded(running: Promise<unknown>, withinMs: number): Promise<unknown> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(this.#late()), Math.max(0, withinMs));
    });
    // A caller that gives up leaves nothing that is not handled.
    running.catch(() => {});
    try {
      return await Promise.race([running, late]);
    } finally {
      clearTimeout(timer);
    }
  }
}
