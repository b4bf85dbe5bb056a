// The command that explains a denial: for that call and that caller, ready to be pasted into a shell.

import type { Command } from "commander";
import { type LedgerRecord, readLastOfSeveral } from "../ledger/index.js";
import { knownLedgers } from "./ledgers.js";
import { shellWord } from "../lib/print.js";

export interface ExplainedCall {
  readonly tool: string;
  /** Undefined, as `agent`, where the caller is not known here. */
  readonly app?: string;
  /** `app/agent`. */
  readonly agent?: string;
  /** JSON text; undefined where it was not kept. */
  readonly arguments?: string;
}

export function explainCall(command: Command, { tool, app, agent, arguments: args }: ExplainedCall): string {
  const dir =
    command.getOptionValueSourceWithGlobals("dir") === "cli" ? ["--dir", String(command.optsWithGlobals().dir)] : [];
  const known = ["portcullis", ...dir, "policy", "explain", tool].map(shellWord);
  const caller = app === undefined || agent === undefined ? ["--agent", "APP/AGENT"] : ["--app", app, "--agent", agent];
  // An upper-case word is what the reader has to fill in.
  return [...known, args === undefined ? "ARGUMENTS" : shellWord(args), ...caller.map(shellWord)].join(" ");
}

/** A denial is found close to the end of a ledger: it was recorded before it was answered. */
const LOOK_BACK_BYTES = 1024 * 1024;

/**
 * The command for a call that was just denied. The caller comes from the ledgers of the data directory, by the trace id of
 * the denial: the gateway does not send it, because a denial may pass through several gateways.
 */
export async function explainDenied(
  command: Command,
  { tool, arguments: args, trace }: { tool: string; arguments: string; trace: string },
): Promise<string> {
  const filter = (record: LedgerRecord): boolean =>
    record.kind === "decision" && record.trace === trace && record.tool === tool;
  try {
    const { records } = await readLastOfSeveral(knownLedgers(command), 1, { filter, maxBytes: LOOK_BACK_BYTES });
    const record = records[0]?.record;
    if (record?.kind === "decision") {
      return explainCall(command, { tool, arguments: args, app: record.app, agent: record.actor });
    }
  } catch {
    // `audit verify` reports a ledger that cannot be read; the denial stands without it.
  }
  return explainCall(command, { tool, arguments: args });
}
