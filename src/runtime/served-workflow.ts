// Which workflow a gateway serves, noted in its working folder: whoever mints there is told of names it does not have.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { CliError, EXIT } from "../lib/exit.js";
import { type LoadedWorkflow, loadWorkflow } from "./workflow/load.js";

const noteIn = (dir: string): string => join(resolve(dir), "workflow", "served.json");

export function noteServedWorkflow(dir: string, file: string): void {
  const note = noteIn(dir);
  mkdirSync(dirname(note), { recursive: true, mode: 0o700 });
  writeFileSync(note, `${JSON.stringify({ file: resolve(file) })}\n`, { mode: 0o600 });
}

/** The workflow that was named, or the one that was served last from this folder. */
export function servedWorkflow(dir: string, named: string | undefined): Promise<LoadedWorkflow> {
  return loadWorkflow(named ?? notedFile(dir));
}

function notedFile(dir: string): string {
  try {
    const { file } = JSON.parse(readFileSync(noteIn(dir), "utf8")) as { file?: unknown };
    if (typeof file === "string") return file;
  } catch {
    // Said below, with what to do.
  }
  const help = "name the file with --workflow, or start `portcullis serve --workflow FILE` in this folder first";
  throw new CliError(`no workflow is known to be served from ${resolve(dir)}`, EXIT.usage, help);
}
