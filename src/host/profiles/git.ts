// git, for looking. A repository's own config can name programs in a dozen places and its attributes can call them; the
// options below switch off what can be switched off. Filters have names of the repository's choosing, so they are listed first and
// overridden one by one. What cannot be switched off (`.git`, alternates and core.worktree may point anywhere; a filter may be
// added meanwhile) is held by the sandbox, in which nothing is writable: there is no git without one.

import { SUBCOMMANDS, type Subcommand } from "./git-options.js";
import {
  type ArgumentProblem,
  type Arranged,
  argumentWords,
  asPath,
  fixed,
  type Parsed,
  type Profile,
  parse,
  READING,
} from "./grammar.js";

const SAFE_CONFIG = argumentWords(`
  core.fsmonitor=false core.hooksPath=/dev/null core.pager=cat core.sshCommand=false core.askPass=true
  core.editor=false core.attributesFile=/dev/null core.excludesFile=/dev/null core.alternateRefsCommand=true
  core.gitProxy= credential.helper= color.ui=false diff.ignoreSubmodules=dirty diff.orderFile=/dev/null
  diff.submodule=short gc.auto=0 maintenance.auto=false gpg.program=false gpg.openpgp.program=false
  gpg.ssh.program=false gpg.x509.program=false grep.fallbackToNoIndex=false log.showSignature=false
  mailmap.file=/dev/null protocol.allow=never status.submoduleSummary=false submodule.recurse=false
  uploadpack.packObjectsHook=`);

const GLOBAL = [
  "--no-pager",
  "--no-optional-locks",
  "--no-replace-objects",
  ...SAFE_CONFIG.flatMap((entry) => ["-c", entry]),
];

export const git: Profile = {
  ...READING,
  name: "git",
  needsSandbox: "lets a repository's own config name programs and other directories",
  env: {
    ...fixed("1", "GIT_CONFIG_NOSYSTEM GIT_ATTR_NOSYSTEM GIT_NO_REPLACE_OBJECTS GIT_NO_LAZY_FETCH"),
    ...fixed("/dev/null", "GIT_CONFIG_SYSTEM GIT_CONFIG_GLOBAL"),
    ...fixed(
      "0",
      "GIT_TERMINAL_PROMPT GIT_PROTOCOL_FROM_USER GIT_OPTIONAL_LOCKS GIT_DISCOVERY_ACROSS_FILESYSTEM GIT_LITERAL_PATHSPECS",
    ),
    ...fixed(
      "false",
      "GIT_ASKPASS SSH_ASKPASS GIT_SSH GIT_SSH_COMMAND GIT_PROXY_COMMAND GIT_EDITOR GIT_SEQUENCE_EDITOR EDITOR VISUAL",
    ),
    ...fixed("cat", "GIT_PAGER PAGER"),
    GIT_ALLOW_PROTOCOL: "none",
  },
  arrange,
  settings: {
    list(argv) {
      const at = argv.indexOf("-C");
      const directory = at < 0 ? [] : argv.slice(at, at + 2);
      return [...GLOBAL, ...directory, "config", "-z", "--name-only", "--get-regexp", "^filter\\."];
    },
    off: (printed) => printed.split("\0").flatMap((key) => filterOff(key)),
  },
};

/** An empty command is none; `required` would turn that into an error. */
function filterOff(key: string): (readonly [string, string])[] {
  if (/^filter\.[^]*\.(clean|smudge|process)$/.test(key)) return [[key, ""]];
  return /^filter\.[^]*\.required$/.test(key) ? [[key, "false"]] : [];
}

function arrange(args: readonly string[]): Arranged | ArgumentProblem {
  const { directory, from } = readGlobal(args);
  const [name = "", ...rest] = args.slice(from);
  const subcommand = Object.hasOwn(SUBCOMMANDS, name) ? SUBCOMMANDS[name] : undefined;
  if (subcommand === undefined) {
    const known = Object.keys(SUBCOMMANDS).join(", ");
    return { index: from, problem: `the first argument must be one of ${known}` };
  }
  // Words after `--` are always paths to git, and `-5` means a number of commits.
  const cut = rest.indexOf("--");
  const plain = (cut < 0 ? rest : rest.slice(0, cut)).map((word) =>
    /^-[0-9]{1,9}$/.test(word) ? `-n${word.slice(1)}` : word,
  );
  const parsed = parse(plain, subcommand);
  if ("problem" in parsed) return { index: parsed.index + from + 1, problem: parsed.problem };
  const arranged = assemble(name, subcommand, parsed, cut < 0 ? undefined : rest.slice(cut + 1));
  if ("problem" in arranged) return { index: arranged.index + from + 1, problem: arranged.problem };
  const inDirectory = directory === undefined ? arranged : enter(directory, arranged);
  return "problem" in inDirectory ? inDirectory : { ...inDirectory, argv: [...GLOBAL, ...inDirectory.argv] };
}

/** Of what may stand before the subcommand only `-C directory`, once, and `--no-pager`, which goes without saying. */
function readGlobal(args: readonly string[]): { directory: string | undefined; from: number } {
  let directory: string | undefined;
  let from = 0;
  while (from < args.length) {
    if (args[from] === "--no-pager") from += 1;
    else if (args[from] === "-C" && directory === undefined && args[from + 1] !== undefined) {
      directory = args[from + 1];
      from += 2;
    } else break;
  }
  return { directory, from };
}

/** Every name is looked at where git will look for it. */
function enter(directory: string, { argv, paths }: Arranged): Arranged | ArgumentProblem {
  // After a link, `..` is not where the text says.
  if (paths.some((path) => /(^|\/)\.\.(\/|$)/.test(path))) {
    return { index: 0, problem: "with -C, paths are below the directory" };
  }
  const below = paths.map((path) => (path.startsWith("/") ? path : `${asPath(directory)}/${path}`));
  return { argv: ["-C", asPath(directory), ...argv], paths: [asPath(directory), ...below] };
}

function assemble(
  name: string,
  subcommand: Subcommand,
  parsed: Parsed,
  afterDashes: readonly string[] | undefined,
): Arranged | ArgumentProblem {
  const plain = [...parsed.positionals];
  if (subcommand.verb !== undefined) {
    const verb = plain.shift();
    if (verb?.text !== subcommand.verb) return { index: verb?.index ?? -1, problem: `only ${name} ${subcommand.verb}` };
  }
  const searchesFor =
    subcommand.positionals === "searchThenRevisions" && !parsed.seen.has("-e") ? plain.shift() : undefined;
  const bad = plain.find((word) => !isRevisionOrPath(word.text));
  if (bad !== undefined)
    return { index: bad.index, problem: `${bad.text} is neither a revision nor a path below the directory` };
  const search = searchesFor === undefined ? [] : ["-e", searchesFor.text];
  const verb = subcommand.verb === undefined ? [] : [subcommand.verb];
  const isWithout = subcommand.without?.some((option) => parsed.seen.has(option)) === true;
  const always = isWithout ? [] : (subcommand.always ?? []);
  const options = [name, ...verb, ...always, ...parsed.options, ...search];
  const texts = plain.map((word) => word.text);
  switch (subcommand.positionals) {
    case "none":
      if (texts.length > 0 || afterDashes !== undefined) return { index: -1, problem: `${name} takes no names here` };
      return { argv: options, paths: [] };
    case "paths": {
      const paths = [...texts, ...(afterDashes ?? [])].map(asPath);
      return { argv: [...options, "--", ...paths], paths };
    }
    case "revisions":
    case "glob":
      if (afterDashes !== undefined && afterDashes.length > 0) return { index: -1, problem: `${name} takes no paths` };
      return { argv: [...options, ...texts], paths: [] };
    case "searchThenRevisions":
    case "revisionsAndPaths": {
      const after = (afterDashes ?? []).map(asPath);
      const tail = afterDashes === undefined ? [] : ["--", ...after];
      // A word before `--` is a file as soon as there is one of that name, in or out of a repository.
      return { argv: [...options, ...texts, ...tail], paths: [...texts, ...after] };
    }
  }
}

/** Not an option (the reader saw to that), no remote helper (`ext::sh`), nothing above the directory or from the top. */
function isRevisionOrPath(text: string): boolean {
  return text !== "" && !/^[-/]/.test(text) && !text.includes("::") && !/(^|\/)\.\.(\/|$)/.test(text);
}
