// Everything but the connection that listens goes through PgBouncer in transaction mode.

import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { missingPrograms } from "../../../test/setup/programs.js";
import { type PostgresCluster, startPostgres } from "../fixtures/postgres.js";
import { openStorage } from "../open.js";
import { storageContract } from "../storage.contract.js";
import type { Storage } from "../types.js";

const missing = missingPrograms("pgbouncer");
/** Fewer than the connections that replicas open to the pooler. */
const SERVER_CONNECTIONS = 3;

describe.skipIf(missing)(`PgBouncer in transaction mode ${missing ?? ""}`, () => {
  const directory = mkdtempSync(join(tmpdir(), "portcullis-pgbouncer-"));
  let cluster: PostgresCluster;
  let bouncer: ChildProcess;
  let port: number;
  const through = (url: string): string => {
    const pooled = new URL(url);
    pooled.port = String(port);
    return pooled.href;
  };

  beforeAll(async () => {
    cluster = await startPostgres();
    const { hostname, port: serverPort, username, password } = new URL(cluster.url);
    port = await freePort();
    chmodSync(directory, 0o755);
    writeFileSync(join(directory, "users.txt"), `"${username}" "${password}"\n`, { mode: 0o644 });
    writeFileSync(
      join(directory, "pgbouncer.ini"),
      `[databases]
* = host=${hostname} port=${serverPort}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${join(directory, "users.txt")}
pool_mode = transaction
default_pool_size = ${SERVER_CONNECTIONS}
max_client_conn = 500
`,
    );
    const asUser = process.getuid?.() === 0 ? ["-u", "nobody"] : [];
    bouncer = spawn("/usr/sbin/pgbouncer", [...asUser, join(directory, "pgbouncer.ini")], { stdio: "ignore" });
    await vi.waitFor(
      async () => {
        const client = new pg.Client({ connectionString: through(cluster.url) });
        await client.connect();
        await client.end();
      },
      { timeout: 30_000, interval: 100 },
    );
  }, 120_000);
  afterAll(async () => {
    bouncer?.kill("SIGKILL");
    await cluster?.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  storageContract("PostgreSQL through PgBouncer", async () => {
    const url = await cluster.database();
    return {
      open: (options) => openStorage(through(url), { listenUrl: url, ...options }),
      close: async () => {},
    };
  });

  it("lets many replicas share few connections of the server", async () => {
    const url = await cluster.database();
    const stores: Storage[] = [];
    for (let i = 0; i < 10; i++) stores.push(await openStorage(through(url), { listenUrl: "none", waitMs: 30_000 }));
    const [first] = stores as [Storage];
    await first.values.set("shop", "n", 0);
    const count = async (storage: Storage): Promise<void> => {
      for (let done = 0; done < 5; ) {
        const now = await storage.values.get("shop", "n");
        const next = (now?.value as number) + 1;
        if (await storage.values.set("shop", "n", next, { version: now?.version as number })) done++;
      }
    };
    await Promise.all(stores.flatMap((storage) => [count(storage), count(storage)]));
    expect((await first.values.get("shop", "n"))?.value).toBe(100);
    const direct = new pg.Client({ connectionString: url });
    await direct.connect();
    const { rows } = await direct.query(
      "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    expect(Number(rows[0].n)).toBeLessThanOrEqual(SERVER_CONNECTIONS);
    await direct.end();
    for (const storage of stores) await storage.close();
  });

  it("hears of changes at once over a listener of its own, and by polling without one", async () => {
    const url = await cluster.database();
    for (const listenUrl of [url, "none"]) {
      const [writer, reader] = [
        await openStorage(through(url), { listenUrl }),
        await openStorage(through(url), { listenUrl }),
      ];
      const seen: string[] = [];
      const stop = await reader.feed.watch({ change: ({ name }) => seen.push(name), resync: () => {} });
      await writer.applications.put(`app-${seen.length}`, {}, "test");
      await vi.waitFor(() => expect(seen).toHaveLength(1), 30_000);
      stop();
      await Promise.all([writer.close(), reader.close()]);
    }
  });

  it("ends a transaction whose client stalls, which another replica's write waits for", async () => {
    const url = await cluster.database();
    const storage = await openStorage(through(url), { listenUrl: "none", stalledTransactionMs: 300, waitMs: 30_000 });
    await storage.applications.put("shared", {}, "test");
    const holder = new pg.Client({ connectionString: through(url) });
    holder.on("error", () => {});
    await holder.connect();
    await holder.query(
      "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 300; UPDATE applications SET revision = 7",
    );
    expect((await storage.applications.put("shared", {}, "test"))?.revision).toBe(2);
    await holder.end().catch(() => {});
    await storage.close();
  });
});

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
