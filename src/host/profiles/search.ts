// Tools that only read: ls, cat, grep, rg, jq. Their escape hatches are options that start programs (`rg --pre`), read
// option files, follow links, or read a second file under cover of an option.

import { asPath, letters, oneWord, type OptionTable, type Parsed, parse, argumentWords } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

const PLAIN: Pick<Profile, "execFromRoots" | "readOnly" | "needsSandbox" | "reservesAddressSpace" | "checkExecutable"> =
  {
    execFromRoots: false,
    readOnly: true,
    needsSandbox: undefined,
    reservesAddressSpace: false,
    checkExecutable: () => undefined,
  };

function filesOnly(table: OptionTable, after: readonly string[] = []) {
  return (args: readonly string[]): Arranged | ArgumentProblem => {
    const parsed = parse(args, table);
    if ("problem" in parsed) return parsed;
    const stdin = parsed.positionals.find((p) => p.text === "-");
    if (stdin !== undefined) return { index: stdin.index, problem: "- is not a file name here" };
    const files = parsed.positionals.map((p) => asPath(p.text));
    return { argv: [...parsed.options, ...after, "--", ...files], paths: [...parsed.paths, ...files] };
  };
}

/** The first word is a pattern unless an option gave one; after `-e` it cannot be taken for an option. */
function patternThenFiles(parsed: Parsed, before: readonly string[], gaveOne: boolean): Arranged | ArgumentProblem {
  const rest = [...parsed.positionals];
  const pattern = gaveOne ? undefined : rest.shift();
  if (!gaveOne && pattern === undefined) return { index: 0, problem: "a search pattern is missing" };
  const files = rest.map((p) => asPath(p.text));
  const search = pattern === undefined ? [] : ["-e", pattern.text];
  return {
    argv: [...before, ...parsed.options, COLORLESS, ...search, "--", ...files],
    paths: [...parsed.paths, ...files],
  };
}

/** Comes after the caller's options, so that whatever they say about colours there are none. */
const COLORLESS = "--color=never";

export const LS: OptionTable = {
  flags: [
    ...letters("laAh1RtrSdFisnogpqQBUXcuGZCxmkv"),
    ...argumentWords(`
      --all --almost-all --human-readable --recursive --reverse --directory --size --inode
      --numeric-uid-gid --no-group --group-directories-first --full-time --si --escape`),
  ],
  values: {
    "--sort": oneWord("none", "size", "time", "version", "extension"),
    "--time": oneWord("atime", "access", "ctime", "status", "birth"),
    "--format": oneWord("across", "commas", "horizontal", "long", "single-column", "verbose", "vertical"),
    "--ignore": "text",
    "-I": "text",
    "-w": "number",
    "--width": "number",
    "--time-style": oneWord("full-iso", "long-iso", "iso"),
  },
  optional: {
    "--color": oneWord("", "never", "auto", "always"),
    "--classify": oneWord("", "never", "auto", "always"),
  },
};

export const ls: Profile = {
  ...PLAIN,
  name: "ls",
  env: { LS_COLORS: "", TZ: "UTC" },
  arrange: filesOnly(LS, [COLORLESS]),
};

export const CAT: OptionTable = {
  flags: [
    ...letters("nbsAeEtTv"),
    ...argumentWords(`
      --number --number-nonblank --squeeze-blank --show-all --show-ends --show-tabs --show-nonprinting`),
  ],
};

export const cat: Profile = { ...PLAIN, name: "cat", env: {}, arrange: filesOnly(CAT) };

export const GREP: OptionTable = {
  flags: [
    ...letters("EFGPinvwxclLoqshHraIzT"),
    ...argumentWords(`
      --extended-regexp --fixed-strings --basic-regexp --perl-regexp --ignore-case --invert-match
      --word-regexp --line-regexp --count --files-with-matches --files-without-match --only-matching
      --line-number --with-filename --no-filename --recursive --text --quiet --no-messages --byte-offset`),
  ],
  values: {
    "-A": "number",
    "-B": "number",
    "-C": "number",
    "-m": "number",
    "-e": "text",
    "--after-context": "number",
    "--before-context": "number",
    "--context": "number",
    "--max-count": "number",
    "--regexp": "text",
    "--include": "text",
    "--exclude": "text",
    "--exclude-dir": "text",
  },
  optional: {
    "--color": oneWord("", "never", "auto", "always"),
    "--colour": oneWord("", "never", "auto", "always"),
  },
};

export const grep: Profile = {
  ...PLAIN,
  name: "grep",
  env: { GREP_COLOR: "", GREP_COLORS: "" },
  arrange(args) {
    // `-5` is five lines of context.
    const parsed = parse(
      args.map((arg) => (/^-[0-9]{1,9}$/.test(arg) ? `-C${arg.slice(1)}` : arg)),
      GREP,
    );
    if ("problem" in parsed) return parsed;
    // Devices and pipes would be waited on; links met on the way down are not followed by -r.
    const gaveOne = parsed.seen.has("-e") || parsed.seen.has("--regexp");
    return patternThenFiles(parsed, ["--devices=skip"], gaveOne);
  },
};

export const RG: OptionTable = {
  flags: [
    ...letters("nNiSsFwxvclopPU0HIau"),
    ...argumentWords(`
      --line-number --no-line-number --ignore-case --smart-case --case-sensitive --fixed-strings
      --word-regexp --line-regexp --invert-match --count --count-matches --files-with-matches
      --files-without-match --only-matching --pretty --pcre2 --multiline --multiline-dotall --null --hidden --no-ignore
      --no-ignore-vcs --no-heading --heading --files --json --vimgrep --stats --column --no-column --trim
      --text --no-messages --with-filename --no-filename --type-list --quiet`),
    "-.",
    "-q",
  ],
  values: {
    "-A": "number",
    "-B": "number",
    "-C": "number",
    "-m": "number",
    "-d": "number",
    "-g": "text",
    "-t": "text",
    "-T": "text",
    "-e": "text",
    "-M": "number",
    "-r": "text",
    "-j": "number",
    "--after-context": "number",
    "--before-context": "number",
    "--context": "number",
    "--max-count": "number",
    "--max-depth": "number",
    "--max-columns": "number",
    "--max-filesize": "text",
    "--glob": "text",
    "--iglob": "text",
    "--type": "text",
    "--type-not": "text",
    "--regexp": "text",
    "--replace": "text",
    "--sort": oneWord("none", "path", "modified", "accessed", "created"),
    "--sortr": oneWord("none", "path", "modified", "accessed", "created"),
    "--threads": "number",
    "--color": oneWord("never", "auto", "always", "ansi"),
  },
};

export const rg: Profile = {
  ...PLAIN,
  name: "rg",
  // Read even with --no-config by some builds' shells; fixed so that nobody can name one.
  env: { RIPGREP_CONFIG_PATH: "" },
  arrange(args) {
    const parsed = parse(args, RG);
    if ("problem" in parsed) return parsed;
    const gaveOne = ["-e", "--regexp", "--files", "--type-list"].some((name) => parsed.seen.has(name));
    return patternThenFiles(parsed, ["--no-config", "--no-follow"], gaveOne);
  },
};

export const JQ: OptionTable = {
  flags: [
    ...letters("rcnseSjaM"),
    ...argumentWords(`
      --raw-output --compact-output --null-input --slurp --exit-status --sort-keys --join-output
      --ascii-output --monochrome-output --tab --stream --seq --raw-input -R`),
  ],
};

export const jq: Profile = {
  ...PLAIN,
  name: "jq",
  env: { JQ_COLORS: "", JQ_LIBRARY_PATH: "" },
  arrange: arrangeJq,
};

/** `--arg name value` takes two words and `--indent` one, which the general reader does not know. */
function arrangeJq(args: readonly string[]): Arranged | ArgumentProblem {
  const plain: string[] = [];
  const named: string[] = [];
  const origin: number[] = [];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? "";
    if (arg === "--arg" || arg === "--argjson") {
      const name = args[i + 1];
      const value = args[i + 2];
      if (name === undefined || value === undefined || !/^[A-Za-z_]\w*$/.test(name)) {
        return { index: i, problem: `${arg} needs a name and a value` };
      }
      named.push(arg, name, value);
      i += 2;
    } else if (arg === "--indent") {
      const width = args[++i] ?? "";
      if (!/^[0-7]$/.test(width)) return { index: i, problem: "--indent needs a number from 0 to 7" };
      named.push(arg, width);
    } else {
      plain.push(arg);
      origin.push(i);
    }
  }
  const parsed = parse(plain, JQ);
  if ("problem" in parsed) return { index: origin[parsed.index] ?? 0, problem: parsed.problem };
  const [program, ...files] = parsed.positionals;
  if (program === undefined) return { index: 0, problem: "a jq program is missing" };
  if (/\b(import|include|modulemeta|get_search_list)\b/.test(program.text)) {
    return { index: origin[program.index] ?? 0, problem: "import and include read other files and are not allowed" };
  }
  const paths = files.map((file) => asPath(file.text));
  // jq has no safe end-of-options before 1.7, and a program that begins with a dash would be one.
  const shown = program.text.startsWith("-") ? ` ${program.text}` : program.text;
  return { argv: ["--monochrome-output", ...parsed.options, ...named, shown, ...paths], paths };
}
