// A host started for a few messages: each is sent when the one before is answered, and the host is gone afterwards.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import type { Command } from "commander";
import { CliError, EXIT, type ExitCode } from "../../../lib/exit.js";
import type { HostFiles } from "./files.js";
import { mainFile } from "./paths.js";
import { requireHostPolicy } from "./read.js";

interface TalkOptions {
  readonly files: HostFiles;
  readonly client?: string | undefined;
  /** Sent as they are, one a line. */
  readonly messages: readonly string[];
  readonly onLine?: (line: string) => void;
  /** For one answer. */
  readonly timeoutMs?: number;
  readonly logLevel?: string;
}

interface HostTalk {
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
  let onAnswer: () => void = () => undefined;
  createInterface({ input: child.stdout }).on("line", (line) => {
    options.onLine?.(line);
    const answer = parsed(line);
    if (!isAnswer(answer)) return;
    answers.push(answer);
    onAnswer();
  });
  try {
    for (const message of messages) {
      const expected = answers.length + answersTo(message);
      child.stdin.write(`${message}\n`);
      while (answers.length < expected) {
        const next = new Promise<"answered">((resolve) => {
          onAnswer = () => resolve("answered");
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
  const message = stderr.trim().replace(/^error: /, "");
  const [first = "the host ended without an error message", ...rest] = message.split("\n");
  return new CliError(first, EXIT.error, rest.join("\n"));
}

/** Responses to expect: one for a request or a malformed message, none for a notification or a response. */
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

export interface HostRunOptions {
  client?: string;
  timeoutMs: number;
  logLevel: string;
}

export async function runMessages(
  command: Command,
  files: HostFiles,
  file: string,
  options: HostRunOptions,
): Promise<void> {
  const messages = messagesIn(readInput(file));
  if (messages.length === 0) {
    throw new CliError(`${file} holds no message`, EXIT.usage, "write one JSON-RPC message a line");
  }
  // Reported here with the problems of the policy, before the host reports it on stderr.
  requireHostPolicy(command, files);
  const { answers, stderr } = await talkToHost({
    files,
    client: options.client,
    messages,
    timeoutMs: options.timeoutMs,
    logLevel: options.logLevel,
    onLine: (line) => process.stdout.write(`${line}\n`),
  });
  if (stderr !== "") process.stderr.write(stderr);
  process.exitCode = worst(answers);
}

function readInput(file: string): string {
  try {
    return readFileSync(file === "-" ? 0 : file, "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
}

/** Lines go as they are, right or wrong; a document over several lines is taken apart. */
export function messagesIn(text: string): string[] {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  let whole: unknown;
  try {
    whole = JSON.parse(text);
  } catch {
    return lines;
  }
  if (Array.isArray(whole)) return whole.map((message) => JSON.stringify(message));
  return lines.length > 1 ? [JSON.stringify(whole)] : lines;
}

/** A denial is an answer of its own kind; any other error is an error. MCP tools wrap theirs in a result. */
function worst(answers: readonly unknown[]): ExitCode {
  let exit: ExitCode = EXIT.ok;
  for (const answer of answers as readonly Answered[]) {
    const failed = answer.error !== undefined || answer.result?.isError === true;
    if (!failed) continue;
    const code = answer.error?.data?.code ?? answer.result?.structuredContent?.code;
    if (code !== "POLICY_DENY") return EXIT.error;
    exit = EXIT.deny;
  }
  return exit;
}

interface Answered {
  readonly error?: { readonly data?: { readonly code?: string } };
  readonly result?: { readonly isError?: boolean; readonly structuredContent?: { readonly code?: string } };
}
