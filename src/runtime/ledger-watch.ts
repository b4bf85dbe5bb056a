// What a ledger cannot do beside taking records (sign checkpoints, hand them out) is no reason to stop calls, and has to
// be heard of all the same.

import type { Ledger } from "../ledger/index.js";
import type { Telemetry } from "../telemetry/index.js";

const LOOK_MS = 5_000;

/** Gives back what ends the watch. */
export function watchLedger(ledger: Pick<Ledger, "status">, { log }: Pick<Telemetry, "log">): () => void {
  let told: string | undefined;
  const timer = setInterval(() => {
    const problem = ledger.status().lastError?.message;
    if (problem !== undefined && problem !== told) log.error("the ledger has a problem", { problem });
    else if (problem === undefined && told !== undefined) log.notice("the ledger is well again");
    told = problem;
  }, LOOK_MS);
  timer.unref();
  return () => clearInterval(timer);
}
