// What may be asked of git: subcommands that look, and of their options those that only say what is shown.
// Left out: `-v` of status, which starts a repository's textconv programs and has no option against it.

import { argumentWords, type OptionTable, oneWord, ruled, type ValueRule } from "./grammar.js";

/** `-p` and its relatives would otherwise start the repository's diff programs. */
const NO_PROGRAMS = ["--no-ext-diff", "--no-textconv"];

/** Without a terminal both mean none. */
const NO_COLOR = oneWord("never", "auto");
const SIMILARITY = word(/^([0-9]{1,3}%?)?$/);

const DIFF_FLAGS = argumentWords(`
      -p -u --patch -s --no-patch --shortstat --numstat --summary --raw --name-only
      --name-status --check --full-index --binary -R -a --text -w -b -z --ignore-all-space
      --ignore-space-change --ignore-blank-lines --minimal --patience --histogram
      --no-renames --no-color --patch-with-stat --compact-summary --ignore-space-at-eol --function-context -W`);
const DIFF_VALUES: Readonly<Record<string, ValueRule>> = {
  "-S": "text",
  "-G": "text",
  "--inter-hunk-context": "number",
  "--diff-filter": word(/^[ACDMRTUXBacdmrtuxb*]{1,16}$/),
  "--diff-algorithm": word(/^(patience|minimal|histogram|myers|default)$/),
};
const DIFF_OPTIONAL: Readonly<Record<string, ValueRule>> = {
  ...ruled("number", "-U --unified --abbrev"),
  ...ruled(SIMILARITY, "-M --find-renames -C --find-copies"),
  "--word-diff": oneWord("", "plain", "porcelain", "none"),
  "--color": NO_COLOR,
  "--stat": word(/^([0-9]{1,4}(,[0-9]{1,4}){0,2})?$/),
  "--dirstat": word(/^([a-z0-9,]{1,60})?$/),
};
const LOG_FLAGS = [
  ...DIFF_FLAGS,
  ...argumentWords(`
      --oneline --graph --no-decorate --all --merges --no-merges
      --first-parent --reverse --follow --abbrev-commit --no-abbrev-commit --parents --children -i -E -F
      --topo-order --date-order --author-date-order --no-notes --regexp-ignore-case --fixed-strings --cc
      -m -c`),
];
const LOG_VALUES: Readonly<Record<string, ValueRule>> = {
  ...DIFF_VALUES,
  ...ruled("number", "-n --max-count --skip"),
  ...ruled("text", "--since --after --until --before --author --committer --grep --format"),
  "--date": word(/^(relative|local|iso|iso-strict|iso8601|rfc|short|raw|human|unix|default|format:.{1,100})$/),
};
const LOG_OPTIONAL: Readonly<Record<string, ValueRule>> = {
  ...DIFF_OPTIONAL,
  ...ruled("text", "--pretty --branches --tags --remotes"),
  "--decorate": oneWord("", "short", "full", "auto", "no"),
};
const LOG = {
  flags: LOG_FLAGS,
  values: LOG_VALUES,
  optional: LOG_OPTIONAL,
  always: NO_PROGRAMS,
  positionals: "revisionsAndPaths",
} as const;

const REFS = {
  values: {
    ...ruled("text", "--contains --no-contains --merged --no-merged --sort --format --points-at"),
  },
  whenLast: { "--contains": "HEAD", "--no-contains": "HEAD", "--merged": "HEAD", "--no-merged": "HEAD" },
  // Without it, words after the subcommand would create something.
  always: ["--list"],
  positionals: "glob",
} as const;

type Positionals = "none" | "revisionsAndPaths" | "paths" | "revisions" | "glob" | "searchThenRevisions";

export interface Subcommand extends OptionTable {
  /** Comes before the caller's options. */
  readonly always?: readonly string[];
  /** Options that need none of it and cannot stand beside it. */
  readonly without?: readonly string[];
  /** The only word that may follow, where others would change something. */
  readonly verb?: string;
  readonly positionals: Positionals;
}

export const SUBCOMMANDS: Readonly<Record<string, Subcommand>> = {
  status: {
    flags: argumentWords("--short -s -b --branch --long -z --show-stash --no-renames --ahead-behind --no-ahead-behind"),
    optional: {
      "--porcelain": oneWord("", "v1", "v2", "1", "2"),
      ...ruled(oneWord("", "no", "normal", "all"), "-u --untracked-files"),
      "--ignored": oneWord("", "traditional", "no", "matching"),
    },
    always: ["--ignore-submodules=dirty"],
    positionals: "paths",
  },
  log: LOG,
  show: { ...LOG, flags: LOG_FLAGS.filter((flag) => flag !== "--graph" && flag !== "--follow") },
  diff: {
    flags: [...DIFF_FLAGS, "--cached", "--staged", "--merge-base", "--exit-code", "--quiet"],
    values: DIFF_VALUES,
    optional: DIFF_OPTIONAL,
    always: [...NO_PROGRAMS, "--ignore-submodules=dirty"],
    positionals: "revisionsAndPaths",
  },
  branch: {
    ...REFS,
    without: ["--show-current"],
    flags: argumentWords("-a --all -r --remotes -v -vv --verbose --list -l --show-current --no-color -i --ignore-case"),
    optional: { "--color": NO_COLOR },
  },
  tag: {
    ...REFS,
    flags: argumentWords("-l --list -i --ignore-case"),
    optional: { "-n": "number", "--color": NO_COLOR },
  },
  "rev-parse": {
    flags: argumentWords(`
      --verify --quiet -q --symbolic-full-name --show-toplevel --show-prefix
      --is-inside-work-tree --is-bare-repository --show-cdup`),
    optional: { "--short": "number", "--abbrev-ref": oneWord("", "strict", "loose") },
    positionals: "revisions",
  },
  describe: {
    flags: argumentWords("--all --tags --long --always --contains --exact-match --first-parent"),
    values: { "--match": "text", "--exclude": "text", "--candidates": "number" },
    optional: { "--abbrev": "number", "--dirty": "text" },
    positionals: "revisions",
  },
  blame: {
    flags: argumentWords("-w -e -l -s -t -n -f -p --porcelain --line-porcelain --show-email --root"),
    values: { "-L": "text", "--since": "text", "--date": "text" },
    optional: { "-M": "number", "-C": "number", "--abbrev": "number" },
    always: ["--no-textconv"],
    positionals: "revisionsAndPaths",
  },
  "ls-files": {
    flags: argumentWords(`
      -c -d -m -o -i -s -u -k -t -v -z --cached --deleted --modified --others --ignored --stage --unmerged
      --exclude-standard --full-name --eol`),
    positionals: "paths",
  },
  "ls-tree": {
    flags: argumentWords("-r -t -d -l -z --long --name-only --name-status --full-name --full-tree"),
    optional: { "--abbrev": "number" },
    positionals: "revisions",
  },
  "cat-file": {
    flags: argumentWords("-p -t -s -e"),
    positionals: "revisions",
  },
  shortlog: {
    flags: argumentWords("-s -n -e --summary --numbered --email --all --no-merges"),
    values: { "--since": "text", "--until": "text" },
    positionals: "revisions",
  },
  grep: {
    flags: argumentWords(`
      -i -n -l -L -w -v -c -E -F -G -P -o -h -H -p -W -a -I -q --cached --heading --break --column
      --all-match --and --or --not --line-number --ignore-case --files-with-matches --count --word-regexp`),
    values: { "-e": "text", "-A": "number", "-B": "number", "-C": "number", "--max-depth": "number" },
    optional: { "--color": NO_COLOR },
    always: ["--no-textconv", "--no-ext-grep"],
    positionals: "searchThenRevisions",
  },
  remote: { flags: ["-v", "--verbose"], positionals: "none" },
  stash: { flags: [], verb: "list", positionals: "none" },
};

function word(pattern: RegExp) {
  return (value: string): string | undefined => (pattern.test(value) ? undefined : `must match ${pattern.source}`);
}
