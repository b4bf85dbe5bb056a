// Questions to a person; where nobody sits, the answer has to be given beforehand.

import { readFileSync } from "node:fs";
import { confirm, isCancel, password } from "@clack/prompts";
import { CliError, EXIT } from "../../lib/exit.js";

const MAX_SECRET_BYTES = 64 * 1024;

export async function agreed(question: string, yes: boolean | undefined): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY) {
    throw new CliError("nothing was changed: nobody is here to agree", EXIT.usage, "add --yes when you are sure");
  }
  // On stderr, for stdout carries data.
  const answer = await confirm({ message: question, output: process.stderr });
  if (isCancel(answer) || !answer) throw new CliError("nothing was changed");
}

/** From a pipe, or typed without being shown; never from the command line, which every process can read. */
export async function secretValue(name: string): Promise<string> {
  const value = process.stdin.isTTY ? await typed(name) : piped();
  if (value === "") throw new CliError("the secret is empty; nothing was stored", EXIT.usage);
  return value;
}

async function typed(name: string): Promise<string> {
  const value = await password({ message: `the value of ${name}`, output: process.stderr });
  if (isCancel(value)) throw new CliError("nothing was stored");
  return value;
}

function piped(): string {
  const bytes = readFileSync(0);
  if (bytes.length > MAX_SECRET_BYTES) throw new CliError(`a secret has at most ${MAX_SECRET_BYTES} bytes`, EXIT.usage);
  // `echo` ends with a line; a secret does not.
  return bytes.toString("utf8").replace(/\r?\n$/, "");
}
