// Every client starts a gateway of its own on stdio, and a ledger has one writer: each takes the first that is free.

import { join } from "node:path";
import { type Commitment, type Ledger, LedgerLocked, type LedgerOptions, openLedger } from "../ledger/index.js";
import { CliError } from "../lib/exit.js";
import { FURTHER_LEDGERS } from "./ledgers.js";

const MAX_LEDGERS = 64;

export interface OpenedLedger {
  readonly ledger: Ledger;
  /** 1 for the working folder's own. */
  readonly nth: number;
}

/** `named` gives the origin of the nth. */
export async function openFreeLedger(
  stateDir: string,
  named: (nth: number) => string,
  options: Omit<LedgerOptions, "dir" | "origin">,
  outside: (origin: string, dir: string) => Promise<readonly Commitment[]> = async () => [],
  places: (nth: number) => { readonly dir: string } = (nth) => ({
    dir: nth === 1 ? join(stateDir, "ledger") : join(stateDir, FURTHER_LEDGERS, String(nth)),
  }),
): Promise<OpenedLedger> {
  for (let nth = 1; nth <= MAX_LEDGERS; nth++) {
    const { dir } = places(nth);
    try {
      const origin = named(nth);
      const all = { ...options, dir, origin, outside: await outside(origin, dir), lockTimeoutMs: 100 };
      return { ledger: await openLedger(all), nth };
    } catch (error) {
      if (!(error instanceof LedgerLocked)) throw error;
    }
  }
  throw new CliError(`${MAX_LEDGERS} gateways are already running on ${stateDir}`);
}

/** A ledger in a directory that the operator chose. */
export async function openNamedLedger(
  dir: string,
  origin: string,
  options: Omit<LedgerOptions, "dir" | "origin">,
  outside: (origin: string, dir: string) => Promise<readonly Commitment[]>,
): Promise<Ledger> {
  return openLedger({ ...options, dir, origin, outside: await outside(origin, dir) });
}
