// stdio: one text a line. Serving on our own stdin and stdout, calling a server that we start ourselves.

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { userInfo } from "node:os";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ByteBudget } from "../index.js";
import { linkLines, StreamPort, serveLines } from "./lines.js";
import { closeChannels, DEFAULT_GRACE_MS, everyMs } from "./listen.js";
import { type ClientLink, NOT_STARTED } from "./outbox.js";
import {
  type ClientEvents,
  type ClientTransport,
  type Listener,
  resolveLimits,
  type SendOptions,
  type Sent,
  TransportError,
  type TransportHandler,
  type TransportLimits,
} from "./types.js";

export interface StdioServerOptions {
  input?: Readable;
  output?: Writable;
  limits?: Partial<TransportLimits>;
  /** After stdin has ended, exchanges under way may take this long; 30 s unless said. */
  lingerMs?: number;
}

export interface StdioListener extends Listener {
  /** Resolves when the peer has gone, or after `close`. */
  readonly closed: Promise<void>;
}

export async function listenStdio(handler: TransportHandler, options: StdioServerOptions = {}): Promise<StdioListener> {
  const { input = process.stdin, output = process.stdout } = options;
  const limits = resolveLimits(options.limits, { idleMs: 0 });
  const port = output === process.stdout ? new StdoutPort(input) : new StreamPort(input, output);
  const channel = serveLines(input, output, {
    peer: { transport: "stdio", address: localUser() },
    handler,
    limits,
    budget: new ByteBudget(limits.maxPartialBytes),
    lingerMs: options.lingerMs ?? 30_000,
    port,
  });
  const timer = everyMs(limits.idleMs || 20_000, (now) => channel.sweep(now));
  const closed = new Promise<void>((resolve) => channel.onClose(resolve)).then(() => clearInterval(timer));
  return {
    url: "stdio:",
    closed,
    get connections() {
      return channel.closed ? 0 : 1;
    },
    async close(graceMs = DEFAULT_GRACE_MS) {
      await closeChannels([channel], graceMs);
      await closed;
    },
  };
}

function localUser(): string {
  try {
    return userInfo().username;
  } catch {
    // A process in a container may run under an id that has no name.
    return `uid-${process.getuid?.() ?? "unknown"}`;
  }
}

/**
 * Our own stdout. While we serve on it, it carries JSON-RPC and nothing else: whatever other code prints there, a
 * forgotten `console.log` for one, goes to stderr instead.
 */
class StdoutPort extends StreamPort {
  readonly #input: Readable;

  constructor(input: Readable) {
    const write = process.stdout.write.bind(process.stdout);
    super(input, process.stdout, write);
    this.#input = input;
    process.stdout.write = process.stderr.write.bind(process.stderr);
  }

  /** stdout itself cannot be closed; letting go of stdin lets the process end. What others print stays on stderr. */
  override end(): void {
    this.#input.pause();
    // A file as stdin has no handle to let go of.
    if (this.#input === process.stdin) (process.stdin as { unref?: () => void }).unref?.();
  }
  override destroy(): void {
    this.#input.destroy();
  }
}

export interface StdioClientOptions extends ChildOptions {
  limits?: Partial<TransportLimits>;
}

export function stdioClient(options: StdioClientOptions): ClientTransport {
  return new StdioClient(options);
}

/** What a child wrote before it ended may still be in the pipe; but a grandchild may hold the pipe open for ever. */
const LAST_OUTPUT_MS = 500;

class StdioClient implements ClientTransport {
  readonly kind = "stdio";
  readonly #options: StdioClientOptions;
  #child: Child | undefined;
  #link: ClientLink | undefined;

  constructor(options: StdioClientOptions) {
    this.#options = options;
  }

  async start(events: ClientEvents): Promise<void> {
    const { command } = this.#options;
    const limits = resolveLimits(this.#options.limits);
    const child = new Child(this.#options);
    try {
      await child.spawned();
    } catch (error) {
      throw new TransportError("unreachable", `cannot start \`${command}\`: ${(error as Error).message}`, error);
    }
    this.#child = child;
    this.#link = linkLines(child.stdout, child.stdin, events, limits);
    void this.#watch(child, this.#link);
  }

  async send(text: string, options?: SendOptions): Promise<Sent> {
    if (this.#link === undefined) throw new TransportError("closed", NOT_STARTED);
    return this.#link.send(text, options);
  }

  async close(): Promise<void> {
    this.#link?.gone();
    await this.#child?.stop();
  }

  async #watch(child: Child, link: ClientLink): Promise<void> {
    let how = "it closed its stdin or stdout";
    const ended = child.ended.then((outcome) => {
      how = outcome;
    });
    const closed = (stream: Readable | Writable) => new Promise<void>((resolve) => stream.once("close", resolve));
    await Promise.race([ended, closed(child.stdin), closed(child.stdout)]);
    await Promise.race([Promise.all([ended, child.silent]), sleep(LAST_OUTPUT_MS)]);
    const words = child.lastWords === "" ? "" : `; it said: ${child.lastWords}`;
    link.gone(new TransportError("closed", `\`${this.#options.command}\` ended (${how})${words}`));
    await child.stop();
  }
}

export interface ChildOptions {
  command: string;
  args?: readonly string[];
  cwd?: string;
  /** The whole environment of the child; `defaultEnvironment()` unless given. */
  env?: Readonly<Record<string, string>>;
  /** What the child writes to stderr, as it comes. The last of it is kept for error messages in any case. */
  onStderr?: (text: string) => void;
  /** After its stdin closed the child may take this long to leave by itself; 1 s unless said. */
  leaveMs?: number;
  /** Between SIGTERM and SIGKILL; 2 s unless said. */
  graceMs?: number;
}

/** What a program needs to start, and nothing that could be a secret. */
const PASSED_ON =
  process.platform === "win32"
    ? ["APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"].concat([
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "USERNAME",
        "USERPROFILE",
      ])
    : ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

export function defaultEnvironment(): Record<string, string> {
  const env: Record<string, string> = {};
  for (const name of PASSED_ON) {
    const value = process.env[name];
    // A value that starts like this is a function exported by a shell.
    if (value !== undefined && !value.startsWith("()")) env[name] = value;
  }
  return env;
}

const STDERR_KEPT = 8 * 1024;

/** Groups that must not outlive us. */
const alive = new Set<number>();

function killAll(): void {
  for (const pid of alive) signalGroup(pid, "SIGKILL");
}

/** False when no process is left in the group. Where there are no process groups (Windows) it is the child alone. */
function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(process.platform === "win32" ? pid : -pid, signal);
  } catch {
    return false;
  }
}

const LOOK_EVERY_MS = 20;

async function goneWithin(pid: number, timeoutMs: number): Promise<boolean> {
  const until = performance.now() + timeoutMs;
  while (signalGroup(pid, 0)) {
    if (performance.now() >= until) return false;
    await sleep(LOOK_EVERY_MS);
  }
  return true;
}

class Child {
  /** Resolves when the process itself has ended, with a sentence about how. */
  readonly ended: Promise<string>;
  /** Resolves when its stdout and stderr have both been read to the end. */
  readonly silent: Promise<unknown>;
  readonly #options: ChildOptions;
  readonly #process: ChildProcessByStdio<Writable, Readable, Readable>;
  #stderr = "";
  #spawned = false;

  constructor(options: ChildOptions) {
    this.#options = options;
    this.#process = spawn(options.command, [...(options.args ?? [])], {
      cwd: options.cwd,
      env: { ...(options.env ?? defaultEnvironment()) },
      stdio: ["pipe", "pipe", "pipe"],
      shell: false,
      windowsHide: true,
      detached: process.platform !== "win32",
    });
    this.#process.stderr.setEncoding("utf8").on("data", (text: string) => this.#keepStderr(text));
    this.#process.stdin.on("error", () => {});
    const closed = (stream: Readable) => new Promise<void>((resolve) => stream.once("close", resolve));
    this.silent = Promise.all([closed(this.#process.stdout), closed(this.#process.stderr)]);
    this.ended = new Promise((resolve) => {
      this.#process.on("error", (error) => resolve(error.message));
      this.#process.once("exit", (code, signal) => {
        resolve(signal === null ? `exit code ${code}` : `signal ${signal}`);
      });
    });
  }

  get stdin(): Writable {
    return this.#process.stdin;
  }

  get stdout(): Readable {
    return this.#process.stdout;
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** The end of what the child wrote to stderr. */
  get lastWords(): string {
    return this.#stderr.trim();
  }

  /** Resolves when the program runs; rejects when it could not be started. */
  async spawned(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#process.once("spawn", resolve);
      this.#process.once("error", reject);
    });
    this.#spawned = true;
    const { pid } = this.#process;
    if (pid === undefined) return;
    if (alive.size === 0) process.on("exit", killAll);
    alive.add(pid);
  }

  /** Closes stdin, then asks, then insists; the whole group, so that nothing the child started stays behind. */
  async stop(): Promise<void> {
    const { pid } = this.#process;
    if (!this.#spawned || pid === undefined) return;
    const { leaveMs = 1_000, graceMs = 2_000 } = this.#options;
    this.#process.stdin.end();
    if (!(await goneWithin(pid, leaveMs))) signalGroup(pid, "SIGTERM");
    if (!(await goneWithin(pid, graceMs))) signalGroup(pid, "SIGKILL");
    await this.ended;
    alive.delete(pid);
    if (alive.size === 0) process.off("exit", killAll);
    this.#process.stdout.destroy();
    this.#process.stderr.destroy();
  }

  #keepStderr(text: string): void {
    this.#stderr = (this.#stderr + text).slice(-STDERR_KEPT);
    this.#options.onStderr?.(text);
  }
}
