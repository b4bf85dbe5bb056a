// The main process's end of a supervisor: start it, give it one command at a time, and be sure that the command is gone when
// its time is up, whatever the supervisor itself does.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { Cgroup } from "./cgroup.js";
import type { Protections } from "./confinement.js";
import {
  FRAME,
  FrameReader,
  type FromMain,
  type ReadyMessage,
  type RunMessage,
  type StartMessage,
} from "./messages.js";
import { endDescendants, livingDescendants } from "./processes.js";

const START_TIMEOUT_MS = 20_000;
/** A killed command that has not gone by then is taken down together with its supervisor. */
const KILL_GRACE_MS = 2000;
const MAX_STDERR_CHARS = 4000;

export type OutputStream = "stdout" | "stderr";

export interface Ending {
  readonly kind: "exit" | "failed" | "lost";
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly truncated: boolean;
  readonly timedOut: boolean;
  readonly aborted: boolean;
  /** Why it failed or was lost. */
  readonly reason: string;
}

export interface RunHooks {
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly onOutput: ((stream: OutputStream, chunk: Buffer) => void) | undefined;
}

interface Active {
  readonly id: number;
  readonly message: RunMessage;
  readonly hooks: RunHooks;
  readonly chunks: Record<OutputStream, Buffer[]>;
  readonly finish: (ending: Ending) => void;
  timedOut: boolean;
  aborted: boolean;
  /** How the first process ended, as soon as it is known. */
  exited: ExitFacts | undefined;
  sweeping: Promise<boolean>;
  timer: NodeJS.Timeout;
  grace: NodeJS.Timeout | undefined;
  unlisten: () => void;
}

export class SupervisorFailed extends Error {
  readonly code = "SANDBOX_UNAVAILABLE";
}

export class Supervisor {
  readonly scratch: string;
  readonly #found: Protections;
  readonly #child: ChildProcess;
  readonly #reader: FrameReader;
  readonly #stderr: () => string;
  #cgroup: Cgroup | undefined;
  #active: Active | undefined;
  #cleaning: ((isClean: boolean) => void) | undefined;
  #nextId = 1;
  #alive = true;

  private constructor(child: ChildProcess, reader: FrameReader, ready: ReadyMessage, stderr: () => string) {
    this.#found = ready.protections;
    this.scratch = ready.scratch;
    this.#child = child;
    this.#reader = reader;
    this.#stderr = stderr;
    child.stdout?.removeAllListeners("data");
    child.stdout?.on("data", (chunk: Buffer) => this.#receive(chunk));
    child.removeAllListeners("exit");
    child.on("exit", () => this.#lost());
    this.#hold(false);
  }

  /** `argv` starts the supervisor's program. Throws SupervisorFailed with the reason it gave. */
  static async start(argv: readonly string[], message: StartMessage): Promise<Supervisor> {
    const [file = "", ...args] = argv;
    const child = spawn(file, args, { stdio: ["pipe", "pipe", "pipe"], env: {}, detached: true });
    let stderr = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      stderr = (stderr + chunk.toString()).slice(-MAX_STDERR_CHARS);
    });
    child.stdin?.on("error", () => undefined);
    const reader = new FrameReader();
    const ready = new Promise<ReadyMessage>((resolve, reject) => {
      child.stdout?.on("data", (chunk: Buffer) =>
        reader.push(chunk, (_, payload) => resolve(JSON.parse(payload.toString()) as ReadyMessage)),
      );
      child.on("error", (error) => reject(new SupervisorFailed(error.message)));
      child.on("exit", () => reject(new SupervisorFailed(stderr.trim() || "the supervisor ended at once")));
    });
    const timer = setTimeout(() => child.kill("SIGKILL"), START_TIMEOUT_MS);
    try {
      child.stdin?.write(`${JSON.stringify(message)}\n`);
      return new Supervisor(child, reader, await ready, () => stderr);
    } finally {
      clearTimeout(timer);
    }
  }

  get protections(): Protections {
    if (this.#cgroup === undefined) return this.#found;
    const processTree = this.#found.processTree === "pid-namespace" ? "pid-namespace" : "cgroup";
    return { ...this.#found, processTree, cgroup: this.#cgroup.controllers };
  }

  /** INVARIANT: no command has run yet, so everything that ever will is inside. */
  attach(cgroup: Cgroup): void {
    const own = this.#child.pid === undefined ? [] : [this.#child.pid, ...livingDescendants(this.#child.pid)];
    if (own.every((pid) => cgroup.add(pid))) this.#cgroup = cgroup;
    else void cgroup.remove();
  }

  get cgroup(): Cgroup | undefined {
    return this.#cgroup;
  }

  get alive(): boolean {
    return this.#alive;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  run(command: Omit<RunMessage, "type" | "id">, hooks: RunHooks): Promise<Ending> {
    if (this.#active !== undefined || !this.#alive) throw new SupervisorFailed("the supervisor is not free");
    const id = this.#nextId++;
    const message: RunMessage = { ...command, type: "run", id };
    this.#hold(true);
    return new Promise((finish) => {
      const abort = (): void => this.#stop("aborted");
      hooks.signal?.addEventListener("abort", abort, { once: true });
      this.#active = {
        id,
        message,
        hooks,
        finish,
        chunks: { stdout: [], stderr: [] },
        timedOut: false,
        aborted: false,
        exited: undefined,
        sweeping: Promise.resolve(true),
        timer: setTimeout(() => this.#stop("timedOut"), hooks.timeoutMs),
        grace: undefined,
        unlisten: () => hooks.signal?.removeEventListener("abort", abort),
      };
      this.#send(message);
      if (hooks.signal?.aborted === true) abort();
    });
  }

  /** True when the supervisor can take another command: no process and no file of the last one is left. */
  async clean(): Promise<boolean> {
    if (!this.#alive) return false;
    const done = new Promise<boolean>((resolve) => {
      this.#cleaning = resolve;
    });
    const timer = setTimeout(() => this.#cleaning?.(false), KILL_GRACE_MS);
    this.#send({ type: "clean", id: this.#nextId });
    const isClean = await done;
    clearTimeout(timer);
    this.#cleaning = undefined;
    this.#hold(false);
    return isClean && this.#alive;
  }

  async close(): Promise<void> {
    if (this.#alive) {
      this.#child.stdin?.end();
      const timer = setTimeout(() => this.#takeDown(), KILL_GRACE_MS);
      if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, "exit");
      clearTimeout(timer);
    }
    await this.#cgroup?.remove();
  }

  /** An idle supervisor does not keep the host from ending. */
  #hold(busy: boolean): void {
    const pipes = [this.#child.stdin, this.#child.stdout, this.#child.stderr] as unknown as {
      ref(): void;
      unref(): void;
    }[];
    for (const thing of [this.#child, ...pipes]) {
      if (busy) thing.ref();
      else thing.unref();
    }
  }

  #send(message: FromMain): void {
    this.#child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  #stop(why: "timedOut" | "aborted"): void {
    const active = this.#active;
    if (active === undefined || active.grace !== undefined) return;
    active[why] = true;
    this.#send({ type: "kill", id: active.id });
    active.grace = setTimeout(() => this.#takeDown(), KILL_GRACE_MS);
  }

  #takeDown(): void {
    this.#cgroup?.kill();
    if (this.#child.pid !== undefined && this.protections.processTree === "subreaper")
      void endDescendants(this.#child.pid);
    this.#child.kill("SIGKILL");
  }

  #receive(chunk: Buffer): void {
    try {
      this.#reader.push(chunk, (type, payload) => this.#frame(type, payload));
    } catch {
      this.#takeDown();
    }
  }

  #frame(type: number, payload: Buffer): void {
    const active = this.#active;
    switch (type) {
      case FRAME.stdout:
        return this.#output("stdout", payload);
      case FRAME.stderr:
        return this.#output("stderr", payload);
      case FRAME.cleaned:
        this.#cleaning?.((JSON.parse(payload.toString()) as { isClean: boolean }).isClean);
        return;
      case FRAME.started: {
        // The first process ended; others may hold its pipes open.
        const notice = JSON.parse(payload.toString()) as { exited?: ExitFacts };
        if (active === undefined || notice.exited === undefined) return;
        active.exited = notice.exited;
        active.sweeping = this.#sweep();
        return;
      }
      case FRAME.exit:
        return this.#ended({ kind: "exit", reason: "", ...(JSON.parse(payload.toString()) as ExitFacts) });
      case FRAME.failed:
        return this.#ended({ kind: "failed", ...NO_EXIT, ...(JSON.parse(payload.toString()) as { reason: string }) });
      default:
        this.#takeDown();
    }
  }

  #output(stream: OutputStream, payload: Buffer): void {
    // The payload is a view into a buffer that will be reused.
    const chunk = Buffer.from(payload);
    this.#active?.chunks[stream].push(chunk);
    try {
      this.#active?.hooks.onOutput?.(stream, chunk);
    } catch {
      // A listener that fails does not end the command.
    }
  }

  /** Nothing to do where the kernel ends the tree with its first process. */
  #sweep(): Promise<boolean> {
    const pid = this.#child.pid;
    switch (this.protections.processTree) {
      case "pid-namespace":
      case "process-group":
        return Promise.resolve(true);
      case "subreaper":
        return pid === undefined ? Promise.resolve(true) : endDescendants(pid);
      case "cgroup":
        // cgroup.kill ends the supervisor as well, and another takes its place.
        return this.#cgroup === undefined ? Promise.resolve(true) : endCgroup(this.#cgroup, pid);
    }
  }

  #ended(facts: ExitFacts & { kind: Ending["kind"]; reason: string }): void {
    const active = this.#active;
    if (active === undefined) return;
    void active.sweeping.then(() => this.#finish(active, facts));
  }

  #finish(active: Active, facts: ExitFacts & { kind: Ending["kind"]; reason: string }): void {
    if (this.#active !== active) return;
    this.#active = undefined;
    clearTimeout(active.timer);
    clearTimeout(active.grace);
    active.unlisten();
    active.finish({
      kind: facts.kind,
      exitCode: facts.exitCode,
      signal: facts.signal,
      truncated: facts.truncated,
      reason: facts.reason,
      stdout: Buffer.concat(active.chunks.stdout),
      stderr: Buffer.concat(active.chunks.stderr),
      timedOut: active.timedOut,
      aborted: active.aborted,
    });
  }

  #lost(): void {
    this.#alive = false;
    this.#cleaning?.(false);
    const exited = this.#active?.exited;
    if (exited !== undefined) this.#ended({ kind: "exit", reason: "", ...exited });
    else this.#ended({ kind: "lost", ...NO_EXIT, reason: this.#stderr().trim().slice(-500) || "the supervisor ended" });
    void this.#cgroup?.remove();
  }
}

const CGROUP_ROUNDS = 400;
const CGROUP_ROUND_MS = 5;

/** Killing is a request; the answer is an empty list. */
async function endCgroup(cgroup: Cgroup, supervisorPid: number | undefined): Promise<boolean> {
  const others = (): boolean => cgroup.members().some((member) => member !== supervisorPid);
  if (!others()) return true;
  cgroup.kill();
  for (let round = 0; round < CGROUP_ROUNDS && others(); round++) await sleep(CGROUP_ROUND_MS);
  return !others();
}

interface ExitFacts {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly truncated: boolean;
}

const NO_EXIT: ExitFacts = { exitCode: null, signal: null, truncated: false };
