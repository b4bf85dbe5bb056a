// A server as a process: a group of its own, a clean environment, its end of stderr kept, and gone when we say so,
// together with everything it started.

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, isAbsolute, join, resolve, sep } from "node:path";
import type { Duplex, Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Containment,
  LAUNCH_FD,
  launchReport,
  makeContainer,
  type ProcessContainer,
  prepareServerLaunch,
  type ServerLaunch,
  type ServerProtections,
  signalProcess,
  unprotected,
} from "../../host/index.js";
import { Fault, readWithin, type TimeShare } from "../../mcp/index.js";
import { defaultEnvironment } from "../../mcp/transports/index.js";
import type { StdioTarget } from "../types.js";
import { Egress } from "./egress.js";
import { attachObserver, type ServerObserver } from "./observer.js";

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
  readonly #egress: Egress | undefined;
  #observer: ServerObserver | undefined;
  #protections: ServerProtections;
  #isOver = false;
  #exit: string | undefined;
  #stopping: Promise<void> | undefined;

  static async start(target: StdioTarget, options: ProcessOptions): Promise<ServerProcess> {
    const env = { ...defaultEnvironment(), ...target.env };
    const command = findCommand(target.command, target.cwd, env.PATH);
    if (command === undefined) throw cannotStart(target.command, "there is no such program");
    const argv = [command, ...(target.args ?? [])];
    const cwd = resolve(target.cwd ?? ".");
    const sandbox = target.sandbox ?? { mode: "off", hidden: [], readOnly: [] };
    const launch = sandbox.mode === "off" ? undefined : await prepareServerLaunch(sandbox, { argv, env, cwd });
    if (launch !== undefined && "refused" in launch) throw cannotStart(target.command, launch.refused);
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
    const container = await makeContainer(target.containment, launch?.namespaces, launch?.message.strict?.profile);
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
    const { profile, network } = launch?.message.strict ?? {};
    const hosts = profile?.network === "off" || profile?.network === "on" ? [] : profile?.network;
    this.#egress = network === "hosts" && hosts !== undefined ? new Egress(hosts) : undefined;
    this.#process = spawn(program, args, {
      ...(target.cwd === undefined ? {} : { cwd: target.cwd }),
      // A launcher gets the server's environment in its message: `NODE_OPTIONS` in it is not meant for the launcher.
      env: { ...(launch === undefined ? env : { PATH: "/usr/bin:/bin" }), ...container.env },
      stdio: [
        ...(["pipe", "pipe", "pipe"] as const),
        ...(launch === undefined ? [] : ["pipe" as const]),
        // By this one the launcher hands over its listening sockets.
        ...(this.#egress === undefined ? [] : ["ipc" as const]),
      ],
      shell: false,
      windowsHide: true,
      detached: process.platform !== "win32",
    }) as ChildProcessByStdio<Writable, Readable, Readable>;
    const { stderr } = this.#process;
    stderr.on("data", (chunk: Buffer) =>
      readWithin(options.share, stderr, chunk.length, () => this.#stderr.push(chunk)),
    );
    this.#process.on("message", (_, socket) => {
      this.#egress?.take(socket);
      this.#process.send("taken", () => {});
    });
    // Writing to a server that has ended is not an error here: its end is reported by itself.
    for (const stream of [this.#process.stdin, this.#process.stdout, this.#process.stderr]) {
      stream.on("error", () => {});
    }
    this.ended = new Promise((settle) => {
      const over = (how: string): void => {
        this.#isOver = true;
        if (this.#stopping === undefined) this.#exit = how;
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
    if (this.#egress === undefined && this.#observer === undefined) return this.#protections;
    const destinations = this.#egress?.destinations ?? [];
    return { ...this.#protections, destinations, touched: this.#observer?.touched };
  }
  /** How it ended by itself; undefined while it runs, and for one that was stopped. */
  get exit(): string | undefined {
    return this.#exit;
  }
  /** The end of what the server wrote to stderr. */
  get stderrTail(): string {
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
      signalProcess(process.platform === "win32" ? pid : -pid, "SIGTERM");
      await this.#overWithin(graceMs);
    }
    this.#container.kill(pid);
    await this.#overWithin(KILL_MS);
    this.#process.stdin.destroy();
    this.#process.stdout.destroy();
    this.#process.stderr.destroy();
    this.#egress?.close();
    this.#observer?.close();
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
    const sent = { ...message, env: { ...message.env, ...container.env }, limitedByCgroup: container.limits };
    const report = await launchReport(channel, sent, (fd) => {
      this.#observer = message.strict && attachObserver(this.#process.pid as number, fd, message.strict);
      return this.#observer !== undefined;
    });
    if (report.kind === "ready") {
      this.#protections = report.protections;
      return;
    }
    this.#container.kill(this.#process.pid as number);
    await this.stop();
    throw cannotStart(command, `${report.reason}${this.stderrTail === "" ? "" : ` (${this.stderrTail})`}`);
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

// Finding the program ourselves: behind a launcher a missing one would look like a server that died.

/** The path to start, or undefined when there is none. On Windows the system's own search knows better. */
export function findCommand(command: string, cwd: string | undefined, path: string | undefined): string | undefined {
  if (process.platform === "win32") return command;
  if (command.includes(sep)) return runnable(isAbsolute(command) ? command : resolve(cwd ?? ".", command));
  for (const directory of (path ?? "").split(delimiter)) {
    if (directory === "") continue;
    const found = runnable(join(directory, command));
    if (found !== undefined) return found;
  }
  return undefined;
}

function runnable(path: string): string | undefined {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile() ? path : undefined;
  } catch {
    return undefined;
  }
}

// The last so many bytes of a stream, as text.

export class StderrTail {
  readonly #max: number;
  #kept: Buffer = Buffer.alloc(0);

  constructor(maxBytes: number) {
    this.#max = maxBytes;
  }

  push(chunk: Buffer): void {
    const joined = chunk.length >= this.#max ? chunk : Buffer.concat([this.#kept, chunk]);
    // Copied when cut, so that a small remainder does not keep a large chunk in memory.
    this.#kept = joined.length > this.#max ? Buffer.from(joined.subarray(joined.length - this.#max)) : joined;
  }

  text(): string {
    return this.#kept.toString("utf8").trim();
  }
}
