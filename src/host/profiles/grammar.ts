// A reader for GNU-style command lines. Only options in the table exist; abbreviations, unknown letters in a bundle and
// values where none belong are refused.

import type { ArgumentProblem } from "./profile.js";

/** What an option's value may be. `path` values are checked like every other file name. */
export type ValueRule = "number" | "text" | "path" | ((value: string) => string | undefined);

export interface OptionTable {
  /** Options without a value: `-l`, `--long`. */
  readonly flags: readonly string[];
  /** Options with a value: `-A`, `--glob`. */
  readonly values?: Readonly<Record<string, ValueRule>>;
}

export interface Parsed {
  /** Normal form: one flag an element; long values as `--name=value`, short ones as `-n` `value`. */
  readonly options: readonly string[];
  readonly positionals: readonly { readonly text: string; readonly index: number }[];
  /** Values of `path` options. */
  readonly paths: readonly string[];
  readonly seen: ReadonlyMap<string, string>;
}

export function parse(args: readonly string[], table: OptionTable): Parsed | ArgumentProblem {
  const reader = new Reader(args, table);
  return reader.read();
}

class Reader {
  readonly options: string[] = [];
  readonly positionals: { text: string; index: number }[] = [];
  readonly paths: string[] = [];
  readonly seen = new Map<string, string>();
  #index = 0;
  readonly #args: readonly string[];
  readonly #table: OptionTable;

  constructor(args: readonly string[], table: OptionTable) {
    this.#args = args;
    this.#table = table;
  }

  read(): Parsed | ArgumentProblem {
    let onlyPositionals = false;
    for (; this.#index < this.#args.length; this.#index++) {
      const arg = this.#args[this.#index] ?? "";
      const index = this.#index;
      if (onlyPositionals || arg === "-" || !arg.startsWith("-")) this.positionals.push({ text: arg, index });
      else if (arg === "--") onlyPositionals = true;
      else {
        const problem = arg.startsWith("--") ? this.#long(arg) : this.#short(arg);
        if (problem !== undefined) return { index, problem };
      }
    }
    return { options: this.options, positionals: this.positionals, paths: this.paths, seen: this.seen };
  }

  #long(arg: string): string | undefined {
    const equals = arg.indexOf("=");
    const name = equals < 0 ? arg : arg.slice(0, equals);
    if (this.#table.flags.includes(name)) {
      return equals < 0 ? this.#flag(name) : `option ${name} takes no value`;
    }
    const rule = this.#ruleFor(name);
    if (rule === undefined) return `option ${name} is not among those this profile allows`;
    const value = equals < 0 ? this.#next() : arg.slice(equals + 1);
    if (value === undefined) return `option ${name} needs a value`;
    return this.#value(name, rule, value, [`${name}=${value}`]);
  }

  #short(arg: string): string | undefined {
    if (this.#table.flags.includes(arg)) return this.#flag(arg);
    for (let i = 1; i < arg.length; i++) {
      const name = `-${arg[i]}`;
      const rule = this.#ruleFor(name);
      if (rule !== undefined) {
        const attached = arg.slice(i + 1);
        const value = attached === "" ? this.#next() : attached;
        if (value === undefined) return `option ${name} needs a value`;
        return this.#value(name, rule, value, [name, value]);
      }
      if (!this.#table.flags.includes(name)) return `option ${name} is not among those this profile allows`;
      this.#flag(name);
    }
    return undefined;
  }

  #ruleFor(name: string): ValueRule | undefined {
    const values = this.#table.values ?? {};
    return Object.hasOwn(values, name) ? values[name] : undefined;
  }

  #next(): string | undefined {
    return this.#args[++this.#index];
  }

  #flag(name: string): undefined {
    this.options.push(name);
    this.seen.set(name, "");
    return undefined;
  }

  #value(name: string, rule: ValueRule, value: string, form: readonly string[]): string | undefined {
    const problem = checkValue(rule, value);
    if (problem !== undefined) return `option ${name}: ${problem}`;
    if (rule === "path") this.paths.push(value);
    this.options.push(...form);
    this.seen.set(name, value);
    return undefined;
  }
}

function checkValue(rule: ValueRule, value: string): string | undefined {
  if (typeof rule === "function") return rule(value);
  if (rule === "number") return /^[0-9]{1,9}$/.test(value) ? undefined : "must be a whole number";
  return undefined;
}

/** `words("--all --long")`, `letters("la")`: tables that stay readable. */
export function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}

export function letters(text: string): string[] {
  return Array.from(text, (letter) => `-${letter}`);
}

/** A file name that no tool can take for an option or for its standard input. */
export function asPath(text: string): string {
  return text.startsWith("-") || text.startsWith("+") ? `./${text}` : text;
}
