// tar's hatches are options, and those are left out. What it writes is the archive's choice, and a link that stands in the
// folder already leads it anywhere: it is for the sandbox only.

import { asPath, type OptionTable, type Parsed, parse, argumentWords } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

export const TAR: OptionTable = {
  flags: argumentWords(`
      -t -x -c -z -j -J -v -k -O -m --list --extract --get --create --gzip --bzip2 --xz --zstd --verbose
      --keep-old-files --to-stdout --touch`),
  values: {
    "-f": "path",
    "--file": "path",
    "-C": "path",
    "--directory": "path",
    "--strip-components": "number",
    "--exclude": "text",
  },
};

/** `--force-local`: `host:file` would start rsh. Owners and odd modes in the archive are not taken over. */
const SAFE = argumentWords("--force-local --no-same-owner --no-same-permissions --no-acls --no-selinux --no-xattrs");

export const tar: Profile = {
  name: "tar",
  execFromRoots: false,
  readOnly: false,
  needsSandbox: "writes where an archive and the links it meets say",
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
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

/** tar looks for members in the folder of -C; the archive itself stays where the command started. */
function whereMembersAre(parsed: Parsed, members: readonly string[]): string[] | ArgumentProblem {
  const folders = parsed.given.filter(({ name }) => name === "-C" || name === "--directory");
  const folder = parsed.seen.get("-C") ?? parsed.seen.get("--directory");
  if (folder === undefined) return [...members];
  if (folders.length > 1) return { index: 0, problem: "-C can be given once" };
  // After a link, `..` is not where the text says.
  if (members.some((member) => /(^|\/)\.\.(\/|$)/.test(member)))
    return { index: 0, problem: "with -C, names are below the folder" };
  return members.map((member) => (member.startsWith("/") ? member : `${asPath(folder)}/${member}`));
}

/** `tzf a.tgz`: letters without a dash, their values in the words that follow, in order. */
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
  for (const letter of first) {
    push(`-${letter}`, 0);
    if (!Object.hasOwn(TAR.values ?? {}, `-${letter}`)) continue;
    const value = args[next];
    if (value === undefined) return { index: 0, problem: `option ${letter} needs a value` };
    push(value, next++);
  }
  for (; next < args.length; next++) push(args[next] ?? "", next);
  return { args: spelled, origin };
}
