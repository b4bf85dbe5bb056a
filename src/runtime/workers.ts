// All cores of one machine: several processes share the port and the store, and each writes a ledger of its own. To
// each other they are replicas.

import cluster, { type Worker } from "node:cluster";
import { join } from "node:path";
import { statePaths } from "./data-directory.js";
import type { ServeApplicationsOptions } from "./serve.js";
import { WorkerReports } from "./worker-reports.js";

/** Set for a worker by its parent; the number stays with its place, so that its ledger goes on after a restart. */
const PLACE = "PORTCULLIS_WORKER";
const AGAIN = "PORTCULLIS_WORKER_AGAIN";
const FIRST_PAUSE_MS = 200;
const LAST_PAUSE_MS = 10_000;
const WELL_AFTER_MS = 30_000;

/** True in the process that only watches over the others. */
export function isOverseer(options: ServeApplicationsOptions): boolean {
  return (options.workers ?? 1) > 1 && process.env[PLACE] === undefined;
}

/** A worker's own settings: a name and a ledger. All of them listen on the admin port. */
export function asWorker(dir: string, options: ServeApplicationsOptions): ServeApplicationsOptions {
  const place = process.env[PLACE];
  if (place === undefined) return options;
  const ledgers = options.ledger ?? statePaths(dir).ledgerDir;
  const adminUrl = options.adminUrl ?? (options.adminPort === 0 ? undefined : `http://127.0.0.1:${options.adminPort}`);
  return {
    ...options,
    replica: `${options.replica ?? "worker"}-${place}`,
    ledger: join(ledgers, `worker-${place}`),
    ...(adminUrl === undefined ? {} : { adminUrl }),
    isSilent: place !== "1" || process.env[AGAIN] === "1",
  };
}

/** The line to its parent would keep a worker alive that has nothing left to do. */
export function leave(): void {
  cluster.worker?.disconnect();
}

/**
 * Keeps so many workers running until it is told to stop; resolves with an exit code when the last of them has gone. The
 * others begin when the first one serves: what keeps it from serving would keep them all, and is said once.
 */
export async function oversee(count: number): Promise<number> {
  const workers = new Map<number, Worker>();
  const pauses = new Map<number, number>();
  const reports = new WorkerReports(count);
  let hasServed = false;
  let isEnding = false;
  return new Promise<number>((resolve) => {
    const tell = (signal: NodeJS.Signals): void => {
      for (const worker of workers.values()) worker.process.kill(signal);
    };
    const end = (): void => {
      isEnding = true;
      tell("SIGTERM");
      const left = [...workers.values()].filter((worker) => !worker.isDead());
      void Promise.all(left.map((worker) => new Promise((gone) => worker.once("exit", gone)))).then(() => resolve(0));
    };
    const start = (place: number, again = false): void => {
      const began = performance.now();
      const worker = cluster.fork({ [PLACE]: String(place), [AGAIN]: again ? "1" : "0" });
      workers.set(place, worker);
      reports.add(place, worker, () => {
        if (hasServed || isEnding) return;
        hasServed = true;
        for (let next = 2; next <= count; next++) start(next);
      });
      worker.on("exit", (code, signal) => {
        workers.delete(place);
        reports.remove(place);
        if (isEnding) return;
        if (!hasServed) return resolve(code === 0 || code === null ? 1 : code);
        const pause =
          performance.now() - began > WELL_AFTER_MS ? FIRST_PAUSE_MS : (pauses.get(place) ?? FIRST_PAUSE_MS);
        pauses.set(place, Math.min(pause * 2, LAST_PAUSE_MS));
        process.stderr.write(`worker ${place} ended (${signal ?? code}); it is started again in ${pause} ms\n`);
        setTimeout(() => {
          if (!isEnding) start(place, true);
        }, pause);
      });
    };
    process.on("SIGHUP", () => tell("SIGHUP"));
    // A second signal ends the workers at once, and then this process.
    process.on("SIGINT", () => (isEnding ? tell("SIGTERM") : end()));
    process.on("SIGTERM", () => (isEnding ? tell("SIGTERM") : end()));
    start(1);
  }).finally(() => reports.close());
}
