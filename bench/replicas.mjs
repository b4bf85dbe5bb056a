// The load of many replicas on one PostgreSQL: whole gateways in one process, without their listeners, on a real store
// with durable commits. Messages enter where a transport hands them over. Shows what each thing costs the store, and how
// that grows with replicas and applications.
//   node bench/replicas.mjs [--replicas 1,10,100] [--applications 10,1000] [--seconds 8] [--connections 4]
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import pg from "pg";
import { createKey } from "../dist/auth/index.js";
import { StoredApprovals } from "../dist/policy/index.js";
import { keysOrLocal } from "../dist/runtime/identity.js";
import { startGateway } from "../dist/runtime/start.js";
import { openStorage } from "../dist/storage/index.js";

const { values: options } = parseArgs({
  options: {
    replicas: { type: "string", default: "1,10,100" },
    applications: { type: "string", default: "10,1000" },
    seconds: { type: "string", default: "8" },
    connections: { type: "string", default: "4" },
  },
});
const seconds = Number(options.seconds);
const maxConnections = Number(options.connections);
const numbers = (text) => text.split(",").map(Number);
const root = join(import.meta.dirname, "..");
const dir = mkdtempSync(join(root, ".portcullis-bench-"));
const STARTED_AT_ONCE = 3;
const START_TRIES = 5;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const POLICY = `@id("all") permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("ops") forbid (principal, action == Action::"core.framework.logFrameworkMessage", resource)
  unless { context.approved };`;

/** The fixture of the tests, compiled: it starts the PostgreSQL that comes from npm. */
async function startCluster() {
  const out = join(dir, "fixture");
  const tsc = join(root, "node_modules", ".bin", "tsc");
  const flags = ["--outDir", out, "--module", "nodenext", "--target", "es2023", "--skipLibCheck", "--types", "node"];
  execFileSync(tsc, ["--ignoreConfig", ...flags, join(root, "src/storage/fixtures/postgres.ts")], { stdio: "inherit" });
  const { startPostgres } = await import(join(out, "postgres.js"));
  return startPostgres(["fsync=on", "synchronous_commit=on", "max_connections=1200", "shared_buffers=256MB"]);
}

/** User and system time of PostgreSQL with all its backends, also of those that have ended, in ms. */
function cpuMs(pid) {
  const of = (id, withChildren) => {
    try {
      const fields = readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1].split(" ");
      return (
        (Number(fields[11]) + Number(fields[12]) + (withChildren ? Number(fields[13]) + Number(fields[14]) : 0)) * 10
      );
    } catch {
      return 0;
    }
  };
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
  return children.reduce((sum, id) => sum + of(id, false), of(pid, true));
}

/** What all ledgers have on disk. */
function ledgerBytes() {
  const files = readdirSync(dir, { recursive: true }).filter((path) => /\/ledger\//.test(path));
  return files.reduce((sum, path) => sum + statSync(join(dir, path)).size, 0);
}

class Meter {
  constructor(cluster, url) {
    this.cluster = cluster;
    this.client = new pg.Client({ connectionString: url });
    this.client.on("error", (error) => process.stderr.write(`the meter lost its connection: ${error.message}\n`));
  }

  async now() {
    const text = `SELECT pg_stat_clear_snapshot(), xact_commit + xact_rollback AS tx, tup_inserted + tup_updated + tup_deleted AS rows,
      (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'portcullis') AS connections,
      pg_current_wal_lsn() - '0/0'::pg_lsn AS wal FROM pg_stat_database WHERE datname = current_database()`;
    const { rows } = await this.client.query(text);
    const numbers = Object.entries(rows[0]).map(([name, value]) => [name, Number(value)]);
    return {
      ...Object.fromEntries(numbers),
      at: performance.now(),
      cpu: cpuMs(this.cluster.pid),
      own: process.cpuUsage(),
      ledger: ledgerBytes(),
    };
  }

  /** Backends report what they did with a delay of up to a second. */
  async of(work) {
    await pause(1_500);
    const before = await this.now();
    const count = await work();
    const ended = performance.now();
    await pause(1_500);
    const after = await this.now();
    const own = process.cpuUsage(before.own);
    process.stderr.write(".");
    return {
      count,
      workS: (ended - before.at) / 1_000,
      s: (after.at - before.at) / 1_000,
      tx: after.tx - before.tx,
      rows: after.rows - before.rows,
      wal: after.wal - before.wal,
      cpu: after.cpu - before.cpu,
      own: (own.user + own.system) / 1_000,
      connections: after.connections,
      ledger: after.ledger - before.ledger,
    };
  }
}

/** Tried again: on a busy machine a hundred that start at once may wait too long for the store. */
async function startReplica(name, storage, tries = START_TRIES) {
  try {
    return await startOnce(name, storage);
  } catch (error) {
    if (tries <= 1) throw error;
    await pause(500);
    return startReplica(name, storage, tries - 1);
  }
}

async function startOnce(name, storage) {
  const stateDir = join(dir, name);
  mkdirSync(join(stateDir, "policy"), { recursive: true });
  writeFileSync(join(stateDir, "policy", "bench.cedar"), POLICY);
  return startGateway({
    stateDir,
    storage,
    storageConnections: maxConnections,
    replica: name,
    sealKey: `file:${join(dir, "seal.key")}`,
    modules: ["framework"],
    telemetry: { log: { level: "critical" } },
    limits: { challengeWaitMs: 0 },
    identity: keysOrLocal({ localApp: "local", isLoopback: false }),
  });
}

/** One message, as the HTTP transport hands it over. */
function send(replica, token, message, more = {}) {
  return new Promise((resolve) => {
    let body = "";
    const reply = {
      ended: false,
      send: (text) => ((body += text), true),
      drained: () => Promise.resolve(),
      open: () => {},
      onAbort: () => {},
      end(text, head = {}) {
        reply.ended = true;
        resolve({ text: body + (text?.toString() ?? ""), ...head });
      },
    };
    const headers = {
      authorization: `Bearer ${token}`,
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": REVISION,
      ...more,
    };
    const peer = { transport: "http", address: "127.0.0.1", headers, method: "POST", path: "/mcp" };
    replica.lobby.message({ text: JSON.stringify(message), peer, reply });
  });
}

const REVISION = "2025-11-25";
const MODERN = "2026-07-28";
let lastId = 0;
const request = (method, params) => ({ jsonrpc: "2.0", id: ++lastId, method, params });
const META = {
  "io.modelcontextprotocol/protocolVersion": MODERN,
  "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
/** A call of the newest revision, which has no sessions. */
const callTool = (replica, token, name, args) =>
  send(replica, token, request("tools/call", { name, arguments: args, _meta: META }), {
    "mcp-protocol-version": MODERN,
    "mcp-method": "tools/call",
    "mcp-name": name,
  });
const READ = "core.framework.getConfigValue";
const ASK = "core.framework.logFrameworkMessage";

/** A new session, up to its first listing. */
async function handshake(replica, token) {
  const params = { protocolVersion: REVISION, capabilities: {}, clientInfo: { name: "bench", version: "1" } };
  const opened = await send(replica, token, request("initialize", params));
  const session = opened.headers?.["mcp-session-id"];
  if (session === undefined) throw new Error(`no session: ${opened.text}`);
  const head = { "mcp-session-id": session };
  await send(replica, token, { jsonrpc: "2.0", method: "notifications/initialized" }, head);
  const listed = await send(replica, token, request("tools/list", {}), head);
  if (!listed.text.includes("getConfigValue")) throw new Error(`no list: ${listed.text}`);
  return head;
}

const failures = new Map();

/** Runs `work` from so many places at once for the time given. Answers how often. */
async function during(concurrency, work) {
  const until = performance.now() + seconds * 1_000;
  let count = 0;
  const worker = async () => {
    for (let i = 0; performance.now() < until; i++) {
      // A store that cannot keep up shows as failures; what they cost counts for those that succeed.
      try {
        await work(i);
        count++;
      } catch (error) {
        failures.set(error.message.slice(0, 200), (failures.get(error.message.slice(0, 200)) ?? 0) + 1);
        await pause(20);
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return count;
}

const pick = (list) => list[Math.floor(Math.random() * list.length)];
const quantile = (values, q) =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * q))];

async function measure(cluster, count, applications) {
  const url = await cluster.database();
  const meter = new Meter(cluster, url);
  await meter.client.connect();
  const admin = await openStorage(url, { maxConnections: 8, sweepMs: 0, waitMs: 60_000 });
  const tokens = { free: [], limited: [] };
  for (let i = 0; i < applications; i++) {
    for (const kind of ["free", "limited"]) {
      const app = `${kind}-${i}`;
      const limits = kind === "free" ? {} : { limits: { app: { perMinute: 3_000 }, agent: { perMinute: 3_000 } } };
      await admin.applications.put(app, { config: { answer: 42 }, permissions: ["*"], ...limits }, "bench");
      const made = await createKey(admin.keys, { app, name: "agent", permissions: ["invoke(*)", "list"] }, "bench");
      tokens[kind].push(made.token);
    }
  }
  const began = performance.now();
  const cpuBefore = process.cpuUsage();
  const replicas = [];
  for (let i = 0; i < count; i += STARTED_AT_ONCE) {
    const names = Array.from(
      { length: Math.min(STARTED_AT_ONCE, count - i) },
      (_, n) => `r${count}-${applications}-${i + n}`,
    );
    replicas.push(...(await Promise.all(names.map((name) => startReplica(name, url)))));
  }
  const startMs = (performance.now() - began) / count;
  const { user, system } = process.cpuUsage(cpuBefore);
  const startCpuMs = (user + system) / 1_000 / count;
  const rows = {};
  try {
    await pause(3_000);
    rows.idle = await meter.of(async () => (await pause(seconds * 1_000), 1));

    const call = async (token) => {
      const answer = await callTool(pick(replicas), token, READ, { key: "answer" });
      if (!answer.text.includes("42")) throw new Error(answer.text);
    };
    // Opened before they are measured: the first call of an application on a replica loads it.
    rows.open = await meter.of(async () => {
      let opened = 0;
      for (const token of [...tokens.free.slice(0, 10), ...tokens.limited.slice(0, 10)]) {
        for (const replica of replicas) {
          await callTool(replica, token, READ, { key: "answer" });
          opened++;
        }
      }
      return opened;
    });
    const used = { free: tokens.free.slice(0, 10), limited: tokens.limited.slice(0, 10) };
    rows.calls = await meter.of(() => during(32, () => call(pick(used.free))));
    let admitted = 0;
    rows.limited = await meter.of(async () => {
      await during(32, async () => {
        const answer = await callTool(pick(replicas), pick(used.limited), READ, { key: "answer" });
        if (answer.text.includes("42")) admitted++;
        else await pause(20);
      });
      return admitted;
    });
    rows.handshakes = await meter.of(() => during(16, () => handshake(pick(replicas), pick(used.free))));
    const approvals = replicas.map(({ storage }) => new StoredApprovals(storage.challenges));
    let asked = 0;
    const approver = { name: "ops", groups: ["ops"] };
    rows.approvals = await meter.of(() =>
      during(8, async () => {
        const at = Math.floor(Math.random() * count);
        const token = pick(used.free);
        const args = { message: `please ${++asked}` };
        const first = await callTool(replicas[at], token, ASK, args);
        const id = /approve\/([\w-]+)|"challenge"\s*:\s*"([\w-]+)"|\b(ch_[\w-]+)/.exec(first.text);
        const challenge = id?.[1] ?? id?.[2] ?? id?.[3];
        if (challenge === undefined) throw new Error(`not challenged: ${first.text}`);
        await pick(approvals).approve(challenge, approver);
        const second = await callTool(replicas[at], token, ASK, args);
        if (!second.text.includes("logged")) throw new Error(`not run: ${second.text}`);
      }),
    );

    // From the moment a change is committed until each replica has read it.
    const lags = [];
    let writtenAt = new Map();
    const stops = await Promise.all(
      replicas.map(({ storage }) =>
        storage.feed.watch({
          change: ({ name }) => {
            const at = writtenAt.get(name);
            if (at !== undefined) lags.push(performance.now() - at);
          },
          resync: () => {},
        }),
      ),
    );
    rows.changes = await meter.of(async () => {
      let made = 0;
      for (const until = performance.now() + seconds * 1_000; performance.now() < until; ) {
        const name = `change-${++made}`;
        await admin.applications.put(name, {}, "bench");
        writtenAt.set(name, performance.now());
        await pause(200);
      }
      return made;
    });
    const lag = { p50: quantile(lags, 0.5), p99: quantile(lags, 0.99), heard: lags.length };
    writtenAt = new Map();

    // Every replica writes changes as fast as it can: what takes turns shows here.
    let longest = 0;
    let failed = 0;
    rows.storm = await meter.of(() => {
      let n = 0;
      return during(Math.max(4, count), async () => {
        const at = performance.now();
        const document = { description: String(++n) };
        await pick(replicas)
          .storage.applications.put(`storm-${n % 500}`, document, "bench")
          .catch(() => failed++);
        longest = Math.max(longest, performance.now() - at);
      });
    });
    for (const stop of stops) stop();
    return {
      count,
      applications,
      startMs,
      startCpuMs,
      rows,
      lag,
      longest,
      failed,
      rssMb: process.memoryUsage.rss() / 2 ** 20,
    };
  } finally {
    await Promise.allSettled(replicas.map((replica) => replica.close()));
    await admin.close();
    await meter.client.end();
  }
}

/** Bytes that one open application adds to a replica. */
async function openAll(cluster, applications) {
  const url = await cluster.database();
  const admin = await openStorage(url, { maxConnections: 8, sweepMs: 0 });
  const tokens = [];
  for (let i = 0; i < applications; i++) {
    await admin.applications.put(`app-${i}`, { config: { answer: 42 }, permissions: ["*"] }, "bench");
    const made = await createKey(
      admin.keys,
      { app: `app-${i}`, name: "agent", permissions: ["invoke(*)", "list"] },
      "bench",
    );
    tokens.push(made.token);
  }
  await admin.close();
  const replica = await startReplica(`apps-${applications}`, url);
  globalThis.gc?.();
  const before = process.memoryUsage();
  const began = performance.now();
  for (const token of tokens) await callTool(replica, token, READ, { key: "answer" });
  const openMs = (performance.now() - began) / applications;
  globalThis.gc?.();
  const after = process.memoryUsage();
  await replica.close();
  const kib = (pick) => ((pick(after) - pick(before)) / applications / 1024).toFixed(0);
  return {
    applications,
    openMs: openMs.toFixed(1),
    "heap KiB each": kib((m) => m.heapUsed),
    "RSS KiB each": kib((m) => m.rss),
  };
}

const f = (value, digits = 1) => Number(value.toFixed(digits));
function show({ count, applications, startMs, startCpuMs, rows, lag, longest, failed, rssMb }) {
  const idle = rows.idle;
  const perS = (row) => f(row.tx / row.s);
  process.stdout.write(
    `\n${count} replicas, ${2 * applications} applications, ${maxConnections} + 1 connections each: ${idle.connections} open when idle; `,
  );
  process.stdout.write(
    `start of a replica ${f(startMs)} ms (${f(startCpuMs)} ms CPU); this process ${f(rssMb, 0)} MiB\n`,
  );
  const table = Object.entries(rows).map(([name, row]) => {
    // What the replicas do by themselves is not what was asked of them.
    const tx = row.tx - (name === "idle" ? 0 : (idle.tx / idle.s) * row.s);
    const cpu = row.cpu - (name === "idle" ? 0 : (idle.cpu / idle.s) * row.s);
    const wal = row.wal - (name === "idle" ? 0 : (idle.wal / idle.s) * row.s);
    const per = name === "idle" ? row.s : row.count;
    return {
      what: name === "idle" ? "idle, a second" : name,
      "a second": name === "idle" ? 1 : f(row.count / row.workS),
      "tx/s": perS(row),
      "tx each": f(tx / per, 2),
      "rows each": f((row.rows - (name === "idle" ? 0 : (idle.rows / idle.s) * row.s)) / per, 2),
      "PG CPU ms each": f(cpu / per, 3),
      "WAL KiB each": f(wal / per / 1024, 2),
      "ledger KiB each": f((row.ledger - (name === "idle" ? 0 : (idle.ledger / idle.s) * row.s)) / per / 1024, 2),
      "PG CPU %": f((row.cpu / row.s / 1_000) * 100),
      "own CPU ms each": f((row.own - (name === "idle" ? 0 : (idle.own / idle.s) * row.s)) / per, 3),
    };
  });
  console.table(table);
  process.stdout.write(
    `a change is read by every replica after ${f(lag.p50)} ms (median), ${f(lag.p99)} ms (p99), ${lag.heard} readings; `,
  );
  for (const [message, times] of failures) process.stdout.write(`failed ${times} times: ${message}\n`);
  failures.clear();
  process.stdout.write(`longest write while all write: ${f(longest)} ms, ${failed} failed\n`);
}

const cluster = await startCluster();
try {
  const [fewest = 10] = numbers(options.applications);
  for (const count of numbers(options.replicas)) show(await measure(cluster, count, fewest));
  const opened = [];
  for (const applications of numbers(options.applications)) opened.push(await openAll(cluster, applications));
  console.table(opened);
} finally {
  await cluster.stop();
  rmSync(dir, { recursive: true, force: true });
}
