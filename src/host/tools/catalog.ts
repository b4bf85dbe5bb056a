// Is this call in the catalog? Arguments, variables and working directory, each against its own rule.

import { closeSync, fstatSync } from "node:fs";
import { nearest } from "../../mcp/index.js";
import { type Denial, denial, isDenial, quoteValue } from "../denial.js";
import { type LocatedPlace, locate } from "../paths/locate.js";
import { absolutePath } from "../paths/path-text.js";
import { resolvePortable } from "../paths/portable.js";
import { checkFile } from "../paths/read.js";
import { matchAll } from "../policy/patterns.js";
import type { Command, Policy } from "../policy/policy.js";
import { type Arranged, isProblem } from "../profiles/index.js";
import type { CmdRunInput } from "./definitions.js";

/** What the kernel takes for one argument; all of ours together stay below it. */
const MAX_ARGS_BYTES = 131_072;

export interface Planned {
  readonly command: Command;
  readonly argv: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  /** Undefined: no directory of the caller's. */
  readonly cwd: { readonly root: string; readonly rest: string; readonly path: string } | undefined;
  readonly stdin: Buffer;
  readonly timeoutMs: number;
}

export function planCommand(policy: Policy, input: CmdRunInput): Planned | Denial {
  const command = findCommand(policy, input.commandId);
  if (isDenial(command)) return command;
  const args = input.args ?? [];
  const refused = checkPlain(args) ?? checkCatalog(command, args) ?? checkEnvironment(command, input.env);
  if (refused !== undefined) return refused;
  const cwd = planCwd(policy, command, input.cwd);
  if (cwd !== undefined && isDenial(cwd)) return cwd;
  const arranged = arrange(policy, command, args, cwd?.path);
  if (isDenial(arranged)) return arranged;
  const { argv, paths } = arranged;
  const linked = findHardLink(policy, args, paths, cwd?.path);
  if (linked !== undefined) return linked;
  const stdin = Buffer.from(input.stdin ?? "");
  if (stdin.length > policy.limits.maxStdinBytes) {
    const reason = `stdin has ${stdin.length} bytes; ${policy.limits.maxStdinBytes} are allowed`;
    return denial("POLICY_DENY", "maxStdinBytes", reason, { field: "stdin" });
  }
  const timeoutMs = Math.min(input.timeoutMs ?? command.timeoutMs, command.timeoutMs);
  return { command, argv, env: input.env ?? new Map(), cwd, stdin, timeoutMs };
}

function findCommand(policy: Policy, id: string): Command | Denial {
  const command = policy.commands.get(id);
  if (command !== undefined) return command;
  const platforms = policy.otherPlatforms.get(id);
  if (platforms !== undefined) {
    return denial("POLICY_DENY", "platform", `command ${quoteValue(id)} is only for ${platforms}`, {
      field: "commandId",
    });
  }
  const known = [...policy.commands.keys()];
  const near = nearest(id, known);
  const suggestions =
    near === undefined ? [`use one of ${known.join(", ") || "none: the catalog is empty"}`] : [`did you mean ${near}?`];
  return denial("POLICY_DENY", "unknownCommand", `command ${quoteValue(id)} is not in the catalog`, {
    field: "commandId",
    suggestions,
  });
}

/** Whatever the catalog says: no program gets bytes that end a string early or steer a terminal. */
function checkPlain(args: readonly string[]): Denial | undefined {
  let bytes = 0;
  for (const [i, arg] of args.entries()) {
    const field = `args[${i}]`;
    if (/[\p{Cc}\p{Cs}]/u.test(arg)) {
      const reason = `${field} contains NUL, a control character or half a character`;
      return denial("INVALID_ARGS", "controlCharacter", reason, { field });
    }
    bytes += Buffer.byteLength(arg) + 1;
    if (bytes > MAX_ARGS_BYTES) {
      return denial("INVALID_ARGS", "argumentsTooLong", `the arguments have more than ${MAX_ARGS_BYTES} bytes`, {
        field,
      });
    }
  }
  return undefined;
}

function checkCatalog(command: Command, args: readonly string[]): Denial | undefined {
  const { allow } = command;
  if (allow === undefined) return undefined;
  const rest = args.flatMap((arg, index) => (allow.has(arg) ? [] : [{ arg, index }]));
  const matched = matchAll(
    command.patterns,
    rest.map(({ arg }) => arg),
  );
  if (matched === undefined) {
    const reason = `the patterns of command \`${command.id}\` took too long over these arguments`;
    return denial("POLICY_DENY", "patternTimeout", reason, { field: "args", suggestions: ["use shorter arguments"] });
  }
  const bad = rest.find((_, i) => matched[i] !== true);
  if (bad === undefined) return undefined;
  const where = `${command.origin}`;
  const reason = `command \`${command.id}\` does not allow argument ${quoteValue(bad.arg)} (${where})`;
  return denial("POLICY_DENY", "args", reason, {
    field: `args[${bad.index}]`,
    suggestions: [`an operator can add it under commands.${command.id}.args.allow`],
  });
}

function checkEnvironment(command: Command, env: CmdRunInput["env"]): Denial | undefined {
  for (const [name, value] of env ?? []) {
    const field = `env.${name.slice(0, 100)}`;
    if (command.profile !== undefined && Object.hasOwn(command.profile.env, name)) {
      const reason = `variable ${quoteValue(name)} has a fixed value for command \`${command.id}\``;
      return denial("POLICY_DENY", "envPinned", reason, { field });
    }
    if (!command.envAllowlist.has(name)) {
      const reason = `command \`${command.id}\` does not allow variable ${quoteValue(name)} (${command.origin})`;
      return denial("POLICY_DENY", "envAllowlist", reason, {
        field,
        suggestions: [`an operator can add it under commands.${command.id}.envAllowlist`],
      });
    }
    if (/[\p{Cc}\p{Cs}]/u.test(value)) {
      const reason = `the value of variable ${quoteValue(name)} contains control characters`;
      return denial("INVALID_ARGS", "controlCharacter", reason, { field });
    }
  }
  return undefined;
}

function planCwd(policy: Policy, command: Command, asked: string | undefined): Planned["cwd"] | Denial {
  switch (command.cwdPolicy) {
    case "none":
      if (asked === undefined) return undefined;
      return denial("POLICY_DENY", "cwdPolicy", `command \`${command.id}\` takes no working directory`, {
        field: "cwd",
        suggestions: ["leave cwd out"],
      });
    case "fixed": {
      const { cwd } = command;
      if (cwd === undefined) return denial("INTERNAL", "cwdPolicy", "the fixed directory is missing from the policy");
      const found = directoryWithin(policy, asked ?? cwd.path, [cwd]);
      if (!isDenial(found) && found.path !== cwd.path) {
        return denial("POLICY_DENY", "cwdPolicy", `command \`${command.id}\` runs in one directory only`, {
          field: "cwd",
          suggestions: ["leave cwd out"],
        });
      }
      return found;
    }
    case "withinRoot": {
      const first = policy.readableRoots[0];
      if (first === undefined)
        return denial("POLICY_DENY", "cwdPolicy", "the policy has no allowed root to run in", { field: "cwd" });
      return directoryWithin(policy, asked ?? first.path, policy.readableRoots);
    }
  }
}

function directoryWithin(
  policy: Policy,
  text: string,
  places: readonly LocatedPlace[],
): NonNullable<Planned["cwd"]> | Denial {
  const path = absolutePath(text, "cwd", policy, policy.readableRoots[0]?.path);
  if (typeof path !== "string") return path;
  if (process.platform !== "linux") {
    const real = resolvePortable(path, places, policy, "cwd");
    return typeof real === "string" ? { root: real, rest: ".", path: real } : real;
  }
  const found = locate(path, places, policy, "cwd");
  if (isDenial(found)) return found;
  try {
    if (!fstatSync(found.fd).isDirectory())
      return denial("IO_ERROR", "notAFolder", `cwd ${quoteValue(text)} is not a directory`, { field: "cwd" });
  } finally {
    closeSync(found.fd);
  }
  const root = found.place.path;
  return {
    root,
    rest: found.path === root ? "." : found.path.slice(root.length).replace(/^\/+/, ""),
    path: found.path,
  };
}

function arrange(
  policy: Policy,
  command: Command,
  args: readonly string[],
  cwd: string | undefined,
): Arranged | Denial {
  if (command.profile === undefined) return { argv: [...command.fixed, ...args], paths: [] };
  const arranged = command.profile.arrange(args);
  if (isProblem(arranged)) {
    const field = `args[${arranged.index}]`;
    const reason = `command \`${command.id}\`, ${field}: ${arranged.problem}`;
    return denial("POLICY_DENY", `profile.${command.profile.name}`, reason, { field });
  }
  for (const path of arranged.paths) {
    const refused = checkPathArgument(policy, path, cwd);
    if (refused !== undefined) return refused;
  }
  return arranged;
}

/** The sandbox holds in any case; this says so before the program starts, and in words. */
function checkPathArgument(policy: Policy, text: string, cwd: string | undefined): Denial | undefined {
  const path = absolutePath(text, "args", policy, cwd);
  if (typeof path !== "string") return path;
  if (process.platform !== "linux") return undefined;
  const found = locate(path, [...policy.readableRoots, ...policy.writableRoots], policy, "args");
  if (!isDenial(found)) {
    closeSync(found.fd);
    return undefined;
  }
  // What does not exist inside is the program's to report, and it may be about to make it.
  return found.rule === "notFound" ? undefined : found;
}

// `hardLinks: deny` for commands: a file with several names may lie outside as well, whatever its name here, and no
// sandbox can tell. Names that are given as arguments are looked at; what a program finds by walking is not.

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
  const path = absolutePath(name, field, policy, cwd);
  if (typeof path !== "string") return undefined;
  const found = locate(path, [...policy.readableRoots, ...policy.writableRoots], policy, field);
  // Other rules and the sandbox decide about what is not a file of the policy's.
  if (isDenial(found)) return undefined;
  try {
    const stats = fstatSync(found.fd, { bigint: true });
    return stats.isFile() ? checkFile(stats, { denyNetworkFS: false, hardLinks: "deny" }, name, field) : undefined;
  } finally {
    closeSync(found.fd);
  }
}
