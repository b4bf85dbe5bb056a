import { type Inclusion, type InclusionOptions, includesType } from "../inclusion/includes.js";
import type { Capability, CapabilitySet } from "./set.js";

/** The answer of an order; where it is not yes, the first tool and part that stand against it. */
export type Comparison =
  | { readonly answer: "yes" }
  | {
      readonly answer: "no" | "unknown";
      readonly tool: string;
      readonly part: "name" | "arguments" | "result";
      /** A value that one side accepts and the other rejects, when a part is to blame. */
      readonly witness?: unknown;
      readonly why: string;
    };

/**
 * Authority: `less` permits nothing that `more` does not permit. Covariant in the arguments: whoever may pass fewer
 * arguments, or learn fewer results, has less. Delegation and allow lists use this order.
 */
export function compareAuthority(less: CapabilitySet, more: CapabilitySet, options: InclusionOptions = {}): Comparison {
  return compare(less, more, (a, b) => [
    ["arguments", includesType(a.arguments, b.arguments, options)],
    ["result", includesType(a.result, b.result, options)],
  ]);
}

/**
 * Substitutability: a server offering `offered` can stand in where `wanted` is expected. Contravariant in the arguments
 * and covariant in the results: it takes at least what was taken, and answers no more than was answered.
 */
export function compareSubstitutability(
  offered: CapabilitySet,
  wanted: CapabilitySet,
  options: InclusionOptions = {},
): Comparison {
  return compare(wanted, offered, (w, o) => [
    ["arguments", includesType(w.arguments, o.arguments, options)],
    ["result", includesType(o.result, w.result, options)],
  ]);
}

/** Unknown is treated as no. */
export function hasAtMostAuthority(less: CapabilitySet, more: CapabilitySet, options: InclusionOptions = {}): boolean {
  return compareAuthority(less, more, options).answer === "yes";
}

export function canSubstitute(offered: CapabilitySet, wanted: CapabilitySet, options: InclusionOptions = {}): boolean {
  return compareSubstitutability(offered, wanted, options).answer === "yes";
}

type Parts = (a: Capability, b: Capability) => readonly (readonly ["arguments" | "result", Inclusion])[];

function compare(inner: CapabilitySet, outer: CapabilitySet, parts: Parts): Comparison {
  if (outer === "all") return { answer: "yes" };
  if (inner === "all") {
    return { answer: "no", tool: "*", part: "name", why: "one side is every tool, the other a list of tools" };
  }
  let doubt: Comparison | undefined;
  for (const [name, mine] of inner) {
    const theirs = outer.get(name);
    if (theirs === undefined)
      return { answer: "no", tool: name, part: "name", why: `the tool \`${name}\` is on one side only` };
    for (const [part, inclusion] of parts(mine, theirs)) {
      if (inclusion.answer === "no") {
        const why = `the ${part} of \`${name}\` differ by the value ${JSON.stringify(inclusion.witness)}`;
        return { answer: "no", tool: name, part, witness: inclusion.witness, why };
      }
      if (inclusion.answer === "unknown") doubt ??= { answer: "unknown", tool: name, part, why: inclusion.why };
    }
  }
  return doubt ?? { answer: "yes" };
}
