// The gateway's side of observing a server: the kernel reports each path that the server and its children open, look up or
// make before it carries the call out (seccomp user notification). Nothing is permitted or refused here.

import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { dirname, resolve } from "node:path";
import {
  type HeldCall,
  isWithin,
  NETWORK_FILES,
  type NotificationReader,
  notificationReader,
  type StrictPlan,
  SYSTEM_DIRECTORIES,
  SYSTEM_FILES,
  type TouchedPath,
} from "../../host/index.js";

const MAX_PATHS = 2_000;
const MAX_TRIED = 20_000;
/** After a call the next one often follows at once. */
const BUSY_MS = 50;
const QUIET_MS = 5;
/** Calls of one turn of the event loop. */
const MAX_AT_ONCE = 64;

/** Every server has these, or has its own of them. */
const SHARED = [...SYSTEM_DIRECTORIES, ...SYSTEM_FILES, ...NETWORK_FILES, "/proc", "/dev", "/sys"];

export class ServerObserver {
  readonly #reader: NotificationReader;
  readonly #named: readonly string[];
  readonly #own: readonly string[];
  readonly #touched = new Map<string, boolean>();
  readonly #tried = new Set<string>();
  #lastAt = performance.now();
  #isOver = false;

  constructor(reader: NotificationReader, { named, code, home, links }: StrictPlan) {
    this.#reader = reader;
    this.#named = named;
    this.#own = [...code, home, ...links.map(([path]) => path)];
    this.#turn();
  }

  get touched(): readonly TouchedPath[] {
    return [...this.#touched].map(([path, isWritten]) => ({ path, isWritten }));
  }

  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reader.close();
  }

  readonly #turn = (): void => {
    if (this.#isOver) return;
    try {
      for (let count = 0; count < MAX_AT_ONCE; count++) {
        const call = this.#reader.next();
        if (call === undefined) break;
        this.#lastAt = performance.now();
        this.#note(call);
        this.#reader.proceed(call);
      }
    } catch {
      return this.close();
    }
    if (performance.now() - this.#lastAt < BUSY_MS) setImmediate(this.#turn);
    else setTimeout(this.#turn, QUIET_MS).unref();
  };

  #note({ pid, directory, path: text, isWrite }: HeldCall): void {
    const path = absolute(pid, directory, text);
    if (path === undefined || !this.#counts(path)) return;
    const before = this.#touched.get(path);
    if (before !== undefined) {
      if (isWrite) this.#touched.set(path, true);
      return;
    }
    const key = `${isWrite} ${path}`;
    if (this.#tried.has(key) || this.#tried.size >= MAX_TRIED || this.#touched.size >= MAX_PATHS) return;
    this.#tried.add(key);
    // Programs look for many files in vain; what the machine does not have cannot be missed.
    if (
      isWrite
        ? dirname(path) !== "/tmp" && existsSync(dirname(path))
        : lstatSync(path, { throwIfNoEntry: false }) !== undefined
    )
      this.#touched.set(path, isWrite);
  }

  #counts(path: string): boolean {
    if (this.#named.some((each) => isWithin(path, each))) return true;
    // On the way to what it has, each directory is looked at.
    if ([...this.#named, ...this.#own].some((each) => isWithin(each, path))) return false;
    return ![...SHARED, ...this.#own].some((each) => isWithin(path, each));
  }
}

function absolute(pid: number, directory: number | undefined, text: string): string | undefined {
  if (text.startsWith("/")) return resolve(text);
  if (text === "") return undefined;
  try {
    return resolve(readlinkSync(`/proc/${pid}/${directory === undefined ? "cwd" : `fd/${directory}`}`), text);
  } catch {
    return undefined;
  }
}

const MAX_LEVELS = 8;

/** Observes the launcher below the processes that start it, and what it becomes; undefined where that is not possible. */
export function attachObserver(pid: number, fd: number, plan: StrictPlan): ServerObserver | undefined {
  let at = pid;
  for (let level = 0; level < MAX_LEVELS; level++) {
    const [child] = childrenOf(at);
    if (child === undefined) break;
    at = child;
  }
  const reader = notificationReader(at, fd);
  return reader && new ServerObserver(reader, plan);
}

function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, "utf8")
        .split(" ")
        .filter((each) => each !== "")
        .map(Number),
    );
  } catch {
    return [];
  }
}
