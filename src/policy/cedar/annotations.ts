// The annotations a rule may carry. Cedar lets anything stand here; a misspelt `@outcom` would silently turn a
// challenge into a deny, so everything unknown is refused.

import { nearestName } from "./nearest.js";
import { parseRedactions } from "./obligations.js";
import type { Obligation } from "./types.js";

export interface RuleMeta {
  readonly id?: string;
  readonly reason?: string;
  readonly challenge: boolean;
  readonly approvers: readonly string[];
  readonly obligations: readonly Obligation[];
}

/** What is wrong with which annotation. */
export interface AnnotationProblem {
  readonly name: string;
  readonly message: string;
  readonly help: string;
}

const KNOWN = ["id", "reason", "outcome", "approvers", "redact", "cap"];
const NAME = /^[^\p{C}\s"]{1,128}$/u;
const MAX_REASON = 500;

export function readAnnotations(
  annotations: Readonly<Record<string, string | null>>,
  effect: "permit" | "forbid",
): { meta: RuleMeta; problems: AnnotationProblem[] } {
  const problems: AnnotationProblem[] = [];
  const wrong = (name: string, message: string, help = ""): void => {
    problems.push({ name, message: `@${name} ${message}`, help });
  };
  for (const name of Object.keys(annotations)) {
    if (KNOWN.includes(name)) continue;
    const meant = nearestName(name, KNOWN);
    wrong(name, "is not an annotation here", meant ? `did you mean @${meant}?` : `known are @${KNOWN.join(", @")}`);
  }
  const text = (name: string): string | undefined => annotations[name] ?? (name in annotations ? "" : undefined);

  const id = text("id");
  if (id !== undefined && !NAME.test(id)) wrong("id", "must be 1 to 128 characters without spaces or quotes");

  const reason = text("reason");
  if (reason !== undefined && (reason.trim() === "" || reason.length > MAX_REASON || /\p{Cc}/u.test(reason))) {
    wrong("reason", `must be one line of 1 to ${MAX_REASON} characters`);
  }

  const outcome = text("outcome");
  if (outcome !== undefined && outcome !== "challenge") {
    wrong("outcome", `cannot be ${JSON.stringify(outcome)}`, 'the only outcome is @outcome("challenge")');
  } else if (outcome === "challenge" && effect === "permit") {
    wrong("outcome", "belongs on a forbid", "write forbid (…) when { … } unless { context.approved };");
  }

  const approvers = (text("approvers") ?? "").split(",").map((group) => group.trim());
  if (text("approvers") !== undefined) {
    if (outcome === undefined) wrong("approvers", 'needs @outcome("challenge") beside it');
    if (!approvers.every((group) => NAME.test(group))) {
      wrong("approvers", "must be group names with commas between", '@approvers("security,oncall")');
    }
  }

  const obligations: Obligation[] = [];
  for (const name of ["redact", "cap"]) {
    const value = text(name);
    if (value === undefined) continue;
    if (effect === "forbid") wrong(name, "belongs on a permit", "what a forbid stops has no answer");
    const parsed = name === "redact" ? parseRedactions(value) : parseCap(value);
    if (typeof parsed === "string") wrong(name, parsed);
    else obligations.push(...parsed);
  }

  const meta: RuleMeta = {
    ...(id === undefined ? {} : { id }),
    ...(reason === undefined ? {} : { reason }),
    challenge: outcome === "challenge",
    approvers: text("approvers") === undefined ? [] : [...new Set(approvers)],
    obligations,
  };
  return { meta, problems };
}

function parseCap(text: string): Obligation[] | string {
  const maxBytes = Number(text);
  if (/^[1-9][0-9]*$/.test(text) && Number.isSafeInteger(maxBytes)) return [{ kind: "cap", maxBytes }];
  return `must be a number of bytes, not ${JSON.stringify(text)}`;
}
