// find: the expression is a language of its own with verbs that run programs, delete and write files. Only tests and
// plain printing remain.

import { asPath } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

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
  name: "find",
  env: {},
  execFromRoots: false,
  readOnly: true,
  needsSandbox: undefined,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
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
