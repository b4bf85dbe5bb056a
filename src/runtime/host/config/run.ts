// `portcullis run FILE`: a smoke test by hand. One message a line, or a JSON document with one message or a list.

import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { CliError, EXIT, type ExitCode } from "../../../lib/exit.js";
import type { HostFiles } from "./files.js";
import { requireHostPolicy } from "./read.js";
import { talkToHost } from "./talk.js";

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
  // Said here, where it reads well, rather than by the host's last words.
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
