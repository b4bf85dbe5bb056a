// A child process that is really gone when we say so: its own process group, ended as a whole.

import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

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

/** False when nobody is left in the group. Where there are no process groups (Windows) it is the child alone. */
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

export class Child {
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
