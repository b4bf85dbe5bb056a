// A reader for GNU-style command lines. Only options in the table exist; abbreviations, unknown flags in a bundle and
// values where none belong are refused. What was read is written again in the one form that the program surely takes for
// the same: test/host/spellings.test.ts holds every table to the real program.

import type { ProfileName } from "../policy/document.js";

/** What an option's value may be. `path` values are checked like every other file name. */
export type ValueRule = "number" | "text" | "path" | ((value: string) => string | undefined);

export interface OptionTable {
  /** Options without a value: `-l`, `--long`. */
  readonly flags: readonly string[];
  /** Options that need a value, in the same word or in the next: `-A3`, `-A 3`, `--glob=x`, `--glob x`. */
  readonly values?: Readonly<Record<string, ValueRule>>;
  /** Options that may have a value, only in the same word: `-U5`, `--stat=80`, `--stat`. Alone, a function sees "". */
  readonly optional?: Readonly<Record<string, ValueRule>>;
  /** Values that options of `values` have when they are the last word. */
  readonly whenLast?: Readonly<Record<string, string>>;
  /** What stands between a long option and its value: GNU's programs know both, curl only a new word. */
  readonly longValues?: "equals" | "word";
}

export interface Given {
  readonly name: string;
  /** One flag an element; long values as `--name=value`, short ones as `-n` `value`, optional ones as `-nvalue`. */
  readonly form: readonly string[];
}

export interface Parsed {
  readonly given: readonly Given[];
  /** All forms, in order. */
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
  readonly given: Given[] = [];
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
    const { given, positionals, paths, seen } = this;
    return { given, options: given.flatMap(({ form }) => form), positionals, paths, seen };
  }

  #long(arg: string): string | undefined {
    const equals = arg.indexOf("=");
    const name = equals < 0 ? arg : arg.slice(0, equals);
    const attached = equals < 0 ? undefined : arg.slice(equals + 1);
    if (this.#table.flags.includes(name)) {
      return attached === undefined ? this.#take(name, "", [name]) : `option ${name} takes no value`;
    }
    const maybe = ruleFor(this.#table.optional, name);
    if (maybe !== undefined) {
      if (attached === "") return `option ${name} needs a value after =`;
      return this.#value(name, maybe, attached ?? "", [arg]);
    }
    const rule = ruleFor(this.#table.values, name);
    if (rule === undefined) return notAllowed(name);
    const value = attached ?? this.#next(name);
    if (value === undefined) return `option ${name} needs a value`;
    return this.#value(name, rule, value, this.#table.longValues === "word" ? [name, value] : [`${name}=${value}`]);
  }

  #short(arg: string): string | undefined {
    if (this.#table.flags.includes(arg)) return this.#take(arg, "", [arg]);
    for (let i = 1; i < arg.length; i++) {
      const name = `-${arg[i]}`;
      const attached = arg.slice(i + 1);
      const maybe = ruleFor(this.#table.optional, name);
      if (maybe !== undefined) return this.#value(name, maybe, attached, [name + attached]);
      const rule = ruleFor(this.#table.values, name);
      if (rule !== undefined) {
        const value = attached === "" ? this.#next(name) : attached;
        if (value === undefined) return `option ${name} needs a value`;
        return this.#value(name, rule, value, [name, value]);
      }
      if (!this.#table.flags.includes(name)) return notAllowed(name);
      this.#take(name, "", [name]);
    }
    return undefined;
  }

  #next(name: string): string | undefined {
    const word = this.#args[++this.#index];
    return word ?? this.#table.whenLast?.[name];
  }

  #value(name: string, rule: ValueRule, value: string, form: readonly string[]): string | undefined {
    const isAlone = value === "" && form.length === 1 && form[0] === name;
    const problem = isAlone && typeof rule !== "function" ? undefined : checkValue(rule, value);
    if (problem !== undefined) return `option ${name}: ${problem}`;
    if (rule === "path") this.paths.push(value);
    return this.#take(name, value, form);
  }

  #take(name: string, value: string, form: readonly string[]): undefined {
    this.given.push({ name, form });
    this.seen.set(name, value);
    return undefined;
  }
}

function ruleFor(rules: Readonly<Record<string, ValueRule>> | undefined, name: string): ValueRule | undefined {
  return rules !== undefined && Object.hasOwn(rules, name) ? rules[name] : undefined;
}

function notAllowed(name: string): string {
  return `option ${name} is not among those this profile allows`;
}

function checkValue(rule: ValueRule, value: string): string | undefined {
  if (typeof rule === "function") return rule(value);
  if (rule === "number") return /^[0-9]{1,9}$/.test(value) ? undefined : "must be a whole number";
  return undefined;
}

/** `argumentWords("--all --long")`, `flagLetters("la")`: tables that stay readable. */
export function argumentWords(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}

export function flagLetters(text: string): string[] {
  return Array.from(text, (flag) => `-${flag}`);
}

/** Variables with the same value. */
export function fixed(value: string, names: string): Record<string, string> {
  return Object.fromEntries(argumentWords(names).map((name) => [name, value]));
}

/** The same rule for several options. */
export function ruled(rule: ValueRule, names: string): Record<string, ValueRule> {
  return Object.fromEntries(argumentWords(names).map((name) => [name, rule]));
}

/** A rule for values: these words and no others. */
export function oneWord(...allowed: readonly string[]) {
  return (value: string): string | undefined =>
    allowed.includes(value) ? undefined : `must be one of ${allowed.filter((word) => word !== "").join(", ")}`;
}

/** A file name that no tool can take for an option or for its standard input. */
export function asPath(text: string): string {
  return text.startsWith("-") || text.startsWith("+") ? `./${text}` : text;
}

// What a curated profile is: the tool's command line read by its own rules, so that an option which would run programs,
// write files or read a hostile config is refused by name and the rest is put together again unambiguously.

export interface Arranged {
  /** The complete arguments, safe options first. */
  readonly argv: readonly string[];
  /** Arguments that name files: each must lie inside a root. */
  readonly paths: readonly string[];
}

export interface ArgumentProblem {
  /** Which of the caller's arguments. */
  readonly index: number;
  readonly problem: string;
}

export interface Profile {
  readonly name: ProfileName;
  /** Variables with fixed values; a caller can never set them. */
  readonly env: Readonly<Record<string, string>>;
  /** Builds start programs that lie in the roots. */
  readonly execFromRoots: boolean;
  /** It only looks: none of the policy's directories is writable to it, nor to a program that it starts. */
  readonly readOnly: boolean;
  /** Why it cannot be run with `sandbox: off`: what reading arguments does not make harmless. */
  readonly needsSandbox: string | undefined;
  /** Programs that reserve far more address space than they use cannot live under an address-space limit. */
  readonly reservesAddressSpace: boolean;
  /** Says why this build of the program cannot be made safe, if so. */
  checkExecutable(realPath: string): string | undefined;
  arrange(args: readonly string[]): Arranged | ArgumentProblem;
  /** Asked of the program itself first, in the same sandbox: settings that name programs, to be overridden. */
  readonly settings?: {
    /** The arguments that list them, from those of the call. */
    list(argv: readonly string[]): readonly string[];
    /** Settings of git, each with the value that switches it off, from what was printed. */
    off(printed: string): readonly (readonly [key: string, value: string])[];
  };
}

/** What a profile has unless it says otherwise: it only reads, and needs no sandbox to be harmless. */
export const READING: Pick<
  Profile,
  "execFromRoots" | "readOnly" | "needsSandbox" | "reservesAddressSpace" | "checkExecutable"
> = {
  execFromRoots: false,
  readOnly: true,
  needsSandbox: undefined,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
};

export function isProblem(value: Arranged | ArgumentProblem): value is ArgumentProblem {
  return "problem" in value;
}
