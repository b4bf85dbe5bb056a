// A policy file in another language than Cedar, such as a host's policy.yaml: what it decides is one more check, which is
// replaced together with the Cedar rules.

import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { PolicyInvalid, type PolicySet } from "./cedar/index.js";
import type { Check } from "./decide.js";

export interface CheckFile {
  readonly file: string;
  /** Throws when the text is not a valid policy. */
  load(text: string): LoadedCheck;
}

export interface LoadedCheck {
  readonly file: string;
  /** Names what the file decides. */
  readonly hash: string;
  readonly check: Check;
  /** Called when the check starts to decide, possibly more than once. */
  readonly onApplied?: () => void;
}

const MAX_BYTES = 16 * 1024 * 1024;

/** Throws PolicyInvalid. */
export function readCheckFile(file: string): string {
  try {
    if (statSync(file).size > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES} bytes`);
    return readFileSync(file, "utf8");
  } catch (error) {
    const message = `cannot be read: ${(error as Error).message}`;
    throw new PolicyInvalid([{ file, line: 0, column: 0, message, help: "check the file" }]);
  }
}

/** The same rules with further checks. The hash names both, so that a record tells which of them decided. */
export function withChecks(set: PolicySet, checks: readonly LoadedCheck[]): PolicySet {
  if (checks.length === 0) return set;
  const hash = createHash("sha256").update(["with checks", set.hash, ...checks.map((each) => each.hash)].join("\n"));
  return {
    hash: hash.digest("hex"),
    rules: set.rules,
    warnings: set.warnings,
    usesWasmFallbackFor: set.usesWasmFallbackFor,
    checks: [...(set.checks ?? []), ...checks],
    decide: (request) => set.decide(request),
    explain: (request) => set.explain(request),
    outlook: (request) => set.outlook(request),
  };
}
