// Macros that every policy can use without defining them.

import type { Macro } from "./macros.js";
import { readMacros } from "./source.js";

const TEXT = `
def temporal count_within(?window, ?event) {
  count for ($at: Timepoint). where formerly within ?window (?event && tp($at))
};
def temporal sum_within(?amount, ?window, ?event) {
  sum ?amount for (?amount: Long), ($at: Timepoint). where formerly within ?window (?event && tp($at))
};
def temporal count_distinct_within(?value, ?window, ?event) {
  count for (?value: String). where formerly within ?window ?event
};
def temporal bind(?name, ?value, ?condition) {
  exists (?name: Long). (?value == ?name && ?condition)
};
def temporal at_least(?n, ?window, ?event) {
  count_within(?window, ?event) >= ?n
};
def temporal happened(?window, ?event) {
  formerly within ?window (?event)
};
def temporal never_happened(?window, ?event) {
  !formerly within ?window (?event)
};
def temporal happened_since(?window, ?event, ?reset) {
  !(?reset) since within ?window (?event)
};
`;

let known: ReadonlyMap<string, Macro> | undefined;

export function macroLibrary(): ReadonlyMap<string, Macro> {
  known ??= readMacros(TEXT);
  return known;
}
