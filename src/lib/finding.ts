// What `doctor` found: each thing with at most one remedy.

import { type Out, paint } from "./print.js";

export interface Finding {
  readonly check: string;
  readonly ok: boolean;
  readonly detail: string;
  /** What to do about it; shown when it is not ok. */
  readonly remedy?: string;
  /** Works, but could be better: what would make it so. */
  readonly hint?: string;
}

export function printFindings(out: Out, findings: readonly Finding[]): void {
  out.data(findings, () => findings.map(lineOf).join("\n"));
}

function lineOf({ check, ok, detail, remedy, hint }: Finding): string {
  const mark = ok ? (hint === undefined ? paint.green("✓") : paint.yellow("!")) : paint.red("✗");
  const advice = ok ? hint : remedy;
  return `${mark} ${check}: ${detail}${advice === undefined ? "" : `\n    ${paint.dim("→")} ${advice}`}`;
}
