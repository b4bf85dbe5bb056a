// All cores of one machine: several processes share the port and the store, and each writes a ledger of its own. To
// each other they are replicas.

import type { Worker } from "node:cluster";
import cluster from "node:cluster";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { combineReports, type ProcessReport, type ReportPart } from "../admin/index.js";
import { Fault } from "../mcp/index.js";
import { countersOf, type Family } from "../telemetry/index.js";
import { statePaths } from "./data-directory.js";
import type { ServeSettings } from "./serve.js";

/** Set for a worker by its parent; the number stays with its place, so that its ledger continues after a restart. */
const PLACE = "PORTCULLIS_WORKER";
const AGAIN = "PORTCULLIS_WORKER_AGAIN";
const FIRST_PAUSE_MS = 200;
/** A worker that served is missed; one that ends before it serves would cost a start each time. */
const LAST_PAUSE_MS = { served: 1_000, neverServed: 10_000 };
const WELL_AFTER_MS = 30_000;

/** True in the process that only watches over the others. */
export function isOverseer(options: ServeSettings): boolean {
  return (options.workers ?? 1) > 1 && process.env[PLACE] === undefined;
}

/** A worker's own settings: a name and a ledger. All of them listen on the admin port. */
export function asWorker(dir: string, options: ServeSettings): ServeSettings {
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
 * Keeps this many workers running until a signal; resolves with an exit code when the last of them has ended. The others
 * start when the first one serves: an error at the start is reported once.
 */
export async function oversee(count: number): Promise<number> {
  const workers = new Map<number, Worker>();
  const pauses = new Map<number, number>();
  const reports = new WorkerReports(count);
  let hasServed = false;
  let isEnding = false;
  return new Promise<number>((resolve) => {
    const signalAll = (signal: NodeJS.Signals): void => {
      for (const worker of workers.values()) worker.process.kill(signal);
    };
    const end = (): void => {
      isEnding = true;
      signalAll("SIGTERM");
      const left = [...workers.values()].filter((worker) => !worker.isDead());
      void Promise.all(left.map((worker) => new Promise((gone) => worker.once("exit", gone)))).then(() => resolve(0));
    };
    const start = (place: number, again = false): void => {
      const began = performance.now();
      const worker = cluster.fork({ [PLACE]: String(place), [AGAIN]: again ? "1" : "0" });
      workers.set(place, worker);
      let last = LAST_PAUSE_MS.neverServed;
      reports.add(place, worker, () => {
        last = LAST_PAUSE_MS.served;
        if (hasServed || isEnding) return;
        hasServed = true;
        for (let next = 2; next <= count; next++) start(next);
      });
      worker.on("exit", (code, signal) => {
        workers.delete(place);
        reports.remove(place);
        if (isEnding) return;
        if (!hasServed) return resolve(code === 0 || code === null ? 1 : code);
        const isWell = performance.now() - began > WELL_AFTER_MS;
        const pause = isWell ? FIRST_PAUSE_MS : Math.min(pauses.get(place) ?? FIRST_PAUSE_MS, last);
        pauses.set(place, Math.min(pause * 2, last));
        process.stderr.write(`worker ${place} ended (${signal ?? code}); it is started again in ${pause} ms\n`);
        setTimeout(() => {
          if (!isEnding) start(place, true);
        }, pause);
      });
    };
    process.on("SIGHUP", () => signalAll("SIGHUP"));
    // A second signal ends the workers at once, and then this process.
    process.on("SIGINT", () => (isEnding ? signalAll("SIGTERM") : end()));
    process.on("SIGTERM", () => (isEnding ? signalAll("SIGTERM") : end()));
    start(1);
  }).finally(() => reports.close());
}

/** A worker that has not answered for so long is reported as blocked. */
const ANSWER_MS = 2_000;
/** Longer than the parent waits for the workers. */
const PARENT_MS = 2 * ANSWER_MS;
/** What a worker counted since the last time is lost when it is killed, so it is asked without a scrape as well. */
const POLL_MS = 5_000;

/** From worker to parent: it serves, what it reports, and a question about all workers. */
type FromWorker =
  | { readonly portcullis: "started" }
  | { readonly portcullis: "report"; readonly id: number; readonly report: ProcessReport }
  | { readonly portcullis: "collect"; readonly id: number; readonly part: ReportPart };

/** From parent to worker: a question, and the answer to one. */
type FromParent =
  | { readonly portcullis: "report"; readonly id: number; readonly part: ReportPart }
  | { readonly portcullis: "collected"; readonly id: number; readonly report: ProcessReport };

interface Place {
  readonly worker: Worker;
  isStarted: boolean;
  /** As last reported. */
  families: readonly Family[];
  /** Questions that are not answered yet; none is asked a second time meanwhile. */
  readonly asked: Map<ReportPart, Promise<ProcessReport | undefined>>;
}

/** In the parent: every worker by its place, and what workers that have ended had counted. */
export class WorkerReports {
  readonly #count: number;
  readonly #places = new Map<number, Place>();
  readonly #everStarted = new Set<number>();
  readonly #asked = new Map<number, (report: ProcessReport) => void>();
  readonly #collecting = new Map<ReportPart, Promise<ProcessReport>>();
  readonly #poll: NodeJS.Timeout;
  #ended: readonly Family[] = [];
  #restarts = 0;
  #nextId = 0;

  constructor(count: number) {
    this.#count = count;
    this.#poll = setInterval(() => void this.collect("metrics"), POLL_MS).unref();
  }

  /** `onStarted` is called once it serves. */
  add(place: number, worker: Worker, onStarted: () => void): void {
    const entry: Place = { worker, isStarted: false, families: [], asked: new Map() };
    if (this.#everStarted.has(place)) this.#restarts++;
    this.#places.set(place, entry);
    worker.on("message", (message: FromWorker) => {
      switch (message?.portcullis) {
        case "started":
          entry.isStarted = true;
          this.#everStarted.add(place);
          return onStarted();
        case "report":
          return this.#asked.get(message.id)?.(message.report);
        case "collect":
          return void this.collect(message.part).then((report) => {
            send(worker, { portcullis: "collected", id: message.id, report });
          });
      }
    });
  }

  remove(place: number): void {
    const families = countersOf(this.#places.get(place)?.families ?? []);
    this.#places.delete(place);
    this.#ended = combineReports(
      new Map([
        ["ended", { ...NOTHING, families: [...this.#ended] }],
        [`${place}`, { ...NOTHING, families }],
      ]),
    ).families;
  }

  close(): void {
    clearInterval(this.#poll);
  }

  /** Questions that come while the same one is under way get its answer. */
  collect(part: ReportPart): Promise<ProcessReport> {
    let collecting = this.#collecting.get(part);
    if (!collecting) {
      collecting = this.#collect(part).finally(() => this.#collecting.delete(part));
      this.#collecting.set(part, collecting);
    }
    return collecting;
  }

  async #collect(part: ReportPart): Promise<ProcessReport> {
    const reports = new Map<string, ProcessReport>();
    const starting: number[] = [];
    const silent: number[] = [];
    const places = Array.from({ length: this.#count }, (_, i) => i + 1);
    await Promise.all(
      places.map(async (place) => {
        const entry = this.#places.get(place);
        if (!entry?.isStarted) return void starting.push(place);
        const report = await this.#ask(entry, part);
        if (report && part === "metrics") entry.families = report.families;
        // One that ended meanwhile is counted among those that have ended.
        if (this.#places.get(place) !== entry) return void starting.push(place);
        if (!report) silent.push(place);
        reports.set(`${place}`, report ?? { ...NOTHING, families: countersOf(entry.families) });
      }),
    );
    const families = [
      ...this.#ended,
      ...workerFamilies(reports.size - silent.length, starting, silent, this.#restarts),
    ];
    return combineReports(
      new Map([...reports, ["parent", { ...NOTHING, ...this.#ownHealth(starting, silent), families }]]),
    );
  }

  #ownHealth(
    starting: readonly number[],
    silent: readonly number[],
  ): Pick<ProcessReport, "isAlive" | "isStarted" | "components"> {
    const list = (places: readonly number[]): string => places.toSorted((a, b) => a - b).join(", ");
    // No call is sent to a worker that is not there; calls to one that is blocked wait.
    const problem =
      silent.length === 0 ? undefined : `workers that have not answered for ${ANSWER_MS} ms: ${list(silent)}`;
    const warning = starting.length === 0 ? undefined : `workers that are being started: ${list(starting)}`;
    return {
      isAlive: silent.length === 0,
      isStarted: this.#everStarted.size === this.#count,
      components: { workers: { problem, warning } },
    };
  }

  async #ask(place: Place, part: ReportPart): Promise<ProcessReport | undefined> {
    let answered = place.asked.get(part);
    if (!answered) {
      answered = this.#answer(place.worker, part).finally(() => place.asked.delete(part));
      place.asked.set(part, answered);
    }
    const late = new AbortController();
    const timeout = sleep(ANSWER_MS, undefined, { signal: late.signal }).catch(() => undefined);
    const report = await Promise.race([answered, timeout]);
    late.abort();
    return report;
  }

  /** Undefined when it ends before it answers. */
  #answer(worker: Worker, part: ReportPart): Promise<ProcessReport | undefined> {
    const id = this.#nextId++;
    return new Promise((resolve) => {
      const end = (report?: ProcessReport): void => {
        this.#asked.delete(id);
        worker.off("exit", gone);
        resolve(report);
      };
      const gone = (): void => end();
      worker.on("exit", gone);
      this.#asked.set(id, end);
      send(worker, { portcullis: "report", id, part });
    });
  }
}

const NOTHING: ProcessReport = {
  isAlive: true,
  isStarted: true,
  components: {},
  refused: [],
  families: [],
  servers: [],
};

function workerFamilies(
  serving: number,
  starting: readonly number[],
  silent: readonly number[],
  restarts: number,
): Family[] {
  const states = { serving, starting: starting.length, blocked: silent.length };
  return [
    {
      name: "portcullis.workers",
      help: "Worker processes, by state",
      type: "gauge",
      unit: "",
      points: Object.entries(states).map(([state, value]) => ({ labels: [["portcullis.state", state]], value })),
    },
    {
      name: "portcullis.worker.restarts",
      help: "Worker processes that were started again after they had ended",
      type: "counter",
      unit: "",
      points: [{ labels: [], value: restarts }],
    },
  ];
}

function send(worker: Worker, message: FromParent): void {
  // One that is about to end does not answer; its exit is noticed.
  if (worker.isConnected()) worker.send(message, () => {});
}

/** In a worker: answers the parent from now on. */
export function answerParent(report: (part: ReportPart) => ProcessReport): void {
  process.on("message", (message: FromParent) => {
    if (message?.portcullis !== "report") return;
    sendToParent({ portcullis: "report", id: message.id, report: report(message.part) });
  });
  sendToParent({ portcullis: "started" });
}

let nextId = 0;

/** In a worker: the report over all workers. Undefined in a process that is not one. */
export function collectFromParent(): ((part: ReportPart) => Promise<ProcessReport>) | undefined {
  if (!cluster.isWorker) return undefined;
  return (part) => {
    const id = nextId++;
    return new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        process.off("message", onMessage);
      };
      const onMessage = (message: FromParent): void => {
        if (message?.portcullis !== "collected" || message.id !== id) return;
        end();
        resolve(message.report);
      };
      const timer = setTimeout(() => {
        end();
        reject(new Fault("Unavailable", `the parent of the workers has not answered for ${PARENT_MS} ms`));
      }, PARENT_MS);
      process.on("message", onMessage);
      sendToParent({ portcullis: "collect", id, part });
    });
  };
}

function sendToParent(message: FromWorker): void {
  if (process.connected) process.send?.(message, () => {});
}
