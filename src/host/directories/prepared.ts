// What a call about folders would do, with everything it needs held open. Deciding prepares and lets go; executing
// prepares anew and runs, so that what was checked is what is used.

import type { Denial } from "../denial.js";
import { denial, isDenial } from "../denial.js";
import { absolutePath } from "../paths/index.js";
import type { Policy } from "../policy/index.js";
import { internalDenial } from "../tools/outcome.js";

export interface PreparedChange<R> {
  /** What allows it, for the record. */
  readonly rule: string;
  run(): R | Denial;
  close(): void;
}

export type DirectoryDecision =
  | { readonly effect: "permit"; readonly rule: string }
  | { readonly effect: "deny"; readonly denial: Denial };

export type Prepare<A, R> = (policy: Policy, args: A) => PreparedChange<R> | Denial;

export function decideBy<A, R>(prepare: Prepare<A, R>, policy: Policy, args: A): DirectoryDecision {
  try {
    const prepared = preparedHere(prepare, policy, args);
    if (isDenial(prepared)) return { effect: "deny", denial: prepared };
    prepared.close();
    return { effect: "permit", rule: prepared.rule };
  } catch (error) {
    return { effect: "deny", denial: internalDenial(error) };
  }
}

export function executeBy<A, R>(prepare: Prepare<A, R>, policy: Policy, args: A): R | Denial {
  try {
    const prepared = preparedHere(prepare, policy, args);
    if (isDenial(prepared)) return prepared;
    try {
      return prepared.run();
    } finally {
      prepared.close();
    }
  } catch (error) {
    return internalDenial(error);
  }
}

function preparedHere<A, R>(prepare: Prepare<A, R>, policy: Policy, args: A): PreparedChange<R> | Denial {
  if (process.platform === "linux") return prepare(policy, args);
  return denial("POLICY_DENY", "platform", "folders can be listed and changed on Linux only", {
    suggestions: ["use readFile and writeFile, which work everywhere"],
  });
}

export function preparedPathOf(policy: Policy, text: string, field: string): string | Denial {
  return absolutePath(text, field, {
    platform: policy.platform,
    home: policy.home,
    base: policy.roots[0]?.path ?? policy.zones[0]?.path,
  });
}
