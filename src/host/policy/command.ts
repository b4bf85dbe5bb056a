// One catalog entry, from the document to what is used at run time.

import { resolve } from "node:path";
import { isWithin, type Zone } from "../paths/index.js";
import { type Profile, profiles } from "../profiles/index.js";
import type { Path } from "../../mcp/index.js";
import type { CommandDocument, LimitsDocument, PolicyDocument, SandboxMode } from "./document.js";
import { type Executable, findExecutable } from "./executable.js";
import { compileArgumentPattern, type ArgumentPattern } from "./patterns.js";
import { findPlace, type PlaceFacts, realPathOf } from "./places.js";
import type { Command, ProcessLimits } from "./policy.js";

export type CommandReport = (path: Path, message: string, remedy: string) => void;

export interface CommandContext {
  readonly document: PolicyDocument;
  readonly limits: LimitsDocument;
  readonly facts: PlaceFacts;
  readonly searchFolders: readonly string[];
  readonly zones: readonly Zone[];
  readonly originOf: (path: Path) => string;
}

const DEFAULT_LIMITS = { maxMemoryBytes: 2_000_000_000, maxProcesses: 128, maxOpenFiles: 1024 };

/** Variables that make the loader or an interpreter run somebody's code, or choose which helpers are found. */
const NEVER_PASSED =
  /^(LD_.*|DYLD_.*|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|NLSPATH|BASH_ENV|BASH_FUNC.*|ENV|SHELLOPTS|BASHOPTS|PS4|IFS|PATH|HOME|TMPDIR|NODE_OPTIONS|NODE_PATH|PERL5(LIB|OPT|DB)|PERLLIB|PYTHON(PATH|STARTUP|HOME|INSPECT)|RUBY(LIB|OPT)|GIT_(EXEC_PATH|EXTERNAL_DIFF|SSH|SSH_COMMAND|PROXY_COMMAND|ASKPASS|EDITOR|PAGER|CONFIG_COUNT|CONFIG_KEY_.*|CONFIG_VALUE_.*|CONFIG_PARAMETERS|TEMPLATE_DIR))$/;

export function compileCommand(
  entry: CommandDocument,
  path: Path,
  context: CommandContext,
  report: CommandReport,
): Command | undefined {
  const profile = entry.profile === undefined ? undefined : profiles[entry.profile];
  const executable = compileExecutable(entry, profile, path, context, report);
  const patterns = compilePatterns(entry, path, report);
  checkEnvironment(entry, profile, path, report);
  const sandbox = compileSandbox(entry, profile, path, context.document.sandbox, report);
  const cwd = compileCwd(entry, path, context.facts, report);
  const mounts = compileMounts(entry, path, context.facts, report);
  if (profile !== undefined && (entry.args?.fixed.length ?? 0) > 0) {
    report(
      [...path, "args", "fixed"],
      "a command with a profile has no fixed arguments",
      "remove fixed or the profile",
    );
  }
  if (executable === undefined) return undefined;
  return {
    id: entry.id,
    origin: context.originOf(path),
    description: entry.description,
    executable,
    profile,
    allow: entry.args === undefined && profile !== undefined ? undefined : new Set(entry.args?.allow ?? []),
    fixed: entry.args?.fixed ?? [],
    patterns,
    cwdPolicy: entry.cwdPolicy,
    cwd,
    envAllowlist: new Set(entry.envAllowlist),
    timeoutMs: entry.timeoutMs,
    maxOutputBytes: entry.maxOutputBytes,
    network: entry.network ?? context.document.network,
    sandbox,
    mounts,
    execFromRoots: entry.execFromRoots ?? profile?.execFromRoots ?? false,
    limits: compileLimits(entry, context.limits),
  };
}

function compileExecutable(
  entry: CommandDocument,
  profile: Profile | undefined,
  path: Path,
  context: CommandContext,
  report: CommandReport,
): Executable | undefined {
  const written = entry.exec ?? profile?.name;
  if (written === undefined) {
    report(path, "field `exec` is missing", "give the program's absolute path");
    return undefined;
  }
  const home = written.startsWith("~/") ? context.facts.home + written.slice(1) : written;
  const found = findExecutable(home, context.searchFolders);
  const at = entry.exec === undefined ? [...path, "profile"] : [...path, "exec"];
  if ("error" in found) {
    report(at, found.error, "install it, correct the path, or limit the entry with `platform`");
    return undefined;
  }
  const zone = context.zones.find((z) => isWithin(found.real, z.path) || isWithin(found.path, z.path));
  if (zone !== undefined) {
    report(
      at,
      `lies in the write zone ${zone.written}, so a caller could replace it`,
      "move the program out of the zone",
    );
    return undefined;
  }
  const unfit = profile?.checkExecutable(found.real);
  if (unfit !== undefined)
    report(at, `${found.real} does not fit the profile: ${unfit}`, "name another program in exec");
  return found;
}

function compilePatterns(entry: CommandDocument, path: Path, report: CommandReport): ArgumentPattern[] {
  const compiled: ArgumentPattern[] = [];
  for (const [i, { value }] of (entry.args?.patterns ?? []).entries()) {
    const result = compileArgumentPattern(value);
    if ("error" in result) {
      report([...path, "args", "patterns", i, "value"], result.error, "correct the regular expression");
    } else {
      compiled.push(result.pattern);
    }
  }
  return compiled;
}

function checkEnvironment(
  entry: CommandDocument,
  profile: Profile | undefined,
  path: Path,
  report: CommandReport,
): void {
  for (const [i, name] of entry.envAllowlist.entries()) {
    const at = [...path, "envAllowlist", i];
    if (profile !== undefined && Object.hasOwn(profile.env, name)) {
      report(
        at,
        `${name} is fixed by the profile ${profile.name} and cannot be set by callers`,
        "remove it from the list",
      );
    } else if (NEVER_PASSED.test(name)) {
      report(at, `${name} could make the program run other code and is never passed`, "remove it from the list");
    }
  }
}

const STRICTNESS: Readonly<Record<SandboxMode, number>> = { off: 0, preferred: 1, required: 2 };

function compileSandbox(
  entry: CommandDocument,
  profile: Profile | undefined,
  path: Path,
  general: SandboxMode,
  report: CommandReport,
): SandboxMode {
  const mode = entry.sandbox ?? general;
  if (STRICTNESS[mode] < STRICTNESS[general]) {
    report([...path, "sandbox"], `${mode} is weaker than the policy's own sandbox: ${general}`, "leave it out");
  }
  if (profile?.needsSandbox !== undefined && mode === "off") {
    const at = entry.sandbox === undefined ? [...path, "profile"] : [...path, "sandbox"];
    report(at, `the profile ${profile.name} ${profile.needsSandbox} and needs a sandbox`, "set sandbox: required");
  }
  return mode;
}

function compileCwd(entry: CommandDocument, path: Path, facts: PlaceFacts, report: CommandReport): Command["cwd"] {
  if (entry.cwdPolicy !== "fixed") {
    if (entry.cwd !== undefined)
      report([...path, "cwd"], "is only used with cwdPolicy: fixed", "set cwdPolicy: fixed or remove it");
    return undefined;
  }
  if (entry.cwd === undefined) {
    report(path, "cwdPolicy: fixed needs the field `cwd`", "name the folder");
    return undefined;
  }
  const found = findPlace(entry.cwd, facts);
  if (found.kind === "place" && found.exists) return found.place;
  const message = found.kind === "problem" ? found.message : "does not exist here";
  report([...path, "cwd"], message, "name a folder that exists");
  return undefined;
}

function compileMounts(entry: CommandDocument, path: Path, facts: PlaceFacts, report: CommandReport): string[] {
  return entry.mounts.flatMap((mount, i) => {
    const expanded = mount.startsWith("~/") ? facts.home + mount.slice(1) : mount;
    if (!expanded.startsWith("/")) {
      report([...path, "mounts", i], "must be an absolute path", "write the whole path");
      return [];
    }
    // A link is shown with what it leads to.
    return [...new Set([realPathOf(expanded), resolve(expanded)])];
  });
}

function compileLimits(entry: CommandDocument, general: LimitsDocument): ProcessLimits {
  const own = entry.limits;
  return {
    maxMemoryBytes: own?.maxMemoryBytes ?? general.maxMemoryBytes ?? DEFAULT_LIMITS.maxMemoryBytes,
    maxProcesses: own?.maxProcesses ?? general.maxProcesses ?? DEFAULT_LIMITS.maxProcesses,
    maxOpenFiles: own?.maxOpenFiles ?? general.maxOpenFiles ?? DEFAULT_LIMITS.maxOpenFiles,
    maxCpuSeconds: own?.maxCpuSeconds ?? general.maxCpuSeconds,
  };
}
