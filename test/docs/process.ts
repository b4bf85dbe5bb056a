// One program, run to its end or to its time limit, with everything it started.

import { type ChildProcess, spawn } from "node:child_process";

export interface Ended {
  readonly code: number | null;
  readonly output: string;
  readonly timedOut: boolean;
}

export interface RunOptions {
  cwd: string;
  env?: Readonly<Record<string, string>>;
  timeoutMs: number;
}

/** In a process group of its own, so that nothing it starts is left behind. Its temporary files lie in its folder. */
export function start(command: readonly string[], { cwd, env }: Omit<RunOptions, "timeoutMs">): ChildProcess {
  const [program = "", ...args] = command;
  return spawn(program, args, {
    cwd,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TMPDIR: cwd, NO_COLOR: "1", ...env },
  });
}

export function stop(child: ChildProcess, signal: NodeJS.Signals): void {
  try {
    process.kill(-(child.pid as number), signal);
  } catch {
    // It has ended by itself.
  }
}

export function run(command: readonly string[], options: RunOptions): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = start(command, options);
    const output: string[] = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk) => output.push(String(chunk)));
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      stop(child, "SIGKILL");
    }, options.timeoutMs);
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.once("close", (code) => {
      clearTimeout(timer);
      stop(child, "SIGKILL");
      resolve({ code, output: output.join(""), timedOut });
    });
  });
}
