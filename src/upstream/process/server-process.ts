// A server as a process: a group of its own, a clean environment, its last words kept, and gone when we say so,
// together with everything it started.

import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Duplex, Readable, Writable } from "node:stream";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  LAUNCH_FD,
  launchReport,
  prepareServerLaunch,
  type ServerLaunch,
  type ServerProtections,
  unprotected,
} from "../../host/index.js";
import { Fault, readWithin, type TimeShare } from "../../mcp/index.js";
import { defaultEnvironment } from "../../mcp/transports/index.js";
import type { Containment, StdioTarget } from "../types.js";
import { findCommand } from "./command.js";
import { makeContainer, type ProcessContainer, signal } from "./container.js";
import { StderrTail } from "./tail.js";

export interface ProcessOptions {
  readonly leaveMs: number;
  readonly graceMs: number;
  readonly stderrBytes: number;
  readonly share?: TimeShare | undefined;
}

/** Servers that must not outlive us. */
const alive = new Map<number, ProcessContainer>();

function killAll(): void {
  for (const [pid, container] of alive) container.kill(pid);
}

/** After SIGKILL the kernel takes a moment, and for a process in the middle of a device call rather long. */
const KILL_MS = 10_000;

export class ServerProcess {
  /** Resolves when the process itself has ended, with a sentence about how. */
  readonly ended: Promise<string>;
  readonly #process: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #container: ProcessContainer;
  readonly #options: ProcessOptions;
  readonly #stderr: StderrTail;
  #protections: ServerProtections;
  #isOver = false;
  #stopping: Promise<void> | undefined;

  static async start(target: StdioTarget, options: ProcessOptions): Promise<ServerProcess> {
    const env = { ...defaultEnvironment(), ...target.env };
    const command = findCommand(target.command, target.cwd, env.PATH);
    if (command === undefined) throw cannotStart(target.command, "there is no such program");
    const argv = [command, ...(target.args ?? [])];
    const cwd = resolve(target.cwd ?? ".");
    const sandbox = target.sandbox ?? { mode: "off", hidden: [], readOnly: [] };
    const launch = sandbox.mode === "off" ? undefined : await prepareServerLaunch(sandbox, { argv, env, cwd });
    if (launch !== undefined && "unavailable" in launch) {
      if (sandbox.mode === "required") throw cannotStart(target.command, `${launch.unavailable}, and ${REQUIRED}`);
      return ServerProcess.#started(
        { target, argv, env },
        undefined,
        unprotected(sandbox.mode, [launch.unavailable]),
        options,
      );
    }
    return ServerProcess.#started({ target, argv, env }, launch, unprotected(sandbox.mode, []), options);
  }

  static async #started(
    command: Command,
    launch: ServerLaunch | undefined,
    protections: ServerProtections,
    options: ProcessOptions,
  ): Promise<ServerProcess> {
    const { target } = command;
    const container = await makeContainer(target.containment, launch?.namespaces);
    const started = new ServerProcess(command, launch, protections, container, options);
    await started.#spawned(target.command);
    if (launch !== undefined) await started.#launched(target.command, launch, container);
    return started;
  }

  private constructor(
    { target, argv, env }: Command,
    launch: ServerLaunch | undefined,
    protections: ServerProtections,
    container: ProcessContainer,
    options: ProcessOptions,
  ) {
    const [program = "", ...args] = [...container.prefix, ...(launch?.program ?? argv)];
    this.#protections = protections;
    this.#container = container;
    this.#options = options;
    this.#stderr = new StderrTail(options.stderrBytes);
    this.#process = spawn(program, args, {
      ...(target.cwd === undefined ? {} : { cwd: target.cwd }),
      // A launcher gets the server's environment in its message: `NODE_OPTIONS` in it is not meant for the launcher.
      env: { ...(launch === undefined ? env : { PATH: "/usr/bin:/bin" }), ...container.env },
      stdio: ["pipe", "pipe", "pipe", ...(launch === undefined ? [] : ["pipe" as const])],
      shell: false,
      windowsHide: true,
      detached: process.platform !== "win32",
    }) as ChildProcessByStdio<Writable, Readable, Readable>;
    const { stderr } = this.#process;
    stderr.on("data", (chunk: Buffer) =>
      readWithin(options.share, stderr, chunk.length, () => this.#stderr.push(chunk)),
    );
    // Writing to a server that is gone is no failure of ours; that it is gone is noticed by its end.
    for (const stream of [this.#process.stdin, this.#process.stdout, this.#process.stderr]) {
      stream.on("error", () => {});
    }
    this.ended = new Promise((settle) => {
      const over = (how: string): void => {
        this.#isOver = true;
        settle(how);
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
    return this.#container.kind;
  }
  /** What is in force between the server and the rest of the machine. */
  get protections(): ServerProtections {
    return this.#protections;
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
    this.#container.kill(pid);
    await this.#overWithin(KILL_MS);
    this.#process.stdin.destroy();
    this.#process.stdout.destroy();
    this.#process.stderr.destroy();
    await this.#container.remove();
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
      await new Promise<void>((settle, reject) => {
        this.#process.once("spawn", settle);
        this.#process.once("error", reject);
      });
    } catch (error) {
      await this.#container.remove();
      throw cannotStart(command, (error as Error).message, error);
    }
    const pid = this.#process.pid as number;
    if (alive.size === 0) process.on("exit", killAll);
    alive.set(pid, this.#container);
  }

  /** The launcher becomes the server once it has reported what is in force. */
  async #launched(command: string, { message }: ServerLaunch, container: ProcessContainer): Promise<void> {
    const channel = this.#process.stdio[LAUNCH_FD] as unknown as Duplex;
    const report = await launchReport(channel, { ...message, env: { ...message.env, ...container.env } });
    if (report.kind === "ready") {
      this.#protections = report.protections;
      return;
    }
    this.#container.kill(this.#process.pid as number);
    await this.stop();
    throw cannotStart(command, `${report.reason}${this.lastWords === "" ? "" : ` (${this.lastWords})`}`);
  }
}

interface Command {
  readonly target: StdioTarget;
  /** The program, found, and its arguments. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

const REQUIRED = "its entry says `sandbox: required`; set `sandbox: preferred` to run it all the same";

function cannotStart(command: string, why: string, cause?: unknown): Fault {
  return new Fault("Unavailable", `\`${command}\` cannot be started: ${why}`, {
    extra: { delivered: false },
    ...(cause === undefined ? {} : { cause }),
  });
}
