// The system's git: no shell, no settings of a user or a machine, no hook, no pager, no network, and an end to its
// time and its output. Whatever it says on stderr stays in here.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { closeSync, fstatSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { Fault } from "../../mcp/index.js";
import type { PackBytes, StoredPack } from "../../storage/index.js";
import type { StoredHistory } from "./stored.js";

export interface GitOptions {
  readonly input?: string | Buffer;
  /** Descriptors of open files, in the place of `input` and of an answer in memory. */
  readonly inputFile?: number;
  readonly outputFile?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly maxBytes?: number;
  /** Instead of the usual one. */
  readonly timeoutMs?: number;
}

export interface GitResult {
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

const MAX_STDERR_CHARS = 4_096;
const DEFAULT_MAX_BYTES = 16_000_000;
/** Time to take its lock files away before it is ended for good. */
const GRACE_MS = 2_000;

/** Said on every command line, so that not even the repository's own settings can say otherwise. */
const FIXED = [
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  // What a commit stands on, and the branch; a temporary index need not survive anything.
  "core.fsync=objects,reference",
  "core.fsyncObjectFiles=true",
  "core.logAllRefUpdates=false",
  "core.attributesFile=/dev/null",
  "core.excludesFile=/dev/null",
  "core.sharedRepository=0600",
  "core.alternateRefsCommand=false",
  "commit.gpgSign=false",
  "gpg.program=false",
  "log.showSignature=false",
  "gc.autoDetach=false",
  "protocol.allow=never",
].flatMap((setting) => ["-c", setting]);

export class Git {
  readonly directory: string;
  readonly #timeoutMs: number;

  constructor(directory: string, timeoutMs: number) {
    this.directory = directory;
    this.#timeoutMs = timeoutMs;
  }

  /** For commands whose failure is an answer. */
  run(args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    return runGit(args, { timeoutMs: this.#timeoutMs, ...options, directory: this.directory });
  }

  /** For commands that are expected to succeed. */
  async ask(args: readonly string[], options: GitOptions = {}): Promise<Buffer> {
    const { code, stdout, stderr } = await this.run(args, options);
    if (code === 0) return stdout;
    throw broken(`git ${args[0]} failed with ${code}: ${stderr}`);
  }
}

function runGit(
  args: readonly string[],
  {
    directory,
    timeoutMs,
    input,
    inputFile,
    outputFile,
    env,
    maxBytes = DEFAULT_MAX_BYTES,
  }: GitOptions & { directory: string; timeoutMs: number },
): Promise<GitResult> {
  return new Promise((resolve, reject) => {
    const child = spawn("git", [...FIXED, ...args], {
      cwd: "/",
      env: { ...cleanEnvironment(directory), ...env },
      stdio: [inputFile ?? "pipe", outputFile ?? "pipe", "pipe"],
      windowsHide: true,
    });
    const chunks: Buffer[] = [];
    let size = 0;
    let stderr = "";
    let failure: Fault | undefined;
    let last: NodeJS.Timeout | undefined;
    const stop = (why: Fault): void => {
      failure ??= why;
      child.kill("SIGTERM");
      last ??= setTimeout(() => child.kill("SIGKILL"), GRACE_MS);
    };
    const timer = setTimeout(() => stop(broken(`git ${args[0]} took longer than ${timeoutMs} ms`)), timeoutMs);
    child.stdout?.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > maxBytes) stop(broken(`git ${args[0]} said more than ${maxBytes} bytes`));
      else chunks.push(chunk);
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr = (stderr + text).slice(0, MAX_STDERR_CHARS);
    });
    child.on("error", (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      reject(error.code === "ENOENT" ? noGit() : broken(`git did not start (${error.code})`));
    });
    child.on("close", (code) => {
      clearTimeout(timer);
      clearTimeout(last);
      if (failure) reject(failure);
      else resolve({ code: code ?? 128, stdout: Buffer.concat(chunks), stderr });
    });
    // A git that ends early closes its input; what it says about that is in its exit code.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(input ?? "");
  });
}

function cleanEnvironment(directory: string): Record<string, string> {
  const own = (process.env.PATH ?? "").split(":").filter((entry) => isAbsolute(entry));
  return {
    PATH: [...new Set(["/usr/local/bin", "/usr/bin", "/bin", ...own])].join(":"),
    HOME: "/nonexistent",
    XDG_CONFIG_HOME: "/nonexistent",
    LC_ALL: "C",
    TZ: "UTC",
    GIT_DIR: directory,
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_SYSTEM: "/dev/null",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_PAGER: "cat",
    GIT_LITERAL_PATHSPECS: "1",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_NO_LAZY_FETCH: "1",
    GIT_ALLOW_PROTOCOL: "",
    GIT_ASKPASS: "false",
  };
}

/** The detail is for the operator's log; a caller learns only that the state could not be used. */
export function broken(detail: string): Fault {
  return new Fault("IoError", "the application's state could not be read or written", {
    rule: "state",
    suggestions: ["try again; the operator finds the reason in the log by the trace id"],
    cause: new Error(detail),
  });
}

function noGit(): Fault {
  return new Fault("IoError", "core.state needs git, and there is none on this machine", {
    rule: "state",
    suggestions: ["the operator can install git 2.32 or later"],
  });
}

// Commits on their way to the store and from it: as a pack in a file of its own, whatever its size.

/** A whole history may take longer than one command on one file. */
const PACK_TIMEOUT_MS = 120_000;
/** So few objects are taken out of their pack: a directory full of packs would slow down every look. */
const UNPACK_OBJECTS = 30;
/** `PACK`, the version, the number of objects. */
const HEADER_BYTES = 12;
const OLD_PACKS_FACTOR = 2;

/** What leads to `head` from `from` (from nothing, when undefined), for as long as `use` takes. */
export async function withPack<T>(
  git: Git,
  head: string,
  from: string | undefined,
  use: (pack: PackBytes) => Promise<T>,
): Promise<T> {
  return await withFile(git, async (fd) => {
    const input = from === undefined ? `${head}\n` : `${head}\n^${from}\n`;
    await git.ask(["pack-objects", "--quiet", "--revs", "--thin", "--delta-base-offset", "--stdout"], {
      input,
      outputFile: fd,
      timeoutMs: PACK_TIMEOUT_MS,
    });
    const byteLength = fstatSync(fd).size;
    return await use({ byteLength, subarray: (begin, end) => slice(fd, begin, end) });
  });
}

/** False: the store no longer has it, because it was merged with others or its application was removed. */
export async function takePack(git: Git, store: StoredHistory, pack: StoredPack): Promise<boolean> {
  return await withFile(git, async (fd) => {
    let size = 0;
    for (let part = 0; size < pack.bytes; part++) {
      const data = await store.part(pack, part);
      if (data === undefined || data.byteLength === 0) return false;
      for (let done = 0; done < data.byteLength; ) {
        const wrote = writeSync(fd, data, done, data.byteLength - done, size);
        done += wrote;
        size += wrote;
      }
    }
    const objects = size < HEADER_BYTES ? 0 : slice(fd, 0, HEADER_BYTES).readUInt32BE(8);
    const isSmall = objects <= UNPACK_OBJECTS;
    await git.ask(isSmall ? ["unpack-objects", "-q"] : ["index-pack", "--stdin", "--fix-thin"], {
      inputFile: fd,
      timeoutMs: PACK_TIMEOUT_MS,
    });
    return true;
  });
}

/**
 * Which of the packs, the newest of them, to make one of: so many that those before are each larger than all after them
 * together. There are then never many, and no byte is written over and over again.
 */
export function toMerge(packs: readonly StoredPack[]): readonly StoredPack[] {
  let start = packs.length;
  let sum = 0;
  while (start > 0 && (sum === 0 || (packs[start - 1] as StoredPack).bytes < OLD_PACKS_FACTOR * sum)) {
    sum += (packs[--start] as StoredPack).bytes;
  }
  return packs.length - start < 2 ? [] : packs.slice(start);
}

async function withFile<T>(git: Git, use: (fd: number) => Promise<T>): Promise<T> {
  const file = join(git.directory, `pack-${randomUUID()}.tmp`);
  const fd = openSync(file, "wx+", 0o600);
  try {
    // Without a name from here on: whatever ends this process takes the file along.
    rmSync(file);
    return await use(fd);
  } finally {
    closeSync(fd);
  }
}

function slice(fd: number, begin: number, end: number): Buffer {
  const bytes = Buffer.alloc(end - begin);
  for (let read = 0; read < bytes.length; ) {
    const more = readSync(fd, bytes, read, bytes.length - read, begin + read);
    if (more === 0) throw new Error("the pack ended early");
    read += more;
  }
  return bytes;
}
