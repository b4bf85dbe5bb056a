// npm, make and tar. The first two run the project's own code, which no reading of arguments makes harmless: they are
// for the sandbox only. tar's hatches are options.

import { asPath, parse, words } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

const NPM_VERBS: Readonly<Record<string, { flags: readonly string[]; words: number }>> = {
  test: { flags: ["--silent", "-s"], words: 0 },
  run: { flags: ["--silent", "-s", "--if-present"], words: 1 },
  ls: { flags: words("--all -a --json --long --parseable --prod"), words: 20 },
  explain: { flags: ["--json"], words: 5 },
  outdated: { flags: ["--json", "--long"], words: 20 },
  view: { flags: ["--json"], words: 3 },
  ci: { flags: ["--omit=dev", "--prefer-offline", "--offline"], words: 0 },
};

export const npm: Profile = {
  name: "npm",
  execFromRoots: true,
  needsSandbox: true,
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
  const [verb = "", ...rest] = args;
  const rule = Object.hasOwn(NPM_VERBS, verb) ? NPM_VERBS[verb] : undefined;
  if (rule === undefined)
    return { index: 0, problem: `the first argument must be one of ${Object.keys(NPM_VERBS).join(", ")}` };
  const names: string[] = [];
  const flags: string[] = [];
  for (const [i, arg] of rest.entries()) {
    if (rule.flags.includes(arg)) flags.push(arg);
    else if (/^[A-Za-z0-9@_][A-Za-z0-9@._:/-]*$/.test(arg) && names.length < rule.words) names.push(arg);
    else return { index: i + 1, problem: `npm ${verb} does not take ${arg} here` };
  }
  if (verb === "run" && names.length === 0) return { index: 0, problem: "npm run needs the name of a script" };
  const safe = verb === "ci" ? ["--ignore-scripts"] : [];
  return { argv: [verb, ...safe, ...flags, ...names], paths: [] };
}

const MAKE = {
  flags: words("-k -s -n -B -i --keep-going --silent --dry-run --always-make --no-print-directory"),
  values: { "-j": "number", "--jobs": "number" },
} as const;

export const make: Profile = {
  name: "make",
  execFromRoots: true,
  needsSandbox: true,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
  env: { MAKEFLAGS: "", GNUMAKEFLAGS: "", MAKEFILES: "", MAKELEVEL: "0", SHELL: "/bin/sh" },
  arrange(args) {
    const parsed = parse(args, MAKE);
    if ("problem" in parsed) return parsed;
    const bad = parsed.positionals.find((word) => !isTarget(word.text));
    if (bad !== undefined)
      return { index: bad.index, problem: `${bad.text} is neither a target nor a plain assignment` };
    return { argv: [...parsed.options, "--", ...parsed.positionals.map((word) => word.text)], paths: [] };
  },
};

function isTarget(text: string): boolean {
  if (/^[A-Za-z0-9_][A-Za-z0-9_./+-]*$/.test(text)) return !/(^|\/)\.\.(\/|$)/.test(text);
  const assignment = /^([A-Za-z_][A-Za-z0-9_]*)=[^$`\\]*$/.exec(text);
  return assignment !== null && !/^(SHELL|MAKE|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS)$/.test(assignment[1] ?? "");
}

const TAR = {
  flags: words(`
      -t -x -c -z -j -J -v -k -O -m --list --extract --create --gzip --bzip2 --xz --zstd --verbose
      --keep-old-files --to-stdout --touch`),
  values: {
    "-f": "path",
    "--file": "path",
    "-C": "path",
    "--directory": "path",
    "--strip-components": "number",
    "--exclude": "text",
  },
} as const;

export const tar: Profile = {
  name: "tar",
  execFromRoots: false,
  needsSandbox: false,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
  env: { TAR_OPTIONS: "", GZIP: "", BZIP2: "", XZ_OPT: "", XZ_DEFAULTS: "", TAPE: "" },
  arrange: arrangeTar,
};

function arrangeTar(args: readonly string[]): Arranged | ArgumentProblem {
  const parsed = parse(args, TAR);
  if ("problem" in parsed) return parsed;
  const modes = ["-t", "-x", "-c", "--list", "--extract", "--create"].filter((mode) => parsed.seen.has(mode));
  if (modes.length !== 1) return { index: 0, problem: "exactly one of -t, -x and -c is needed" };
  const file = parsed.seen.get("-f") ?? parsed.seen.get("--file");
  if (file === undefined || file === "-") return { index: 0, problem: "-f with the name of an archive is needed" };
  const creating = modes[0] === "-c" || modes[0] === "--create";
  const members = parsed.positionals.map((word) => asPath(word.text));
  // --force-local: `host:file` would start rsh. Owners and odd modes in the archive are not taken over.
  const safe = [
    "--force-local",
    "--no-same-owner",
    "--no-same-permissions",
    "--no-acls",
    "--no-selinux",
    "--no-xattrs",
  ];
  const paths = creating ? [...parsed.paths, ...members] : [...parsed.paths];
  return { argv: [...safe, ...parsed.options, "--", ...members], paths };
}
