// awk and sed: both can run programs and write files from inside their scripts, and both have a mode without that.

import { basename } from "node:path";
import { asPath, type OptionTable, parse, argumentWords } from "./grammar.js";
import type { Arranged, ArgumentProblem, Profile } from "./profile.js";

export const SED: OptionTable = {
  flags: argumentWords("-n -E -r -s -u -z --quiet --silent --regexp-extended --separate --posix --null-data"),
  values: { "-e": "text", "--expression": "text", "-l": "number", "--line-length": "number" },
};

export const sed: Profile = {
  name: "sed",
  env: {},
  execFromRoots: false,
  readOnly: true,
  needsSandbox: undefined,
  reservesAddressSpace: false,
  checkExecutable: () => undefined,
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
  name: "awk",
  env: { AWKPATH: "/nonexistent", AWKLIBPATH: "/nonexistent", GAWK_READ_TIMEOUT: "" },
  execFromRoots: false,
  readOnly: true,
  needsSandbox: undefined,
  reservesAddressSpace: false,
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
