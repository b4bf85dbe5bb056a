// Tools that only read: ls, cat, grep, rg, jq. Their escape hatches are options that start programs (`rg --pre`), read
// option files, follow links, or read a second file under cover of an option.

import { basename } from "node:path";
import {
  type ArgumentProblem,
  type Arranged,
  argumentWords,
  asPath,
  flagLetters,
  type OptionTable,
  oneWord,
  type Parsed,
  type Profile,
  parse,
  READING,
  ruled,
} from "./grammar.js";

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
    ...flagLetters("laAh1RtrSdFisnogpqQBUXcuGZCxmkv"),
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
    ...ruled(oneWord("", "never", "auto", "always"), "--color --classify"),
  },
};

export const ls: Profile = {
  ...READING,
  name: "ls",
  env: { LS_COLORS: "", TZ: "UTC" },
  arrange: filesOnly(LS, [COLORLESS]),
};

export const CAT: OptionTable = {
  flags: [
    ...flagLetters("nbsAeEtTv"),
    ...argumentWords(`
      --number --number-nonblank --squeeze-blank --show-all --show-ends --show-tabs --show-nonprinting`),
  ],
};

export const cat: Profile = { ...READING, name: "cat", env: {}, arrange: filesOnly(CAT) };

export const GREP: OptionTable = {
  flags: [
    ...flagLetters("EFGPinvwxclLoqshHraIzT"),
    ...argumentWords(`
      --extended-regexp --fixed-strings --basic-regexp --perl-regexp --ignore-case --invert-match
      --word-regexp --line-regexp --count --files-with-matches --files-without-match --only-matching
      --line-number --with-filename --no-filename --recursive --text --quiet --no-messages --byte-offset`),
  ],
  values: {
    ...ruled("number", "-A -B -C -m --after-context --before-context --context --max-count"),
    ...ruled("text", "-e --regexp --include --exclude --exclude-dir"),
  },
  optional: {
    ...ruled(oneWord("", "never", "auto", "always"), "--color --colour"),
  },
};

export const grep: Profile = {
  ...READING,
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
    ...flagLetters("nNiSsFwxvclopPU0HIau"),
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
    ...ruled(
      "number",
      `-A -B -C -m -d -M -j --after-context --before-context --context --max-count --max-depth 
      --max-columns --threads`,
    ),
    ...ruled("text", "-g -t -T -e -r --max-filesize --glob --iglob --type --type-not --regexp --replace"),
    ...ruled(oneWord("none", "path", "modified", "accessed", "created"), "--sort --sortr"),
    "--color": oneWord("never", "auto", "always", "ansi"),
  },
};

export const rg: Profile = {
  ...READING,
  name: "rg",
  // Read even with --no-config by some builds' shells; fixed so that a caller cannot name one.
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
    ...flagLetters("rcnseSjaM"),
    ...argumentWords(`
      --raw-output --compact-output --null-input --slurp --exit-status --sort-keys --join-output
      --ascii-output --monochrome-output --tab --stream --seq --raw-input -R`),
  ],
};

export const jq: Profile = {
  ...READING,
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

// awk and sed: both can run programs and write files from inside their scripts, and both have a mode without that.

export const SED: OptionTable = {
  flags: argumentWords("-n -E -r -s -u -z --quiet --silent --regexp-extended --separate --posix --null-data"),
  values: { "-e": "text", "--expression": "text", "-l": "number", "--line-length": "number" },
};

export const sed: Profile = {
  ...READING,
  name: "sed",
  env: {},
  arrange(args) {
    const parsed = parse(args, SED);
    if ("problem" in parsed) return parsed;
    const rest = [...parsed.positionals];
    const gaveOne = parsed.seen.has("-e") || parsed.seen.has("--expression");
    const script = gaveOne ? undefined : rest.shift();
    if (!gaveOne && script === undefined) return { index: 0, problem: "a sed script is missing" };
    const files = rest.map((word) => asPath(word.text));
    // --sandbox refuses e, r and w at parse time; -i is not in the table.
    const scripts = script === undefined ? [] : ["-e", script.text];
    return { argv: ["--sandbox", ...parsed.options, ...scripts, "--", ...files], paths: files };
  },
};

export const AWK: OptionTable = {
  flags: [],
  values: {
    "-F": "text",
    "-v": (value) => (/^[A-Za-z_]\w*=/.test(value) ? undefined : "must look like name=value"),
  },
};

export const awk: Profile = {
  ...READING,
  name: "awk",
  env: { AWKPATH: "/nonexistent", AWKLIBPATH: "/nonexistent", GAWK_READ_TIMEOUT: "" },
  checkExecutable: (real) =>
    basename(real).startsWith("gawk")
      ? undefined
      : "only GNU awk (gawk) has a mode without system(), pipes and redirection",
  arrange: arrangeAwk,
};

function arrangeAwk(args: readonly string[]): Arranged | ArgumentProblem {
  const parsed = parse(args, AWK);
  if ("problem" in parsed) return parsed;
  const [program, ...files] = parsed.positionals;
  if (program === undefined) return { index: 0, problem: "an awk program is missing" };
  if (/@\s*(include|load|namespace)/.test(program.text)) {
    return { index: program.index, problem: "@include and @load read other files and are not allowed" };
  }
  const paths = files.map((file) => asPath(file.text));
  return { argv: ["--sandbox", ...parsed.options, "--", program.text, ...paths], paths };
}

// find: the expression is a language of its own with verbs that run programs, delete and write files. Only tests and
// plain printing remain.

export const ALONE: ReadonlySet<string> = new Set([
  "-print",
  "-print0",
  "-ls",
  "-empty",
  "-prune",
  "-quit",
  "-not",
  "!",
  "-a",
  "-and",
  "-o",
  "-or",
  "(",
  ")",
]);
export const DEPTH: ReadonlySet<string> = new Set(["-maxdepth", "-mindepth"]);
export const WITH_VALUE: Readonly<Record<string, RegExp>> = {
  "-name": /^/,
  "-iname": /^/,
  "-path": /^/,
  "-ipath": /^/,
  "-regex": /^/,
  "-iregex": /^/,
  "-lname": /^/,
  "-type": /^[fdlbcps](,[fdlbcps])*$/,
  "-size": /^[+-]?[0-9]{1,18}[cwbkMG]?$/,
  "-mtime": /^[+-]?[0-9]{1,9}$/,
  "-mmin": /^[+-]?[0-9]{1,9}$/,
  "-atime": /^[+-]?[0-9]{1,9}$/,
  "-ctime": /^[+-]?[0-9]{1,9}$/,
  "-perm": /^[-/]?[0-7]{1,4}$/,
  "-links": /^[+-]?[0-9]{1,9}$/,
  "-printf": /^/,
};
/** Their value is a file, looked at like those to start from. */
export const WITH_FILE: ReadonlySet<string> = new Set(["-newer", "-anewer", "-cnewer"]);

export const find: Profile = {
  ...READING,
  name: "find",
  env: {},
  arrange,
};

function arrange(args: readonly string[]): Arranged | ArgumentProblem {
  const paths: string[] = [];
  const compared: string[] = [];
  const depth: string[] = [];
  const expression: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? "";
    const isExpression = arg.startsWith("-") || arg === "(" || arg === ")" || arg === "!";
    if (!isExpression && expression.length === 0 && depth.length === 0) {
      paths.push(asPath(arg));
      continue;
    }
    if (ALONE.has(arg)) {
      expression.push(arg);
      continue;
    }
    if (WITH_FILE.has(arg)) {
      const file = args[++i];
      if (file === undefined || file === "") return { index: i, problem: `${arg} needs the name of a file` };
      expression.push(arg, asPath(file));
      compared.push(asPath(file));
      continue;
    }
    const rule = DEPTH.has(arg) ? /^[0-9]{1,4}$/ : Object.hasOwn(WITH_VALUE, arg) ? WITH_VALUE[arg] : undefined;
    if (rule === undefined) return { index: i, problem: `${arg} is not among the tests this profile allows` };
    const value = args[++i];
    if (value === undefined || !rule.test(value)) return { index: i, problem: `${arg} needs a fitting value` };
    (DEPTH.has(arg) ? depth : expression).push(arg, value);
  }
  const from = paths.length === 0 ? ["."] : paths;
  // -P: links are shown, never followed.
  return { argv: ["-P", ...from, ...depth, ...expression], paths: [...paths, ...compared] };
}
