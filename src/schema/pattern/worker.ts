// Runs untrusted patterns. A worker thread can be ended in the middle of a match, the main thread
// cannot; so the worker gets the text, a deadline, and nothing else.

import { Worker } from "node:worker_threads";

interface PatternRequest {
  readonly source: string;
  readonly flags: string;
  readonly text: string;
}

export class PatternTimeout extends Error {
  readonly code = "TIMEOUT";
}

interface PatternWorkersOptions {
  /** Threads at most; started when first needed. */
  maxWorkers?: number;
  /** Batches that may wait for a thread. */
  maxQueue?: number;
}

interface Batch {
  readonly owner: unknown;
  readonly questions: readonly PatternRequest[];
  readonly resolve: (answers: boolean[]) => void;
  readonly reject: (error: Error) => void;
  readonly timer: NodeJS.Timeout;
}

// Plain JavaScript without imports, so that it runs the same from sources, from the package and from a bundle.
const PROGRAM = `
const { parentPort } = require("node:worker_threads");
parentPort.on("message", (questions) => {
  parentPort.postMessage(questions.map(({ source, flags, text }) => new RegExp(source, flags).test(text)));
});`;

export class PatternWorkers {
  readonly #maxWorkers: number;
  readonly #maxQueue: number;
  readonly #idle = new Set<Worker>();
  readonly #busy = new Map<Worker, Batch>();
  readonly #queue = new Set<Batch>();

  constructor({ maxWorkers = 2, maxQueue = 256 }: PatternWorkersOptions = {}) {
    this.#maxWorkers = maxWorkers;
    this.#maxQueue = maxQueue;
  }

  /**
   * Answers in the order of the questions. One owner holds one thread at a time, so that a hostile schema keeps
   * only its own callers waiting. Waiting counts towards the time limit.
   */
  ask(owner: unknown, questions: readonly PatternRequest[], timeoutMs: number): Promise<boolean[]> {
    if (this.#queue.size >= this.#maxQueue) {
      return Promise.reject(new PatternTimeout(`more than ${this.#maxQueue} checks are waiting for a pattern worker`));
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#giveUp(batch, new PatternTimeout("matching a pattern took too long and was stopped"));
      }, timeoutMs);
      const batch: Batch = { owner, questions, resolve, reject, timer };
      this.#queue.add(batch);
      this.#next();
    });
  }

  /** Threads now alive, busy or idle. */
  get size(): number {
    return this.#busy.size + this.#idle.size;
  }

  async close(): Promise<void> {
    for (const batch of [...this.#queue, ...this.#busy.values()]) this.#giveUp(batch, new PatternTimeout("closed"));
    await Promise.all([...this.#idle].map((worker) => worker.terminate()));
  }

  #next(): void {
    while (this.#busy.size < this.#maxWorkers) {
      const owners = new Set([...this.#busy.values()].map((batch) => batch.owner));
      const batch = [...this.#queue].find(({ owner }) => !owners.has(owner));
      if (batch === undefined) return;
      const [worker = this.#start()] = this.#idle;
      this.#idle.delete(worker);
      this.#queue.delete(batch);
      this.#busy.set(worker, batch);
      worker.postMessage(batch.questions);
    }
  }

  #start(): Worker {
    const worker = new Worker(PROGRAM, {
      eval: true,
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 },
    });
    worker.on("message", (answers: boolean[]) => {
      const batch = this.#release(worker);
      this.#idle.add(worker);
      batch?.resolve(answers);
      this.#next();
    });
    worker.on("error", (error) => this.#release(worker)?.reject(error));
    worker.on("exit", () => {
      this.#release(worker)?.reject(new PatternTimeout("the pattern worker ended"));
      this.#idle.delete(worker);
      this.#next();
    });
    // An idle or stuck worker never keeps the process alive.
    worker.unref();
    return worker;
  }

  #release(worker: Worker): Batch | undefined {
    const batch = this.#busy.get(worker);
    this.#busy.delete(worker);
    if (batch !== undefined) clearTimeout(batch.timer);
    return batch;
  }

  #giveUp(batch: Batch, error: Error): void {
    this.#queue.delete(batch);
    clearTimeout(batch.timer);
    for (const [worker, running] of this.#busy) {
      if (running !== batch) continue;
      this.#release(worker);
      // Ended in the middle of a match: this is what makes the time limit a limit.
      void worker.terminate();
    }
    batch.reject(error);
    this.#next();
  }
}

let shared: PatternWorkers | undefined;

/** The pool of this process. */
export function patternWorkers(): PatternWorkers {
  shared ??= new PatternWorkers();
  return shared;
}
