// A server as a process: a group of its own, a clean environment, its last words kept, and gone when we say so,
// together with everything it started.

import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { Fault } from "../../protocol/index.js";
import { defaultEnvironment } from "../../transport/index.js";
import type { Containment, StdioTarget } from "../types.js";
import { findCommand } from "./command.js";
import { makePen, type Pen, signal } from "./pen.js";
import { Tail } from "./tail.js";

export interface ProcessOptions {
  readonly leaveMs: number;
  readonly graceMs: number;
  readonly stderrBytes: number;
}

/** Servers that must not outlive us. */
const alive = new Map<number, Pen>();

function killAll(): void {
  for (const [pid, pen] of alive) pen.kill(pid);
}

/** After SIGKILL the kernel takes a moment, and for a process in the middle of a device call rather long. */
const KILL_MS = 10_000;

export class ServerProcess {
  /** Resolves when the process itself has ended, with a sentence about how. */
  readonly ended: Promise<string>;
  readonly #process: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #pen: Pen;
  readonly #options: ProcessOptions;
  readonly #stderr: Tail;
  #isOver = false;
  #stopping: Promise<void> | undefined;

  static async start(target: StdioTarget, options: ProcessOptions): Promise<ServerProcess> {
    const env = { ...defaultEnvironment(), ...target.env };
    const command = findCommand(target.command, target.cwd, env.PATH);
    if (command === undefined) throw cannotStart(target.command, "there is no such program");
    const pen = await makePen(target.containment);
    const started = new ServerProcess(command, target, env, pen, options);
    await started.#spawned(target.command);
    return started;
  }

  private constructor(
    command: string,
    target: StdioTarget,
    env: Record<string, string>,
    pen: Pen,
    options: ProcessOptions,
  ) {
    const [program = command, ...args] = [...pen.prefix, command, ...(target.args ?? [])];
    this.#pen = pen;
    this.#options = options;
    this.#stderr = new Tail(options.stderrBytes);
    this.#process = spawn(program, args, {
      ...(target.cwd === undefined ? {} : { cwd: target.cwd }),
      env: { ...env, ...pen.env },
      stdio: ["pipe", "pipe", "pipe"],
      shell: false,
      windowsHide: true,
      detached: process.platform !== "win32",
    });
    this.#process.stderr.on("data", (chunk: Buffer) => this.#stderr.push(chunk));
    // Writing to a server that is gone is no failure of ours; that it is gone is noticed by its end.
    for (const stream of [this.#process.stdin, this.#process.stdout, this.#process.stderr]) {
      stream.on("error", () => {});
    }
    this.ended = new Promise((resolve) => {
      const over = (how: string): void => {
        this.#isOver = true;
        resolve(how);
      };
      this.#process.on("error", (error) => over(error.message));
      this.#process.once("exit", (code, signalName) =>
        over(signalName === null ? `exit code ${code}` : `signal ${signalName}`),
      );
    });
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }
  get stdin(): Writable {
    return this.#process.stdin;
  }
  get stdout(): Readable {
    return this.#process.stdout;
  }
  get containment(): Containment {
    return this.#pen.kind;
  }
  /** The end of what the server wrote to stderr. */
  get lastWords(): string {
    return this.#stderr.text();
  }

  /** Closes its input, then asks, then insists; and ends whatever it started and left behind. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    const pid = this.#process.pid;
    if (pid === undefined) return;
    const { leaveMs, graceMs } = this.#options;
    this.#process.stdin.end();
    await this.#overWithin(leaveMs);
    if (!this.#isOver) {
      signal(process.platform === "win32" ? pid : -pid, "SIGTERM");
      await this.#overWithin(graceMs);
    }
    this.#pen.kill(pid);
    await this.#overWithin(KILL_MS);
    this.#process.stdin.destroy();
    this.#process.stdout.destroy();
    this.#process.stderr.destroy();
    await this.#pen.remove();
    alive.delete(pid);
    if (alive.size === 0) process.off("exit", killAll);
  }

  async #overWithin(ms: number): Promise<void> {
    if (this.#isOver) return;
    const enough = new AbortController();
    const late = sleep(ms, undefined, { signal: enough.signal }).catch(() => {});
    await Promise.race([this.ended, late]);
    enough.abort();
  }

  async #spawned(command: string): Promise<void> {
    try {
      await new Promise<void>((resolve, reject) => {
        this.#process.once("spawn", resolve);
        this.#process.once("error", reject);
      });
    } catch (error) {
      await this.#pen.remove();
      throw cannotStart(command, (error as Error).message, error);
    }
    const pid = this.#process.pid as number;
    if (alive.size === 0) process.on("exit", killAll);
    alive.set(pid, this.#pen);
  }
}

function cannotStart(command: string, why: string, cause?: unknown): Fault {
  return new Fault("Unavailable", `\`${command}\` cannot be started: ${why}`, {
    extra: { delivered: false },
    ...(cause === undefined ? {} : { cause }),
  });
}
