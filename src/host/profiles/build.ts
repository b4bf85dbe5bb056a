// npm and make. Both run the project's own code, which no reading of arguments makes harmless: they are for the sandbox
// only.

import {
  type ArgumentProblem,
  type Arranged,
  argumentWords,
  asPath,
  fixed,
  type OptionTable,
  type Parsed,
  type Profile,
  parse,
  READING,
  ruled,
} from "./grammar.js";

const PROJECT_CODE = "runs a project's own code";

interface NpmVerb {
  readonly flags: readonly string[];
  readonly words: number;
  /** Words after `--` go to the project's script. */
  readonly passesOn?: true;
}

const SCRIPT_FLAGS = ["--silent", "-s", "--if-present"];
export const NPM_VERBS: Readonly<Record<string, NpmVerb>> = {
  test: { flags: SCRIPT_FLAGS, words: 0, passesOn: true },
  run: { flags: SCRIPT_FLAGS, words: 1, passesOn: true },
  ls: { flags: argumentWords("--all -a --json --long --parseable --prod"), words: 20 },
  explain: { flags: ["--json"], words: 5 },
  outdated: { flags: ["--json", "--long"], words: 20 },
  view: { flags: ["--json"], words: 3 },
  ci: { flags: ["--omit=dev", "--prefer-offline", "--offline"], words: 0 },
  "--version": { flags: [], words: 0 },
};
const NPM_ALIASES: Readonly<Record<string, string>> = { t: "test", "run-script": "run", list: "ls", "-v": "--version" };

/** npm puts them into a line for the shell and has not always quoted well: nothing a shell would act on. */
const SCRIPT_WORD = /^[A-Za-z0-9@%_+=:,./^~*?[\]{} -]*$/;

export const npm: Profile = {
  ...READING,
  name: "npm",
  execFromRoots: true,
  readOnly: false,
  needsSandbox: PROJECT_CODE,
  reservesAddressSpace: true,
  // Variables beat a project's .npmrc, which could otherwise name a shell, a git or options for node.
  env: {
    ...fixed("", "NODE_OPTIONS npm_config_node_options"),
    npm_config_userconfig: "/nonexistent/user-npmrc",
    npm_config_globalconfig: "/nonexistent/global-npmrc",
    ...fixed("/bin/sh", "npm_config_script_shell npm_config_shell"),
    npm_config_git: "git",
    ...fixed(
      "false",
      "npm_config_editor npm_config_browser npm_config_update_notifier npm_config_audit npm_config_fund npm_config_yes npm_config_foreground_scripts",
    ),
    npm_config_viewer: "cat",
    npm_config_logs_max: "0",
  },
  arrange: arrangeNpm,
};

function arrangeNpm(args: readonly string[]): Arranged | ArgumentProblem {
  const [asked = "", ...rest] = args;
  const verb = Object.hasOwn(NPM_ALIASES, asked) ? (NPM_ALIASES[asked] ?? asked) : asked;
  const rule = Object.hasOwn(NPM_VERBS, verb) ? NPM_VERBS[verb] : undefined;
  if (rule === undefined)
    return { index: 0, problem: `the first argument must be one of ${Object.keys(NPM_VERBS).join(", ")}` };
  const cut = rule.passesOn === true ? rest.indexOf("--") : -1;
  const own = cut < 0 ? rest : rest.slice(0, cut);
  const passed = cut < 0 ? [] : rest.slice(cut + 1);
  const names: string[] = [];
  const flags: string[] = [];
  for (const [i, arg] of own.entries()) {
    if (rule.flags.includes(arg)) flags.push(arg);
    else if (/^[A-Za-z0-9@_][A-Za-z0-9@._:/-]*$/.test(arg) && names.length < rule.words) names.push(arg);
    else return { index: i + 1, problem: `npm ${verb} does not take ${arg} here` };
  }
  const bad = passed.findIndex((word) => !SCRIPT_WORD.test(word));
  if (bad >= 0)
    return { index: cut + bad + 2, problem: "quotes and signs of the shell are not passed to a project's script" };
  const safe = verb === "ci" ? ["--ignore-scripts"] : [];
  const tail = passed.length === 0 ? [] : ["--", ...passed];
  return { argv: [verb, ...safe, ...flags, ...names, ...tail], paths: [] };
}

export const MAKE: OptionTable = {
  flags: argumentWords(
    "-k -s -n -B -i -w --keep-going --silent --quiet --dry-run --just-print --always-make --no-print-directory",
  ),
  values: { "-C": "path", "--directory": "path" },
  optional: { "-j": "number", "--jobs": "number" },
};

export const make: Profile = {
  ...READING,
  name: "make",
  execFromRoots: true,
  readOnly: false,
  needsSandbox: PROJECT_CODE,
  env: { MAKEFLAGS: "", GNUMAKEFLAGS: "", MAKEFILES: "", MAKELEVEL: "0", SHELL: "/bin/sh" },
  arrange: arrangeMake,
};

function arrangeMake(args: readonly string[]): Arranged | ArgumentProblem {
  const { joined, origin } = joinJobs(args);
  const parsed = parse(joined, MAKE);
  if ("problem" in parsed) return { index: origin[parsed.index] ?? 0, problem: parsed.problem };
  // The second would start from the first, where its name was not looked at.
  if (parsed.paths.length > 1) return { index: 0, problem: "-C can be given once" };
  const bad = parsed.positionals.find((word) => !isTarget(word.text));
  if (bad !== undefined)
    return { index: origin[bad.index] ?? 0, problem: `${bad.text} is neither a target nor a plain assignment` };
  return { argv: [...parsed.options, "--", ...parsed.positionals.map((word) => word.text)], paths: parsed.paths };
}

/** `-j` takes the next word when it is a number, and only then. */
function joinJobs(args: readonly string[]): { joined: string[]; origin: number[] } {
  const joined: string[] = [];
  const origin: number[] = [];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? "";
    const next = args[i + 1] ?? "";
    origin.push(i);
    if ((arg === "-j" || arg === "--jobs") && /^[0-9]+$/.test(next)) {
      joined.push(arg === "-j" ? `-j${next}` : `--jobs=${next}`);
      i++;
    } else joined.push(arg);
  }
  return { joined, origin };
}

function isTarget(text: string): boolean {
  if (/^[A-Za-z0-9_][A-Za-z0-9_./+-]*$/.test(text)) return !/(^|\/)\.\.(\/|$)/.test(text);
  const assignment = /^([A-Za-z_][A-Za-z0-9_]*)=[^$`\\]*$/.exec(text);
  return assignment !== null && !/^(SHELL|MAKE|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS)$/.test(assignment[1] ?? "");
}

// tar's hatches are options, and those are left out. What it writes is the archive's choice, and a link that stands in the
// directory already leads it anywhere: it is for the sandbox only.

export const TAR: OptionTable = {
  flags: argumentWords(`
      -t -x -c -z -j -J -v -k -O -m --list --extract --get --create --gzip --bzip2 --xz --zstd --verbose
      --keep-old-files --to-stdout --touch`),
  values: {
    ...ruled("path", "-f --file -C --directory"),
    "--strip-components": "number",
    "--exclude": "text",
  },
};

/** `--force-local`: `host:file` would start rsh. Owners and odd modes in the archive are not taken over. */
const SAFE = argumentWords("--force-local --no-same-owner --no-same-permissions --no-acls --no-selinux --no-xattrs");

export const tar: Profile = {
  ...READING,
  name: "tar",
  readOnly: false,
  needsSandbox: "writes where an archive and the links it meets say",
  env: { TAR_OPTIONS: "", GZIP: "", BZIP2: "", XZ_OPT: "", XZ_DEFAULTS: "", TAPE: "" },
  arrange,
};

function arrange(args: readonly string[]): Arranged | ArgumentProblem {
  const spelled = fromOldStyle(args);
  if ("problem" in spelled) return spelled;
  const { origin } = spelled;
  const parsed = parse(spelled.args, TAR);
  if ("problem" in parsed) return { index: origin[parsed.index] ?? 0, problem: parsed.problem };
  const modes = argumentWords("-t -x -c --list --extract --get --create").filter((mode) => parsed.seen.has(mode));
  if (modes.length !== 1) return { index: 0, problem: "exactly one of -t, -x and -c is needed" };
  const file = parsed.seen.get("-f") ?? parsed.seen.get("--file");
  if (file === undefined || file === "-") return { index: 0, problem: "-f with the name of an archive is needed" };
  const members = parsed.positionals.map((word) => asPath(word.text));
  const isCreating = modes[0] === "-c" || modes[0] === "--create";
  const named = isCreating ? whereMembersAre(parsed, members) : [];
  if ("problem" in named) return named;
  return { argv: [...SAFE, ...parsed.options, "--", ...members], paths: [...parsed.paths, ...named] };
}

/** tar looks for members in the directory of -C; the archive itself stays where the command started. */
function whereMembersAre(parsed: Parsed, members: readonly string[]): string[] | ArgumentProblem {
  const directories = parsed.given.filter(({ name }) => name === "-C" || name === "--directory");
  const directory = parsed.seen.get("-C") ?? parsed.seen.get("--directory");
  if (directory === undefined) return [...members];
  if (directories.length > 1) return { index: 0, problem: "-C can be given once" };
  // After a link, `..` is not where the text says.
  if (members.some((member) => /(^|\/)\.\.(\/|$)/.test(member)))
    return { index: 0, problem: "with -C, names are below the directory" };
  return members.map((member) => (member.startsWith("/") ? member : `${asPath(directory)}/${member}`));
}

/** `tzf a.tgz`: flags without a dash, their values in the words that follow, in order. */
function fromOldStyle(args: readonly string[]): { args: string[]; origin: number[] } | ArgumentProblem {
  const [first = ""] = args;
  if (first === "" || first.startsWith("-")) return { args: [...args], origin: [...args.keys()] };
  const spelled: string[] = [];
  const origin: number[] = [];
  let next = 1;
  const push = (text: string, index: number): void => {
    spelled.push(text);
    origin.push(index);
  };
  for (const flag of first) {
    push(`-${flag}`, 0);
    if (!Object.hasOwn(TAR.values ?? {}, `-${flag}`)) continue;
    const value = args[next];
    if (value === undefined) return { index: 0, problem: `option ${flag} needs a value` };
    push(value, next++);
  }
  for (; next < args.length; next++) push(args[next] ?? "", next);
  return { args: spelled, origin };
}
