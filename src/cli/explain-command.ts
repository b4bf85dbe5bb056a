// The command that explains a denial: for that call and that caller, ready to be pasted into a shell.

import type { Command } from "commander";
import { shellWord } from "./print.js";

export interface ExplainedCall {
  readonly tool: string;
  readonly app: string;
  /** `app/agent`. */
  readonly agent: string;
  /** JSON text; undefined where it was not kept. */
  readonly arguments?: string;
}

export function explainCall(command: Command, { tool, app, agent, arguments: args }: ExplainedCall): string {
  const dir =
    command.getOptionValueSourceWithGlobals("dir") === "cli" ? ["--dir", String(command.optsWithGlobals().dir)] : [];
  const known = ["portcullis", ...dir, "policy", "explain", tool].map(shellWord);
  const caller = ["--app", app, "--agent", agent].map(shellWord);
  // An upper-case word is what the reader has to fill in.
  return [...known, args === undefined ? "ARGUMENTS" : shellWord(args), ...caller].join(" ");
}
