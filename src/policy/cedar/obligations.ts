// What a permit asks for in return: parts of the answer to be taken out, and a size to keep within.

import { costProblem } from "./pattern-cost.js";
import type { Obligation } from "./types.js";

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
export function parseRedactions(text: string): Obligation[] | string {
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
