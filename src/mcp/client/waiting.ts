// Waiting for a person. A gate of our own tells when it has been answered; one at the other end is asked again,
// because it matches a repeated call by itself.

import { setTimeout as sleep } from "node:timers/promises";
import type { Approvals } from "../../policy/index.js";
import type { ToolResult } from "../server/index.js";
import { ChallengeRequired, errorOf, PolicyViolation, type WaitOptions } from "./errors.js";

const DEFAULT_WAIT_MS = 600_000;
const REPEAT_MS = 1_000;
const MAX_REPEAT_MS = 10_000;

/** Returns when the challenge was answered, either way; throws when it was not, or is of no more use. */
export async function untilAnswered(approvals: Approvals, challengeId: string, options: WaitOptions): Promise<void> {
  if (options.signal?.aborted) throw cancelled();
  const settled = await approvals.settled(challengeId, options.timeoutMs ?? DEFAULT_WAIT_MS, options.signal);
  if (settled === "approved" || settled === "denied") return;
  if (options.signal?.aborted) throw cancelled();
  if (settled === "redeemed") throw didNotRun("another, identical call used the approval");
  throw didNotRun("nobody approved it in time");
}

/** Calls again until the gate at the other end has an answer. */
export async function repeatUntilAnswered(call: () => Promise<ToolResult>, options: WaitOptions): Promise<ToolResult> {
  const deadline = performance.now() + (options.timeoutMs ?? DEFAULT_WAIT_MS);
  for (let pauseMs = REPEAT_MS; ; pauseMs = Math.min(pauseMs * 1.5, MAX_REPEAT_MS)) {
    const leftMs = deadline - performance.now();
    if (leftMs <= 0) throw didNotRun("nobody approved it in time");
    await sleep(Math.min(pauseMs, leftMs), undefined, options.signal ? { signal: options.signal } : {}).catch(() => {
      throw cancelled();
    });
    try {
      return await call();
    } catch (error) {
      const stillPending = error instanceof ChallengeRequired && "remote" in error.challenge;
      if (!stillPending) throw error;
    }
  }
}

function didNotRun(why: string): PolicyViolation {
  return new PolicyViolation("PolicyDeny", `the call did not run: ${why}`);
}

function cancelled(): Error {
  return errorOf("Cancelled", "waiting for approval was cancelled");
}
