// git, for looking. A repository's own config can name programs in a dozen places and its attributes can call them; the
// options below switch off what can be switched off, and the sandbox holds what cannot (clean filters).

import { asPath, type OptionTable, type Parsed, parse, type ValueRule, words } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

const SAFE_CONFIG = [
  "core.fsmonitor=false",
  "core.hooksPath=/dev/null",
  "core.pager=cat",
  "core.sshCommand=false",
  "core.askPass=true",
  "core.editor=false",
  "core.attributesFile=/dev/null",
  "core.alternateRefsCommand=true",
  "core.gitProxy=",
  "credential.helper=",
  "diff.submodule=short",
  "gc.auto=0",
  "maintenance.auto=false",
  "gpg.program=false",
  "gpg.ssh.program=false",
  "gpg.x509.program=false",
  "log.showSignature=false",
  "protocol.allow=never",
  "status.submoduleSummary=false",
  "submodule.recurse=false",
  "uploadpack.packObjectsHook=",
];

const GLOBAL = [
  "--no-pager",
  "--no-optional-locks",
  "--no-replace-objects",
  ...SAFE_CONFIG.flatMap((entry) => ["-c", entry]),
];

/** `-p` and its relatives would otherwise start the repository's diff programs. */
const NO_PROGRAMS = ["--no-ext-diff", "--no-textconv"];

const DIFF_FLAGS = words(`
      -p -u --patch -s --no-patch --stat --shortstat --numstat --dirstat --summary --raw --name-only
      --name-status --check --full-index --binary -R -a --text -w -b -z --ignore-all-space
      --ignore-space-change --ignore-blank-lines --word-diff --minimal --patience --histogram -M -C --find-renames
      --find-copies --no-renames --no-color --patch-with-stat --compact-summary`);
const DIFF_VALUES: Readonly<Record<string, ValueRule>> = {
  "-U": "number",
  "--unified": "number",
  "-S": "text",
  "-G": "text",
  "--diff-filter": word(/^[ACDMRTUXBacdmrtuxb*]{1,16}$/),
  "--diff-algorithm": word(/^(patience|minimal|histogram|myers|default)$/),
  "--inter-hunk-context": "number",
};
const LOG_FLAGS = [
  ...DIFF_FLAGS,
  ...words(`
      --oneline --graph --decorate --no-decorate --all --branches --tags --remotes --merges --no-merges
      --first-parent --reverse --follow --abbrev-commit --no-abbrev-commit --parents --children -i -E -F
      --topo-order --date-order --author-date-order --no-notes --regexp-ignore-case --fixed-strings --cc
      -m -c`),
];
const LOG_VALUES: Readonly<Record<string, ValueRule>> = {
  ...DIFF_VALUES,
  "-n": "number",
  "--max-count": "number",
  "--skip": "number",
  "--since": "text",
  "--after": "text",
  "--until": "text",
  "--before": "text",
  "--author": "text",
  "--committer": "text",
  "--grep": "text",
  "--format": "text",
  "--pretty": "text",
  "--date": word(/^(relative|local|iso|iso-strict|iso8601|rfc|short|raw|human|unix|default|format:.{1,100})$/),
  "--abbrev": "number",
};

type Positionals = "revisionsAndPaths" | "paths" | "revisions" | "glob" | "searchThenRevisions";

interface Subcommand extends OptionTable {
  readonly before?: readonly string[];
  readonly positionals: Positionals;
  /** Without it, words after the subcommand would create something. */
  readonly always?: readonly string[];
}

const SUBCOMMANDS: Readonly<Record<string, Subcommand>> = {
  status: {
    flags: words(`
      --porcelain --short -s -b --branch --long -z --ignored --show-stash -v --no-renames -uno -uall
      -unormal`),
    values: { "--untracked-files": word(/^(no|normal|all)$/) },
    before: ["--ignore-submodules=dirty"],
    positionals: "paths",
  },
  log: { flags: LOG_FLAGS, values: LOG_VALUES, before: NO_PROGRAMS, positionals: "revisionsAndPaths" },
  show: { flags: LOG_FLAGS, values: LOG_VALUES, before: NO_PROGRAMS, positionals: "revisionsAndPaths" },
  diff: {
    flags: [...DIFF_FLAGS, "--cached", "--staged", "--merge-base", "--exit-code", "--quiet"],
    values: DIFF_VALUES,
    before: [...NO_PROGRAMS, "--ignore-submodules=dirty"],
    positionals: "revisionsAndPaths",
  },
  branch: {
    flags: words("-a --all -r --remotes -v -vv --list -l --show-current --no-color -i"),
    values: {
      "--contains": "text",
      "--merged": "text",
      "--no-merged": "text",
      "--sort": "text",
      "--format": "text",
      "--points-at": "text",
    },
    always: ["--list"],
    positionals: "glob",
  },
  tag: {
    flags: ["-l", "--list", "-n", "--no-color", "-i"],
    values: {
      "--contains": "text",
      "--merged": "text",
      "--no-merged": "text",
      "--sort": "text",
      "--format": "text",
      "--points-at": "text",
    },
    always: ["--list"],
    positionals: "glob",
  },
  "rev-parse": {
    flags: words(`
      --short --verify --quiet -q --abbrev-ref --symbolic-full-name --show-toplevel --show-prefix
      --is-inside-work-tree --is-bare-repository --show-cdup`),
    positionals: "revisions",
  },
  describe: {
    flags: words("--all --tags --long --always --dirty --contains --exact-match --first-parent"),
    values: { "--abbrev": "number", "--match": "text", "--exclude": "text", "--candidates": "number" },
    positionals: "revisions",
  },
  blame: {
    flags: words("-w -M -C -e -l -s -t -n -f --porcelain --line-porcelain --show-email --root"),
    values: { "-L": "text", "--since": "text", "--abbrev": "number", "--date": "text" },
    before: ["--no-textconv"],
    positionals: "revisionsAndPaths",
  },
  "ls-files": {
    flags: words(`
      -c -d -m -o -i -s -u -k -t -v -z --cached --deleted --modified --others --ignored --stage --unmerged
      --exclude-standard --full-name --eol`),
    positionals: "paths",
  },
  shortlog: {
    flags: words("-s -n -e --summary --numbered --email --all --no-merges"),
    values: { "--since": "text", "--until": "text" },
    positionals: "revisions",
  },
  grep: {
    flags: words(`
      -i -n -l -L -w -v -c -E -F -G -P -o -h -H -p -W -a -I -q --cached --heading --break --column
      --all-match --and --or --not`),
    values: { "-e": "text", "-A": "number", "-B": "number", "-C": "number", "--max-depth": "number" },
    before: ["--no-textconv", "--no-ext-grep"],
    positionals: "searchThenRevisions",
  },
};

export const git: Profile = {
  name: "git",
  execFromRoots: false,
  needsSandbox: false,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
  env: {
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_SYSTEM: "/dev/null",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_ASKPASS: "false",
    SSH_ASKPASS: "false",
    GIT_SSH: "false",
    GIT_SSH_COMMAND: "false",
    GIT_PROXY_COMMAND: "false",
    GIT_PAGER: "cat",
    PAGER: "cat",
    GIT_EDITOR: "false",
    GIT_SEQUENCE_EDITOR: "false",
    EDITOR: "false",
    VISUAL: "false",
    GIT_ALLOW_PROTOCOL: "none",
    GIT_PROTOCOL_FROM_USER: "0",
    GIT_OPTIONAL_LOCKS: "0",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_NO_LAZY_FETCH: "1",
    GIT_DISCOVERY_ACROSS_FILESYSTEM: "0",
    GIT_LITERAL_PATHSPECS: "0",
  },
  arrange,
};

function arrange(args: readonly string[]): Arranged | ArgumentProblem {
  const [name = "", ...rest] = args;
  const subcommand = Object.hasOwn(SUBCOMMANDS, name) ? SUBCOMMANDS[name] : undefined;
  if (subcommand === undefined) {
    return { index: 0, problem: `the first argument must be one of ${Object.keys(SUBCOMMANDS).join(", ")}` };
  }
  // Words after `--` are always paths to git, and `-5` means a number of commits.
  const cut = rest.indexOf("--");
  const plain = (cut < 0 ? rest : rest.slice(0, cut)).map((word) =>
    /^-[0-9]{1,9}$/.test(word) ? `-n${word.slice(1)}` : word,
  );
  const parsed = parse(plain, subcommand);
  if ("problem" in parsed) return { index: parsed.index + 1, problem: parsed.problem };
  const afterDashes = cut < 0 ? undefined : rest.slice(cut + 1);
  return assemble(name, subcommand, parsed, afterDashes);
}

function assemble(
  name: string,
  subcommand: Subcommand,
  parsed: Parsed,
  afterDashes: readonly string[] | undefined,
): Arranged | ArgumentProblem {
  const plain = [...parsed.positionals];
  const searchesFor =
    subcommand.positionals === "searchThenRevisions" && !parsed.seen.has("-e") ? plain.shift() : undefined;
  const bad = plain.find((word) => !isRevisionOrPath(word.text));
  if (bad !== undefined)
    return { index: bad.index + 1, problem: `${bad.text} is neither a revision nor a path below the folder` };
  const search = searchesFor === undefined ? [] : ["-e", searchesFor.text];
  const options = [name, ...(subcommand.always ?? []), ...(subcommand.before ?? []), ...parsed.options, ...search];
  const texts = plain.map((word) => word.text);
  switch (subcommand.positionals) {
    case "paths": {
      const paths = [...texts, ...(afterDashes ?? [])].map(asPath);
      return { argv: [...GLOBAL, ...options, "--", ...paths], paths };
    }
    case "revisions":
    case "glob":
      if (afterDashes !== undefined && afterDashes.length > 0) return { index: 0, problem: `${name} takes no paths` };
      return { argv: [...GLOBAL, ...options, ...texts], paths: [] };
    case "searchThenRevisions":
    case "revisionsAndPaths": {
      const paths = (afterDashes ?? []).map(asPath);
      const tail = afterDashes === undefined ? [] : ["--", ...paths];
      return { argv: [...GLOBAL, ...options, ...texts, ...tail], paths };
    }
  }
}

/** Not an option (the reader saw to that), no remote helper (`ext::sh`), nothing above the folder or from the top. */
function isRevisionOrPath(text: string): boolean {
  return text !== "" && !/^[-/]/.test(text) && !text.includes("::") && !/(^|\/)\.\.(\/|$)/.test(text);
}

function word(pattern: RegExp) {
  return (value: string): string | undefined => (pattern.test(value) ? undefined : `must match ${pattern.source}`);
}
