// Data on stdout, everything else on stderr. Colour only where a person reads it and has not asked for none.

import Table from "cli-table3";
import pc from "picocolors";
import { visible } from "../telemetry/index.js";

export interface Out {
  readonly json: boolean;
  /** Data: JSON when it was asked for, otherwise the given text. */
  data(value: unknown, text: () => string): void;
  /** One line of a stream of data. */
  line(value: unknown, text: () => string): void;
  /** For the person at the terminal. */
  note(text: string): void;
}

const colors = pc.createColors(process.stderr.isTTY === true && process.env.NO_COLOR === undefined);
export const paint = pc.createColors(process.stdout.isTTY === true && process.env.NO_COLOR === undefined);
export const paintErr = colors;

export function createOut(json: boolean): Out {
  return {
    json,
    data(value, text) {
      process.stdout.write(`${json ? JSON.stringify(value, null, 2) : text()}\n`);
    },
    line(value, text) {
      process.stdout.write(`${json ? JSON.stringify(value) : text()}\n`);
    },
    note(text) {
      process.stderr.write(`${text}\n`);
    },
  };
}

/** A table of texts that came from outside: nothing in them can move the cursor or fake a row. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const out = new Table({
    head: head.map((cell) => paint.bold(cell)),
    style: { head: [], border: [], compact: true },
    chars: {
      top: "",
      "top-mid": "",
      "top-left": "",
      "top-right": "",
      bottom: "",
      "bottom-mid": "",
      "bottom-left": "",
      "bottom-right": "",
      left: "",
      "left-mid": "",
      mid: "",
      "mid-mid": "",
      right: "",
      "right-mid": "",
      middle: "  ",
    },
  });
  for (const row of rows) out.push(row.map((cell) => visible(cell)));
  return out.toString();
}

export interface Cell {
  readonly text: string;
  readonly paint?: (text: string) => string;
}

/** One line of cells, cut where the terminal ends; whole where the output is not a terminal. */
export function fitted(cells: readonly Cell[], width: number = terminalWidth()): string {
  let left = width;
  const parts: string[] = [];
  for (const { text, paint: painted = (same: string) => same } of cells) {
    if (left <= 0) break;
    const clean = visible(text);
    const shown = clean.length <= left ? clean : `${clean.slice(0, left - 1)}…`;
    parts.push(painted(shown));
    left -= shown.length + 1;
  }
  return parts.join(" ");
}

function terminalWidth(): number {
  return process.stdout.columns ?? (Number(process.env.COLUMNS) || Number.POSITIVE_INFINITY);
}

/** A word as a POSIX shell reads it back. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_.,:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

export function effectWord(effect: string): string {
  switch (effect) {
    case "permit":
      return paint.green("permit");
    case "challenge":
      return paint.yellow("challenge");
    case "deny":
      return paint.red("deny");
    default:
      return effect;
  }
}
