// Metrics of a running gateway that no single module has: the store, the ledger's disk, the policy, approvals, replicas
// and retained bytes. What has to be asked for is asked for in the background, one question at a time.

import { readdir, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { OperationResult } from "../admin/index.js";
import type { Applications } from "../gateway/index.js";
import type { Ledger } from "../ledger/index.js";
import type { JsonObject, RetainedBytes } from "../mcp/index.js";
import type { Listener } from "../mcp/transports/index.js";
import type { PolicyWatcher } from "../policy/index.js";
import type { Storage, StoreOperation } from "../storage/index.js";
import { type Family, gauge, type Telemetry } from "../telemetry/index.js";
import { startRemedies } from "./server-sandbox.js";

const ASK_MS = 5_000;
/** A replica registers itself every five seconds; one that has not for so long is not counted any more. */
const REPLICA_MS = 60_000;
const SYSTEMS = { postgres: "postgresql", sqlite: "sqlite" } as const;

/** For `observe` of a store. */
export function observeStore({ metrics }: Pick<Telemetry, "metrics">): (operation: StoreOperation) => void {
  return ({ kind, table, operation, seconds, error }) => {
    metrics.storeOperations.record(seconds, SYSTEMS[kind], table, operation, error);
  };
}

interface MonitoredParts {
  readonly telemetry: Pick<Telemetry, "metrics">;
  readonly ledger: Pick<Ledger, "dir" | "status">;
  readonly watcher: Pick<PolicyWatcher, "ageMs" | "refusal">;
  /** Policy changes that wait for the ledger. */
  readonly pendingPolicies: () => number;
  /** Why the ledger could not be archived or pruned the last time. */
  readonly archiveProblem: () => string | undefined;
  readonly storage?: Pick<Storage, "challenges" | "replicas" | "feed"> | undefined;
  readonly retained?: { readonly bytes: RetainedBytes; readonly max: number };
}

/** Adds the families to the metrics, and returns what ends the questions. */
export function watchRuntime(parts: MonitoredParts): () => void {
  const { telemetry, watcher, storage, retained } = parts;
  const figures = new Figures(parts);
  telemetry.metrics.addSource(() => [
    gauge("portcullis.policy.age", "Time since the policy files were last read", "s", watcher.ageMs / 1_000, "max"),
    gauge(
      "portcullis.policy.pending",
      "Policy changes that wait for the ledger; the stricter of old and new applies",
      "",
      parts.pendingPolicies(),
      "max",
    ),
    gauge(
      "portcullis.policy.refused",
      "1 while the policy files are invalid and an earlier policy is in force, otherwise 0",
      "",
      watcher.refusal === undefined ? 0 : 1,
      "max",
    ),
    gauge(
      "portcullis.ledger.archive.failing",
      "1 while closed files of the ledger could not be archived or pruned the last time, otherwise 0",
      "",
      parts.archiveProblem() === undefined ? 0 : 1,
      "max",
    ),
    ...(retained
      ? [
          gauge("portcullis.retained", "Memory kept for callers and servers", "By", retained.bytes.used),
          gauge("portcullis.retained.limit", "Memory that may be kept for callers and servers", "By", retained.max),
        ]
      : []),
    ...(storage
      ? [
          gauge(
            "portcullis.store.feed.lag",
            "Time since all changes in the store were last read",
            "s",
            storage.feed.lagMs / 1_000,
            "max",
          ),
        ]
      : []),
    ...figures.families,
  ]);
  return () => figures.close();
}

/** Open connections, by the scheme of the listener, and those of them that are not read. */
export function watchConnections(
  { metrics }: Pick<Telemetry, "metrics">,
  listeners: readonly Listener[],
  router: { readonly pausedConnections: number },
): void {
  metrics.addSource(() => {
    for (const { url, connections } of listeners)
      metrics.connections.set(connections, new URL(url).protocol.slice(0, -1));
    return [
      gauge(
        "portcullis.connections.paused",
        "Connections that are not read, because their callers have sent more than is soon handled",
        "",
        router.pausedConnections,
      ),
    ];
  });
}

class Figures {
  readonly #parts: MonitoredParts;
  readonly #timer: NodeJS.Timeout;
  readonly #asking = new Set<string>();
  #store: Family[] = [];
  #ledger: Family[] = [];

  constructor(parts: MonitoredParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => this.#askAll(), ASK_MS).unref();
    this.#askAll();
  }

  get families(): Family[] {
    return [...this.#store, ...this.#ledger];
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #askAll(): void {
    const { storage, ledger } = this.#parts;
    if (storage) this.#ask("store", async () => (this.#store = await storeFamilies(storage)));
    // A disk that does not answer would keep a thread busy that others need.
    if (ledger.status().healthy) this.#ask("ledger", async () => (this.#ledger = await ledgerFamilies(ledger.dir)));
  }

  /** A store or a disk that does not answer is asked once; readiness reports it. */
  #ask(what: string, ask: () => Promise<unknown>): void {
    if (this.#asking.has(what)) return;
    this.#asking.add(what);
    ask()
      .catch(() => {})
      .finally(() => this.#asking.delete(what));
  }
}

/** The store is the same for all workers. */
async function storeFamilies({ challenges, replicas }: Pick<Storage, "challenges" | "replicas">): Promise<Family[]> {
  const { pending, oldestMs, expired } = await challenges.figures();
  const known = await replicas.list(REPLICA_MS);
  const newest = Math.max(...known.map(({ seenAt }) => seenAt));
  const lagMs = Math.max(0, ...known.map(({ seenAt }) => newest - seenAt));
  return [
    gauge("portcullis.approvals.pending", "Approval requests without an answer, of all replicas", "", pending, "max"),
    gauge(
      "portcullis.approvals.oldest.age",
      "Age of the oldest approval request without an answer",
      "s",
      oldestMs / 1_000,
      "max",
    ),
    gauge(
      "portcullis.approvals.expired",
      "Approval requests that expired without an answer in the last hour",
      "",
      expired,
      "max",
    ),
    gauge("portcullis.replicas", "Replicas that have registered within a minute", "", known.length, "max"),
    gauge(
      "portcullis.replicas.lag",
      "How much longer ago the slowest of them registered than the latest",
      "s",
      lagMs / 1_000,
      "max",
    ),
  ];
}

async function ledgerFamilies(dir: string): Promise<Family[]> {
  const names = (await readdir(dir)).filter((name) => /^seq-\d+\.ndjson/.test(name));
  let bytes = 0;
  for (const name of names) bytes += (await stat(join(dir, name)).catch(() => ({ size: 0 }))).size;
  const { bavail, blocks, bsize } = await statfs(dir);
  return [
    gauge("portcullis.ledger.size", "Bytes of the ledger's files, indexes and tiles not included", "By", bytes),
    gauge("portcullis.ledger.disk.free", "Free space on the ledger's disk", "By", bavail * bsize, "min"),
    gauge("portcullis.ledger.disk.size", "Size of the ledger's disk", "By", blocks * bsize, "min"),
  ];
}

type ServerRow = OperationResult<"listServers">["servers"][number];

/** The state of each server in this process, as the admin API gives it. */
export function serverFacts(applications: Applications, replica: string): ServerRow[] {
  return [...applications.open].flatMap((servedApplication) =>
    [...servedApplication.upstreams.values()].map((handle): ServerRow => {
      const health = handle.health();
      const { lastError, counts, pid, exit, revision, containment, sandbox } = health;
      const remedies = startRemedies(servedApplication.id, handle.server, health);
      return {
        replica,
        app: servedApplication.id,
        server: handle.server,
        state: health.state,
        circuit: health.circuit,
        transport: health.transport,
        ...(revision === undefined ? {} : { revision }),
        tools: servedApplication.toolsOf(handle.server),
        instances: handle.instances,
        in_flight: health.inFlight,
        queued: health.queued,
        restarts: health.restarts,
        calls: counts.calls,
        failures: counts.failures + counts.timeouts,
        counts: { ...counts } as unknown as JsonObject,
        ...(pid === undefined ? {} : { pid }),
        ...(exit === undefined ? {} : { exit }),
        ...(containment === undefined ? {} : { containment }),
        ...(sandbox === undefined ? {} : { sandbox: sandbox as unknown as JsonObject }),
        ...(lastError === undefined ? {} : { last_error: { ...lastError, at: new Date(lastError.at).toISOString() } }),
        ...(remedies.length === 0 ? {} : { remedies }),
        stderr: health.stderr,
        pending_pins: 0,
      };
    }),
  );
}

const STATES = ["idle", "starting", "ready", "failed", "stopped"];
/** Servers with a series of their own. */
const MAX_SERVERS = 500;

/** Counts restarts: a server that is no longer in use keeps what was counted for it. */
export class ServerMetrics {
  readonly #applications: Applications;
  readonly #restartsOf = new WeakMap<object, number>();
  #restarts = 0;

  constructor(applications: Applications) {
    this.#applications = applications;
  }

  families(): Family[] {
    const states = new Map<string, number>(STATES.map((state) => [state, 0]));
    const available: Family["points"][number][] = [];
    let open = 0;
    for (const servedApplication of this.#applications.open) {
      for (const link of servedApplication.upstreams.values()) {
        const { state, circuit, restarts } = link.health();
        states.set(state, (states.get(state) ?? 0) + 1);
        if (circuit !== "closed") open++;
        this.#restarts += Math.max(0, restarts - (this.#restartsOf.get(link) ?? 0));
        this.#restartsOf.set(link, restarts);
        if (available.length >= MAX_SERVERS) continue;
        const labels = [["portcullis.app", servedApplication.id] as const, ["portcullis.server", link.server] as const];
        available.push({ labels, value: state === "failed" || circuit !== "closed" ? 0 : 1 });
      }
    }
    return [
      {
        name: "portcullis.servers",
        help: "Downstream servers in use, by state",
        type: "gauge",
        unit: "",
        points: [...states].map(([state, value]) => ({ labels: [["portcullis.state", state]], value })),
      },
      gauge(
        "portcullis.servers.circuit_open",
        "Downstream servers that are sent no calls for now because too many failed",
        "",
        open,
      ),
      {
        ...gauge(
          "portcullis.server.restarts",
          "Connections to downstream servers that were made again",
          "",
          this.#restarts,
        ),
        type: "counter",
      },
      {
        name: "portcullis.server.available",
        help: "1 while a downstream server is sent calls, 0 while it has failed or its circuit is open",
        type: "gauge",
        unit: "",
        across: "min",
        points: available,
      },
    ];
  }
}
