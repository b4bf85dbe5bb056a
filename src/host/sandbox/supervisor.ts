// The supervisor: a small process between the host and the commands. It gives up every right it does not need, then starts
// commands one at a time; what it cannot do, they cannot do. It knows no policy beyond the confinement it was given.
// Its first line of input is the start message; when its input ends, the command it runs ends.

import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import type { EventEmitter } from "node:events";
import {
  accessSync,
  closeSync,
  constants,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { isWithin } from "../paths/mounts.js";
import { errnoName, native } from "../paths/native.js";
import { makePipes, openDirectory } from "./confine/descriptors.js";
import { type Confined, confine, enterPidNamespace } from "./confine/index.js";
import {
  FRAME,
  type FrameType,
  type FromMain,
  frame,
  type ReadyMessage,
  type RunMessage,
  type StartMessage,
} from "./messages.js";
import { livingDescendants, signalProcess } from "./processes.js";

/** Output beyond the cap is thrown away so that the command can finish; beyond this much it is a flood and is ended. */
const FLOOD_FACTOR = 16;
const MIN_FLOOD_BYTES = 16_000_000;

// What is made for a command must be reachable for its user, whatever the host's own habits.
process.umask(0o022);

// Node answers this signal by opening a debugger to any process that connects; a command of the same user can send it.
process.on("SIGUSR1", () => undefined);

let start: StartMessage | undefined;
let confined: Confined | undefined;
let running: { readonly id: number; readonly child: ChildProcess } | undefined;

function send(type: FrameType, payload: Uint8Array | string): boolean {
  return process.stdout.write(frame(type, payload));
}

function sendJson(type: FrameType, payload: object): void {
  send(type, JSON.stringify(payload));
}

const lines = createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
lines.on("line", (line) => receive(JSON.parse(line) as FromMain));
lines.on("close", () => {
  killRunning();
  endAdopted();
  process.exit(0);
});

const MAX_ROUNDS = 200;
const ROUND_MS = 5;

/** The host has ended and ends nothing any more. A killed process leaves its own children to this one, so in rounds. */
function endAdopted(): void {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (let round = 0; round < MAX_ROUNDS; round++) {
    confined?.reapOrphans();
    const children = confined?.children() ?? [];
    if (children.length === 0) return;
    for (const pid of children) signalProcess(pid, "SIGKILL");
    Atomics.wait(pause, 0, 0, ROUND_MS);
  }
}

function receive(message: FromMain): void {
  switch (message.type) {
    case "start":
      start = message;
      confined = confine(message);
      sendJson(FRAME.ready, { protections: confined.protections, scratch: confined.scratch } satisfies ReadyMessage);
      return;
    case "run":
      return run(message);
    case "kill":
      if (running?.id === message.id) killRunning();
      return;
    case "clean":
      return clean(message.id);
  }
}

/** SIGKILL to the first process of a PID namespace ends all of it; without one the group ends and the main process finds the rest. */
function killRunning(): void {
  const pid = running?.child.pid;
  if (pid === undefined) return;
  if (process.platform === "win32") {
    spawn("taskkill", ["/PID", String(pid), "/T", "/F"], { stdio: "ignore" });
    return;
  }
  // bubblewrap ends when its namespace is gone; killed first, it would leave the namespace to die unseen.
  const inside = start?.byBubblewrap === true ? livingDescendants(pid) : [];
  for (const target of inside.length > 0 ? inside : [-pid, pid]) signalProcess(target, "SIGKILL");
}

function run(message: RunMessage): void {
  const { id } = message;
  try {
    const started = startCommand(message);
    running = { id, child: started.child };
    sendJson(FRAME.started, { id, pid: started.child.pid });
    watch(message, started);
  } catch (error) {
    sendJson(FRAME.failed, { id, reason: error instanceof Error ? error.message : String(error) });
  }
}

interface Started {
  readonly child: ChildProcess;
  readonly stdin: Writable | null;
  readonly stdout: Readable | null;
  readonly stderr: Readable | null;
}

function startCommand(message: RunMessage): Started {
  const directory = enterDirectory(message);
  const [file = "", ...args] = message.argv;
  let restore: (() => void) | undefined;
  try {
    if (message.checkVisible) checkVisible(message);
    if (confined?.pidNamespace !== undefined) restore = enterPidNamespace(confined.pidNamespace);
    return spawnWithPipes(file, args, message);
  } finally {
    restore?.();
    process.chdir("/");
    if (directory !== undefined) closeSync(directory);
  }
}

function spawnWithPipes(file: string, args: readonly string[], message: RunMessage): Started {
  const options: SpawnOptions = { env: message.env, detached: true };
  // With nothing to read it gets /dev/null: some programs take a pipe for what they are meant to search.
  const hasInput = message.stdin !== "";
  const filter = message.filter === "" ? [] : [openFilter(message.filter)];
  const pipes = makePipes(hasInput);
  try {
    const stdio: ("ignore" | "pipe" | number)[] = pipes?.stdio ?? [hasInput ? "pipe" : "ignore", "pipe", "pipe"];
    const child = spawn(file, args, { ...options, stdio: [...stdio, ...filter] });
    pipes?.closeTheirs();
    const { stdin, stdout, stderr } = pipes ?? child;
    return { child, stdin: stdin ?? null, stdout, stderr };
  } catch (error) {
    pipes?.destroy();
    throw error;
  } finally {
    for (const fd of filter) closeSync(fd);
  }
}

/** A file without a name: it is gone when bubblewrap has read it. */
function openFilter(base64: string): number {
  const directory = mkdtempSync(join(start?.tmpdir ?? "/tmp", "portcullis-filter-"));
  try {
    writeFileSync(join(directory, "filter"), Buffer.from(base64, "base64"));
    return openSync(join(directory, "filter"), "r");
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Said before the program starts: afterwards it would say so itself, in words about anything but the sandbox. */
function checkVisible({ executable, needs }: RunMessage): void {
  const [own] = unreachable([executable], constants.X_OK);
  if (own !== undefined) {
    throw new Error(
      own.closed
        ? `${executable} lies in a directory that is closed to the command's user; install it where every user may read, for example below /usr/local`
        : `${executable} cannot be run inside the sandbox; list it and what it needs under mounts`,
    );
  }
  const missing = unreachable(needs, constants.R_OK);
  if (missing.length === 0) return;
  const names = missing.map(({ path }) => path.replace(/\/package\.json$/, "")).join(" and ");
  throw new Error(
    missing.some(({ closed }) => closed)
      ? `${executable} needs ${names}, closed to the command's user; install it where every user may read, for example below /usr/local`
      : `${executable} needs ${names}, which its sandbox does not show; list that under the command's mounts`,
  );
}

function unreachable(paths: readonly string[], how: number): { path: string; closed: boolean }[] {
  return paths.flatMap((path) => {
    try {
      accessSync(path, how);
    } catch (error) {
      return [{ path, closed: (error as NodeJS.ErrnoException).code === "EACCES" }];
    }
    try {
      if (how === constants.R_OK) closeSync(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
      return [];
    } catch {
      return [{ path, closed: false }]; // Open to the user, and yet not opened: Landlock.
    }
  });
}

/** The thread stands in the directory when the command is born: the very directory that was checked, whatever its name is now. */
function enterDirectory(message: RunMessage): number | undefined {
  if (message.cwd === undefined) {
    process.chdir(confined?.idleDirectory ?? "/");
    return undefined;
  }
  const { root, rest } = message.cwd;
  const directory = rest === "." ? root : `${root}/${rest}`;
  const calls = start?.without.native === true ? undefined : native();
  if (calls === undefined) {
    process.chdir(directory);
    if (!isWithin(process.cwd(), root)) throw new Error("changed: the working directory left its root");
    return undefined;
  }
  const place = placeAround(directory, root);
  const fd = openDirectory(place, directory.slice(place.length));
  if (fd < 0 && errnoName(fd) === "EACCES") throw new Error("the command's user may not enter the working directory");
  if (fd < 0) throw new Error(`changed: the working directory (${errnoName(fd)})`);
  const entered = calls.changeDirectory(fd);
  if (entered < 0) {
    closeSync(fd);
    throw new Error(`the working directory cannot be entered (${errnoName(entered)})`);
  }
  return fd;
}

/** In a view each directory of the policy is a mount of its own, and no mount is crossed: one begins at the innermost. */
function placeAround(directory: string, root: string): string {
  const {
    readableRoots = [],
    writableRoots = [],
    closed = [],
    repositories = [],
    pinned = [],
    system = [],
  } = start?.confinement ?? {};
  let innermost = root;
  for (const place of [...readableRoots, ...writableRoots, ...closed, ...repositories, ...pinned, ...system]) {
    if (isWithin(directory, place) && place.length > innermost.length) innermost = place;
  }
  return innermost;
}

function watch(message: RunMessage, { child, stdin, stdout, stderr }: Started): void {
  const { id } = message;
  let kept = 0;
  let seen = 0;
  const floodBytes = Math.max(message.maxOutputBytes * FLOOD_FACTOR, MIN_FLOOD_BYTES);
  const forward = (type: FrameType, stream: Readable | null): void => {
    stream?.on("error", () => undefined);
    stream?.on("data", (chunk: Buffer) => {
      seen += chunk.length;
      if (seen > floodBytes) killRunning();
      const left = message.maxOutputBytes - kept;
      if (left <= 0) return;
      const part = chunk.length > left ? chunk.subarray(0, left) : chunk;
      kept += part.length;
      if (!send(type, part)) {
        stream.pause();
        process.stdout.once("drain", () => stream.resume());
      }
    });
  };
  forward(FRAME.stdout, stdout);
  forward(FRAME.stderr, stderr);
  // A command that does not read its input closes it, which is its right.
  stdin?.on("error", () => undefined);
  stdin?.end(Buffer.from(message.stdin, "base64"));
  let failure: string | undefined;
  child.on("error", (error) => {
    failure = error.message;
  });
  // The first process is gone: what it left behind has no business any more. Its pipes are waited for.
  let ending: { exitCode: number | null; signal: string | null } = { exitCode: null, signal: null };
  child.on("exit", (exitCode, signal) => {
    ending = { exitCode, signal };
    // Its own number may belong to another process by now; the group's cannot while a process is in it.
    if (confined?.pidNamespace === undefined && child.pid !== undefined && process.platform !== "win32")
      signalProcess(-child.pid, "SIGKILL");
    sendJson(FRAME.started, { id, exited: { exitCode, signal, truncated: seen > kept } });
  });
  void allClosed([child, stdout, stderr]).then(() => {
    stdin?.destroy();
    running = undefined;
    const flooded = seen > floodBytes;
    if (failure !== undefined && child.pid === undefined) sendJson(FRAME.failed, { id, reason: failure });
    else sendJson(FRAME.exit, { id, ...ending, truncated: seen > kept, flooded });
  });
}

/** Its pipes may be held open by others for longer than it lives. */
async function allClosed(things: readonly (EventEmitter | null)[]): Promise<void> {
  await Promise.all(
    things.map((thing) => (thing === null ? undefined : new Promise((done) => thing.once("close", done)))),
  );
}

/** Nothing of one command may be there for the next. A scratch directory that cannot be emptied ends the supervisor. */
function clean(id: number): void {
  confined?.reapOrphans();
  let isClean = true;
  try {
    for (const directory of confined?.temporary.emptied ?? []) empty(directory, confined?.temporary.kept ?? []);
  } catch {
    isClean = false;
  }
  sendJson(FRAME.cleaned, { id, isClean });
}

function empty(directory: string, kept: readonly string[]): void {
  if (lstatSync(directory, { throwIfNoEntry: false })?.isDirectory() !== true) return;
  for (const name of readdirSync(directory)) {
    const path = `${directory}/${name}`;
    if (kept.includes(name)) empty(path, []);
    else rmSync(path, { recursive: true, force: true });
  }
}
