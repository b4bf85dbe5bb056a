// `hardLinks: deny` for commands: a file with several names may lie outside as well, whatever its name here, and no
// sandbox can tell. Names that are given as arguments are looked at; what a program finds by walking is not.

import { closeSync, fstatSync } from "node:fs";
import { type Denial, isDenial } from "../denial.js";
import { absolutePath, locate } from "../paths/index.js";
import { checkFile } from "../paths/read.js";
import type { Policy } from "../policy/index.js";

/** `paths`: names that a profile made out of the arguments, after `-C` for one. `cwd`: where relative ones begin. */
export function findHardLink(
  policy: Policy,
  args: readonly string[],
  paths: readonly string[],
  cwd: string | undefined,
): Denial | undefined {
  if (policy.hardLinks !== "deny" || process.platform !== "linux") return undefined;
  for (const [index, arg] of args.entries()) {
    // An option may bring a name with it.
    const equals = arg.startsWith("-") ? arg.indexOf("=") : -1;
    const name = equals < 0 ? arg : arg.slice(equals + 1);
    const refused = name === "" ? undefined : look(policy, name, cwd, `args[${index}]`);
    if (refused !== undefined) return refused;
  }
  for (const path of paths) {
    const refused = args.includes(path) ? undefined : look(policy, path, cwd, "args");
    if (refused !== undefined) return refused;
  }
  return undefined;
}

function look(policy: Policy, name: string, cwd: string | undefined, field: string): Denial | undefined {
  const path = absolutePath(name, field, { platform: policy.platform, home: policy.home, base: cwd });
  if (typeof path !== "string") return undefined;
  const found = locate(path, [...policy.roots, ...policy.zones], policy, field);
  // What is no file of ours is for the other rules, and for the sandbox.
  if (isDenial(found)) return undefined;
  try {
    const stats = fstatSync(found.fd, { bigint: true });
    return stats.isFile() ? checkFile(stats, { denyNetworkFS: false, hardLinks: "deny" }, name, field) : undefined;
  } finally {
    closeSync(found.fd);
  }
}
