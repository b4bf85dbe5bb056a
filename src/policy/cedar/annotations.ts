// The annotations a rule may carry, and the obligations that `@redact` and `@cap` declare. Cedar lets anything stand here;
// a misspelt `@outcom` would silently turn a challenge into a deny, so everything unknown is rejected.

import { nearest } from "../../mcp/index.js";
import { costProblem } from "./pattern-cost.js";
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
    const meant = nearest(name, KNOWN);
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

/** The patterns a rule can name. Answers of hostile tools are searched with them, so none may go over text twice. */
const NAMED: ReadonlyMap<string, string> = new Map([
  ["email", String.raw`[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}`],
  ["creditcard", String.raw`\b[0-9](?:[ -]?[0-9]){12,18}\b`],
  ["ipv4", String.raw`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`],
  ["jwt", String.raw`(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`],
  [
    "privatekey",
    String.raw`-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!----)){0,20000}-----END [A-Z ]{0,30}PRIVATE KEY-----`,
  ],
  [
    "secret",
    [
      String.raw`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`,
      String.raw`\bgh[pousr]_[A-Za-z0-9]{36,255}\b`,
      String.raw`\bgithub_pat_[A-Za-z0-9_]{22,255}\b`,
      String.raw`\bsk-[A-Za-z0-9_-]{20,255}\b`,
      String.raw`\bxox[abposr]-[A-Za-z0-9-]{10,255}\b`,
      String.raw`\bBearer [A-Za-z0-9._~+/=-]{16,4096}`,
      String.raw`\b(?:api[_-]?key|secret|token|password|passwd)["']?\s{0,3}[:=]\s{0,3}["']?[^\s"',;]{8,512}`,
    ].join("|"),
  ],
]);

export const REDACTION_NAMES: readonly string[] = [...NAMED.keys()];

/** What to look for in text; undefined for a `field`, which is found by its name in structured content. */
export function redactionPattern(obligation: Obligation): RegExp | undefined {
  if (obligation.kind !== "redact") return undefined;
  const named = obligation.name === undefined ? undefined : NAMED.get(obligation.name);
  if (named !== undefined) return new RegExp(named, obligation.name === "secret" ? "gi" : "g");
  return obligation.pattern === undefined ? undefined : compilePattern(obligation.pattern);
}

function compilePattern(pattern: string): RegExp {
  const end = pattern.lastIndexOf("/");
  const flags = new Set(pattern.slice(end + 1));
  return new RegExp(pattern.slice(1, end), [...flags.add("g")].join(""));
}

/** The items of `@redact("…")`, or what is wrong with one of them. */
function parseRedactions(text: string): Obligation[] | string {
  const items = text.split(/\s+/).filter((item) => item !== "");
  if (items.length === 0) return "names nothing to redact; write field:NAME, name:NAME or /pattern/flags";
  const obligations: Obligation[] = [];
  for (const item of items) {
    const obligation = parseItem(item);
    if (typeof obligation === "string") return obligation;
    obligations.push(obligation);
  }
  return obligations;
}

function parseItem(item: string): Obligation | string {
  const [, kind, value = ""] = /^(field|name):(.+)$/.exec(item) ?? [];
  if (kind === "field") return { kind: "redact", field: value };
  if (kind === "name") {
    if (NAMED.has(value)) return { kind: "redact", name: value };
    return `does not know the name ${JSON.stringify(value)}; known are ${REDACTION_NAMES.join(", ")}`;
  }
  if (!/^\/.+\/[gimsu]*$/.test(item)) {
    return `has the item ${JSON.stringify(item)}, which is neither field:NAME, name:NAME nor /pattern/flags (flags: g i m s u; write \\s for a space)`;
  }
  try {
    compilePattern(item);
  } catch (error) {
    return `has a pattern that is not valid: ${(error as Error).message}`;
  }
  const end = item.lastIndexOf("/");
  const problem = costProblem(item.slice(1, end), item.slice(end + 1));
  return problem === undefined ? { kind: "redact", pattern: item } : `has the pattern ${item}, which ${problem}`;
}

/** Everything all the permits ask for, each thing once, and the smallest cap. */
export function joinObligations(lists: readonly (readonly Obligation[])[]): Obligation[] {
  const joined = new Map<string, Obligation>();
  let maxBytes = Number.POSITIVE_INFINITY;
  for (const obligation of lists.flat()) {
    if (obligation.kind === "cap") maxBytes = Math.min(maxBytes, obligation.maxBytes);
    else joined.set(JSON.stringify(obligation), obligation);
  }
  const caps: Obligation[] = Number.isFinite(maxBytes) ? [{ kind: "cap", maxBytes }] : [];
  return [...joined.values(), ...caps];
}
