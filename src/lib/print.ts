// Data on stdout, everything else on stderr. Colour only on a terminal, and not with NO_COLOR.

import pc from "picocolors";
import { visible } from "./visible.js";

export interface Out {
  readonly json: boolean;
  /** Data: JSON when it was asked for, otherwise the given text. */
  data(value: unknown, text: () => string): void;
  /** One line of a stream of data. */
  line(value: unknown, text: () => string): void;
  /** For the operator at the terminal. */
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

const GAP = "  ";
const MIN_COLUMN = 6;

/**
 * A table of texts that came from outside: nothing in them can move the cursor or fake a row. On a terminal the widest
 * columns are cut until each row is one line, the first one last; piped output is whole.
 */
export function table(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  width: number = terminalWidth(),
): string {
  const clean = rows.map((row) => row.map((cell) => visible(cell)));
  const widths = head.map((title, i) =>
    Math.max(displayWidth(title), ...clean.map((row) => displayWidth(row[i] ?? ""))),
  );
  shrink(widths, width);
  const line = (cells: readonly string[], painted: (text: string) => string): string =>
    cells
      .map((cell, i) => padded(cell, widths[i] as number, painted))
      .join(GAP)
      .trimEnd();
  return [line(head, paint.bold), ...clean.map((row) => line(row, (text) => text))].join("\n");
}

/** A table with one row for each item, or the text `none` where there is no item. */
export function tableOf<T>(
  items: readonly T[],
  none: string,
  columns: Readonly<Record<string, (item: T) => string>>,
): string {
  if (items.length === 0) return none;
  const cells = Object.values(columns);
  return table(
    Object.keys(columns),
    items.map((item) => cells.map((cell) => cell(item))),
  );
}

/**
 * Takes from the widest column first, and leaves each something to read. The first column is cut last: it has the name or
 * the id that the next command needs.
 */
function shrink(widths: number[], width: number): void {
  let excess = widths.reduce((sum, each) => sum + each, 0) + GAP.length * (widths.length - 1) - width;
  while (excess > 0) {
    const [first = 0, ...others] = widths;
    const widest = Math.max(...others);
    if (widest > MIN_COLUMN) widths[widths.lastIndexOf(widest)] = widest - 1;
    else if (first > MIN_COLUMN) widths[0] = first - 1;
    else return;
    excess--;
  }
}

function padded(text: string, width: number, painted: (text: string) => string): string {
  const shown = cut(text, width);
  return `${painted(shown)}${" ".repeat(Math.max(0, width - displayWidth(shown)))}`;
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const ZERO = /[\p{Mn}\p{Me}\u200b-\u200f\ufe0e\ufe0f]/u;

/** Columns of a terminal that a text takes. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const char of text) width += ZERO.test(char) ? 0 : WIDE.test(char) ? 2 : 1;
  return width;
}

/** The text, or as much of its beginning as fits with `…` behind it. */
function cut(text: string, width: number): string {
  if (displayWidth(text) <= width) return text;
  let shown = "";
  let left = width - 1;
  for (const char of text) {
    left -= displayWidth(char);
    if (left < 0) break;
    shown += char;
  }
  return `${shown}…`;
}

export interface Cell {
  readonly text: string;
  /** Cells before it are cut so that this one is whole. */
  readonly isKept?: boolean;
  readonly paint?: (text: string) => string;
}

/** One line of cells, cut where the terminal ends; whole where the output is not a terminal. */
export function fitted(cells: readonly Cell[], width: number = terminalWidth()): string {
  const widthOf = ({ text }: Cell): number => displayWidth(visible(text)) + 1;
  let reserved = cells.filter(({ isKept }) => isKept).reduce((sum, cell) => sum + widthOf(cell), 0);
  let left = width;
  const parts: string[] = [];
  for (const cell of cells) {
    if (cell.isKept) reserved -= widthOf(cell);
    const room = left - reserved;
    if (room <= 0) continue;
    const shown = cut(visible(cell.text), room);
    parts.push(cell.paint === undefined ? shown : cell.paint(shown));
    left -= displayWidth(shown) + 1;
  }
  return parts.join(" ");
}

/** Only a terminal has one: what is piped is not cut, whatever COLUMNS holds. */
function terminalWidth(): number {
  return process.stdout.isTTY === true ? process.stdout.columns || 80 : Number.POSITIVE_INFINITY;
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
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
