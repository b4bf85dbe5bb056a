// $EDITOR on a copy. What does not hold is shown, and a person may go back to it; the copy is never lost on the way.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as prompts from "@clack/prompts";
import { CliError, EXIT } from "../../../lib/exit.js";
import { paintErr } from "../../../lib/print.js";
import type { Edited } from "./edit.js";

/** As often as a person has the patience; a script has none. */
const MAX_ROUNDS = 100;

export async function editCopy(before: string, accept: (after: string, copy: string) => Edited): Promise<Edited> {
  const folder = mkdtempSync(join(tmpdir(), "portcullis-edit-"));
  const copy = join(folder, "policy.yaml");
  writeFileSync(copy, before, { mode: 0o600 });
  for (let round = 1; ; round++) {
    try {
      runEditor(copy);
    } catch (error) {
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
    try {
      const edited = accept(readFileSync(copy, "utf8"), copy);
      rmSync(folder, { recursive: true, force: true });
      return edited;
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      if (round < MAX_ROUNDS && (await wantsToGoOn(error))) continue;
      const kept = `your text is kept in ${copy}; the policy is unchanged`;
      throw new CliError(error.message, error.exitCode, error.help === undefined ? kept : `${error.help}\n${kept}`);
    }
  }
}

function runEditor(file: string): void {
  const chosen = process.env.VISUAL || process.env.EDITOR || (process.platform === "win32" ? "notepad" : "vi");
  // `code --wait` is a program and an argument; no shell reads it.
  const [program = "vi", ...args] = chosen.trim().split(/\s+/);
  const ran = spawnSync(program, [...args, file], { stdio: "inherit" });
  if (ran.error !== undefined) {
    throw new CliError(`cannot start the editor \`${chosen}\`: ${ran.error.message}`, EXIT.error, "set EDITOR");
  }
  if (ran.status !== 0) {
    throw new CliError(
      `the editor \`${chosen}\` ended with ${ran.status ?? ran.signal}`,
      EXIT.error,
      "the policy is unchanged",
    );
  }
}

async function wantsToGoOn(error: CliError): Promise<boolean> {
  if (process.stdin.isTTY !== true || process.stdout.isTTY !== true) return false;
  process.stderr.write(`${paintErr.red("error:")} ${error.message}\n${error.help ?? ""}\n`);
  const again = await prompts.confirm({ message: "Edit it again?" });
  return again === true;
}
