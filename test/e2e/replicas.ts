// Replicas of one gateway on one PostgreSQL, each a process of its own that can be killed at any moment.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { openDriver } from "../../src/storage/sqlite/driver.js";
import { root } from "./serving.js";

export interface Replica {
  readonly name: string;
  readonly ledgerDir: string;
  url: string;
  admin: string;
  child: ChildProcess;
  isUp: boolean;
}

export interface Replicas {
  readonly dir: string;
  readonly storage: string;
  /** Not there with `isSqlite`. */
  readonly postgres: PostgresCluster;
  /** Copies the store as it is now; the result puts it back while replicas run. */
  backup(): Promise<() => Promise<void>>;
  readonly all: readonly Replica[];
  kill(replica: Replica): Promise<void>;
  /** Sends SIGTERM and resolves with the exit code. */
  stop(replica: Replica): Promise<number | null>;
  start(replica: Replica): Promise<void>;
  close(): Promise<void>;
}

const main = join(root, "dist", "cli", "main.js");
const START_TIMEOUT_MS = 60_000;

export interface ReplicaOptions {
  /** Where replicas reach the store, when that is not its own address: a line that can be cut. */
  readonly line?: (storage: string, name: string) => Promise<string>;
  /** Where the ledger of a replica is. */
  readonly ledgerDir?: (name: string) => string;
  /** With `pg_dump` and `pg_restore` of its version. */
  readonly isSystemPostgres?: boolean;
  /** One SQLite file for all, in place of PostgreSQL. */
  readonly isSqlite?: boolean;
  /** More of the environment of a replica. */
  readonly env?: (name: string) => NodeJS.ProcessEnv;
}

export async function startReplicas(
  count: number,
  policy: string,
  more: readonly string[] = [],
  options: ReplicaOptions = {},
): Promise<Replicas> {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-replicas-"));
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "test.cedar"), policy);
  writeFileSync(join(dir, "seal.key"), `${Buffer.alloc(32, 7).toString("base64")}\n`, { mode: 0o600 });
  const { isSqlite = false, isSystemPostgres: isSystem = false } = options;
  const file = join(dir, "portcullis.db");
  const postgres = isSqlite ? undefined : await startPostgres([], { isSystem });
  const storage = (await postgres?.database()) ?? `sqlite:${file}`;
  const reached = new Map<string, string>();
  const start = async (replica: Replica): Promise<void> => {
    const { name } = replica;
    if (!reached.has(name)) reached.set(name, (await options.line?.(storage, name)) ?? storage);
    const args = [
      "--json",
      "--dir",
      dir,
      "serve",
      "--port",
      "0",
      "--admin-port",
      "0",
      "--storage",
      reached.get(name) as string,
    ];
    const own = ["--replica", replica.name, "--ledger", replica.ledgerDir, "--challenge-wait", "0"];
    const child = spawn(process.execPath, [main, ...args, ...own, ...more, "--log-level", "error"], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...options.env?.(replica.name) },
    });
    let said = "";
    let told = "";
    child.stderr.on("data", (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-4_000);
    });
    const facts = await new Promise<{ urls: string[]; admin: string }>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${replica.name} did not start: ${said}`)), START_TIMEOUT_MS);
      child.on("exit", (code) => reject(new Error(`${replica.name} ended with ${code}: ${said}`)));
      child.stdout.on("data", (chunk: Buffer) => {
        told += chunk.toString();
        if (!told.trimEnd().endsWith("}")) return;
        clearTimeout(timer);
        resolve(JSON.parse(told) as { urls: string[]; admin: string });
      });
    });
    replica.child = child;
    replica.url = facts.urls[0] as string;
    replica.admin = facts.admin;
    replica.isUp = true;
  };
  const kill = async (replica: Replica): Promise<void> => {
    replica.isUp = false;
    const gone = new Promise((resolve) => replica.child.once("exit", resolve));
    if (replica.child.exitCode === null && replica.child.signalCode === null) {
      replica.child.kill("SIGKILL");
      await gone;
    }
  };
  const stop = async (replica: Replica): Promise<number | null> => {
    const gone = new Promise<number | null>((resolve) => replica.child.once("exit", resolve));
    replica.child.kill("SIGTERM");
    const code = await gone;
    replica.isUp = false;
    return code;
  };
  const all = Array.from({ length: count }, (_, i): Replica => {
    const name = `r${i + 1}`;
    const ledgerDir = options.ledgerDir?.(name) ?? join(dir, "ledgers", name);
    return { name, ledgerDir, url: "", admin: "", child: undefined as never, isUp: false };
  });
  mkdirSync(join(dir, "ledgers"));
  const close = async (): Promise<void> => {
    await Promise.all(all.filter((replica) => replica.isUp).map(kill));
    await postgres?.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  try {
    for (const replica of all) await start(replica);
  } catch (error) {
    await close();
    throw error;
  }
  const backup = async (): Promise<() => Promise<void>> => {
    if (postgres) return postgres.backup();
    const copy = join(dir, "copy.db");
    const driver = openDriver(file);
    driver.all(`VACUUM INTO '${copy}'`, []);
    driver.close();
    return async () => renameSync(copy, file);
  };
  return { dir, storage, postgres: postgres as PostgresCluster, backup, all, kill, stop, start, close };
}
