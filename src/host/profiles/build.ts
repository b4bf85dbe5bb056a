// npm and make. Both run the project's own code, which no reading of arguments makes harmless: they are for the sandbox
// only.

import { type OptionTable, parse, argumentWords } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

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
  name: "npm",
  execFromRoots: true,
  readOnly: false,
  needsSandbox: PROJECT_CODE,
  reservesAddressSpace: true,
  checkExecutable: () => undefined,
  // Variables beat a project's .npmrc, which could otherwise name a shell, a git or options for node.
  env: {
    NODE_OPTIONS: "",
    npm_config_userconfig: "/nonexistent/user-npmrc",
    npm_config_globalconfig: "/nonexistent/global-npmrc",
    npm_config_script_shell: "/bin/sh",
    npm_config_shell: "/bin/sh",
    npm_config_git: "git",
    npm_config_node_options: "",
    npm_config_editor: "false",
    npm_config_viewer: "cat",
    npm_config_browser: "false",
    npm_config_update_notifier: "false",
    npm_config_audit: "false",
    npm_config_fund: "false",
    npm_config_logs_max: "0",
    npm_config_yes: "false",
    npm_config_foreground_scripts: "false",
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
  name: "make",
  execFromRoots: true,
  readOnly: false,
  needsSandbox: PROJECT_CODE,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
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
