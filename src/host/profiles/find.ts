// find: the expression is a language of its own with verbs that run programs, delete and write files. Only tests and
// plain printing remain.

import { asPath } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

const ALONE = new Set([
  "-print",
  "-print0",
  "-ls",
  "-empty",
  "-prune",
  "-not",
  "!",
  "-a",
  "-and",
  "-o",
  "-or",
  "(",
  ")",
]);
const DEPTH = new Set(["-maxdepth", "-mindepth"]);
const WITH_VALUE: Readonly<Record<string, RegExp>> = {
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

export const find: Profile = {
  name: "find",
  env: {},
  execFromRoots: false,
  needsSandbox: false,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
  arrange,
};

function arrange(args: readonly string[]): Arranged | ArgumentProblem {
  const paths: string[] = [];
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
    const rule = DEPTH.has(arg) ? /^[0-9]{1,4}$/ : Object.hasOwn(WITH_VALUE, arg) ? WITH_VALUE[arg] : undefined;
    if (rule === undefined) return { index: i, problem: `${arg} is not among the tests this profile allows` };
    const value = args[++i];
    if (value === undefined || !rule.test(value)) return { index: i, problem: `${arg} needs a fitting value` };
    (DEPTH.has(arg) ? depth : expression).push(arg, value);
  }
  const from = paths.length === 0 ? ["."] : paths;
  // -P: links are shown, never followed.
  return { argv: ["-P", ...from, ...depth, ...expression], paths };
}
