// Every way in which an option of a table may be typed, and the one spelling of each that its program surely knows.

import type { OptionTable, ValueRule } from "../../../src/host/profiles/grammar.js";

export interface Spelling {
  readonly option: string;
  /** As a caller might type it. */
  readonly typed: readonly string[];
  /** The same as the program's own manual has it. */
  readonly plain: readonly string[];
}

/** `sample` gives a value that shows whether it was understood. */
export function spellingsOf(table: OptionTable, sample: (option: string) => string | undefined): Spelling[] {
  const between = table.longValues === "word" ? " " : "=";
  return [
    ...table.flags.map((option) => ({ option, typed: [option], plain: [option] })),
    ...Object.entries(table.values ?? {}).flatMap(([option, rule]) => {
      const value = sample(option) ?? usual(rule, option);
      const isLong = option.startsWith("--");
      const plain = isLong && between === "=" ? [`${option}=${value}`] : [option, value];
      const joined = isLong ? `${option}=${value}` : option + value;
      return [[joined], [option, value]].map((typed) => ({ option, typed, plain }));
    }),
    ...Object.entries(table.optional ?? {}).flatMap(([option, rule]) => {
      const value = sample(option) ?? usual(rule, option);
      const joined = option.startsWith("--") ? `${option}=${value}` : option + value;
      const mayBeAlone = typeof rule !== "function" || rule("") === undefined;
      return [[joined], ...(mayBeAlone ? [[option]] : [])].map((typed) => ({ option, typed, plain: typed }));
    }),
  ];
}

function usual(rule: ValueRule, option: string): string {
  const value = rule === "number" ? "2" : "auto";
  if (rule === "number" || (typeof rule === "function" && rule(value) === undefined)) return value;
  throw new Error(`give a sample value for ${option} in spellings.test.ts`);
}
