// What an operator accepts in advance, for servers that change now and then in ways that do no harm.

import type { PinnedKind } from "./definition.js";
import type { PinChange } from "./difference.js";

export interface StandingRule {
  /** Stands in the record as whoever accepted. */
  readonly name: string;
  /** All kinds unless given. */
  readonly kinds?: readonly PinnedKind[];
  /** A pattern for names, in which `*` is any text. Every name unless given. */
  readonly names?: string;
  /** Parts that may change, as paths (`annotations.title`); what is below them may change with them. `*` is everything. */
  readonly fields?: readonly string[];
  /** Definitions that were not there before are accepted. */
  readonly additions?: boolean;
}

/** The first rule that allows all of the changes; a rule never allows a part of them. */
export function ruleFor(
  rules: readonly StandingRule[],
  kind: PinnedKind,
  name: string,
  changes: readonly PinChange[],
): StandingRule | undefined {
  return rules.find((rule) => {
    if (rule.kinds !== undefined && !rule.kinds.includes(kind)) return false;
    if (rule.names !== undefined && !matches(rule.names, name)) return false;
    return changes.every((change) => allows(rule, change));
  });
}

function allows({ fields = [], additions = false }: StandingRule, { path }: PinChange): boolean {
  if (path.length === 0) return additions;
  return fields.some((field) => field === "*" || field.split(".").every((key, index) => path[index] === key));
}

/** In time that grows with the text alone, whatever the pattern. */
function matches(pattern: string, text: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  if (rest.length === 0) return text === pattern;
  if (!text.startsWith(first)) return false;
  const last = rest.pop() as string;
  let at = first.length;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
