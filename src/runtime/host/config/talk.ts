// A host started for a few messages: each is sent when the one before is answered, and the host is gone afterwards.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { CliError, EXIT } from "../../../lib/exit.js";
import type { HostFiles } from "./files.js";
import { mainFile } from "./paths.js";

export interface TalkOptions {
  readonly files: HostFiles;
  readonly client?: string | undefined;
  /** Sent as they are, one a line. */
  readonly messages: readonly string[];
  readonly onLine?: (line: string) => void;
  /** For one answer. */
  readonly timeoutMs?: number;
  readonly logLevel?: string;
}

export interface HostTalk {
  /** What has a result or an error; progress and other news are only given to `onLine`. */
  readonly answers: readonly unknown[];
  readonly exitCode: number | null;
  readonly stderr: string;
}

const ANSWER_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 10_000;
const MAX_STDERR_CHARS = 20_000;

export async function talkToHost(options: TalkOptions): Promise<HostTalk> {
  const { files, client, messages, timeoutMs = ANSWER_TIMEOUT_MS } = options;
  const level = ["--log-level", options.logLevel ?? "error"];
  const who = client === undefined ? [] : ["--client", client];
  const args = [mainFile(), "host", "--config", files.config, "--state", files.state, ...level, ...who];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "pipe"] });
  const exited = new Promise<number | null>((resolve) => child.once("close", resolve));
  child.stdin.on("error", () => undefined);
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => {
    stderr = (stderr + chunk.toString("utf8")).slice(-MAX_STDERR_CHARS);
  });
  const answers: unknown[] = [];
  let heard: () => void = () => undefined;
  createInterface({ input: child.stdout }).on("line", (line) => {
    options.onLine?.(line);
    const answer = parsed(line);
    if (!isAnswer(answer)) return;
    answers.push(answer);
    heard();
  });
  try {
    for (const message of messages) {
      const expected = answers.length + answersTo(message);
      child.stdin.write(`${message}\n`);
      while (answers.length < expected) {
        const next = new Promise<"heard">((resolve) => {
          heard = () => resolve("heard");
        });
        const what = await within(timeoutMs, Promise.race([next, exited.then(() => "ended" as const)]));
        if (what === "ended") throw ended(stderr);
        if (what === undefined) throw new CliError(`no answer within ${timeoutMs} ms`, EXIT.error, stderr.trim());
      }
    }
  } finally {
    child.stdin.end();
    if (
      (await within(
        STOP_TIMEOUT_MS,
        exited.then(() => true),
      )) === undefined
    )
      child.kill("SIGKILL");
  }
  return { answers, exitCode: await exited, stderr };
}

function ended(stderr: string): CliError {
  // What the host itself says is the reason; it has the same colours and words as any of our commands.
  const said = stderr.trim().replace(/^error: /, "");
  const [first = "the host ended without a word", ...rest] = said.split("\n");
  return new CliError(first, EXIT.error, rest.join("\n"));
}

/** What the protocol answers: requests, and what is no message at all. Notifications and answers get nothing. */
function answersTo(message: string): number {
  const value = parsed(message);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return 1;
  return isAnswer(value) || ("method" in value && !("id" in value)) ? 0 : 1;
}

function isAnswer(value: unknown): boolean {
  return typeof value === "object" && value !== null && ("result" in value || "error" in value);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
