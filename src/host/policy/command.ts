// One catalog entry, from the document to what is used at run time.

import { resolve } from "node:path";
import type { Path } from "../../mcp/index.js";
import { isWithin } from "../paths/mounts.js";
import type { WritableRoot } from "../paths/target.js";
import { type Profile, profiles } from "../profiles/index.js";
import type { CommandDocument, LimitsDocument, PolicyDocument, SandboxMode } from "./document.js";
import { type Executable, findExecutable } from "./executable.js";
import { type ArgumentPattern, compileArgumentPattern } from "./patterns.js";
import { findPlace, type PlaceFacts, realPathOf } from "./places.js";
import type { Command, ProcessLimits } from "./policy.js";

/** Reports one problem at a place in the document, with its remedy. */
export type PolicyReport = (path: Path, message: string, remedy: string) => void;

export interface CommandContext {
  readonly document: PolicyDocument;
  readonly limits: LimitsDocument;
  readonly facts: PlaceFacts;
  readonly searchDirectories: readonly string[];
  readonly writableRoots: readonly WritableRoot[];
  readonly originOf: (path: Path) => string;
  readonly report: PolicyReport;
}

/** One entry while it is compiled. Its problems are reported below `path`. */
interface Entry {
  readonly document: CommandDocument;
  readonly profile: Profile | undefined;
  readonly context: CommandContext;
  report(below: Path, message: string, remedy: string): void;
}

const DEFAULT_LIMITS = { maxMemoryBytes: 2_000_000_000, maxProcesses: 128, maxOpenFiles: 1024 };

/** Variables that make the loader or an interpreter run other code, or choose which helpers are found. */
const NEVER_PASSED =
  /^(LD_.*|DYLD_.*|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|NLSPATH|BASH_ENV|BASH_FUNC.*|ENV|SHELLOPTS|BASHOPTS|PS4|IFS|PATH|HOME|TMPDIR|NODE_OPTIONS|NODE_PATH|PERL5(LIB|OPT|DB)|PERLLIB|PYTHON(PATH|STARTUP|HOME|INSPECT)|RUBY(LIB|OPT)|GIT_(EXEC_PATH|EXTERNAL_DIFF|SSH|SSH_COMMAND|PROXY_COMMAND|ASKPASS|EDITOR|PAGER|CONFIG_COUNT|CONFIG_KEY_.*|CONFIG_VALUE_.*|CONFIG_PARAMETERS|TEMPLATE_DIR))$/;

export function compileCommand(document: CommandDocument, path: Path, context: CommandContext): Command | undefined {
  const profile = document.profile === undefined ? undefined : profiles[document.profile];
  const report: PolicyReport = (below, ...problem) => context.report([...path, ...below], ...problem);
  const entry: Entry = { document, profile, context, report };
  const executable = compileExecutable(entry);
  const patterns = compilePatterns(entry);
  checkEnvironment(entry);
  const sandbox = compileSandbox(entry);
  const cwd = compileCwd(entry);
  const mounts = compileMounts(entry);
  if (profile !== undefined && (document.args?.fixed.length ?? 0) > 0) {
    report(["args", "fixed"], "a command with a profile has no fixed arguments", "remove fixed or the profile");
  }
  if (executable === undefined) return undefined;
  return {
    id: document.id,
    origin: context.originOf(path),
    description: document.description,
    executable,
    profile,
    allow: document.args === undefined && profile !== undefined ? undefined : new Set(document.args?.allow ?? []),
    fixed: document.args?.fixed ?? [],
    patterns,
    cwdPolicy: document.cwdPolicy,
    cwd,
    envAllowlist: new Set(document.envAllowlist),
    timeoutMs: document.timeoutMs,
    maxOutputBytes: document.maxOutputBytes,
    network: document.network ?? context.document.network,
    sandbox,
    mounts,
    execFromRoots: document.execFromRoots ?? profile?.execFromRoots ?? false,
    limits: compileLimits(document, context.limits),
  };
}

function compileExecutable({ document, profile, context, report }: Entry): Executable | undefined {
  const written = document.exec ?? profile?.name;
  if (written === undefined) {
    report([], "field `exec` is missing", "give the program's absolute path");
    return undefined;
  }
  const home = written.startsWith("~/") ? context.facts.home + written.slice(1) : written;
  const found = findExecutable(home, context.searchDirectories);
  const at = [document.exec === undefined ? "profile" : "exec"];
  if ("error" in found) {
    report(at, found.error, "install it, correct the path, or limit the entry with `platform`");
    return undefined;
  }
  const root = context.writableRoots.find(({ path }) => isWithin(found.real, path) || isWithin(found.path, path));
  if (root !== undefined) {
    const message = `lies in the writable root ${root.written}, so a caller could replace it`;
    report(at, message, "move the program out of the writable root");
    return undefined;
  }
  const unfit = profile?.checkExecutable(found.real);
  if (unfit !== undefined)
    report(at, `${found.real} does not fit the profile: ${unfit}`, "name another program in exec");
  return found;
}

function compilePatterns({ document, report }: Entry): ArgumentPattern[] {
  return (document.args?.patterns ?? []).flatMap(({ value }, i) => {
    const result = compileArgumentPattern(value);
    if ("pattern" in result) return [result.pattern];
    report(["args", "patterns", i, "value"], result.error, "correct the regular expression");
    return [];
  });
}

function checkEnvironment({ document, profile, report }: Entry): void {
  for (const [i, name] of document.envAllowlist.entries()) {
    const isFixed = profile !== undefined && Object.hasOwn(profile.env, name);
    const message = isFixed
      ? `${name} is fixed by the profile ${profile.name} and cannot be set by callers`
      : `${name} could make the program run other code and is never passed`;
    if (isFixed || NEVER_PASSED.test(name)) report(["envAllowlist", i], message, "remove it from the list");
  }
}

const STRICTNESS: Readonly<Record<SandboxMode, number>> = { off: 0, preferred: 1, required: 2 };

function compileSandbox({ document, profile, context, report }: Entry): SandboxMode {
  const general = context.document.sandbox;
  const mode = document.sandbox ?? general;
  if (STRICTNESS[mode] < STRICTNESS[general]) {
    report(["sandbox"], `${mode} is weaker than the policy's own sandbox: ${general}`, "leave it out");
  }
  if (profile?.needsSandbox !== undefined && mode === "off") {
    const message = `the profile ${profile.name} ${profile.needsSandbox} and needs a sandbox`;
    report([document.sandbox === undefined ? "profile" : "sandbox"], message, "set sandbox: required");
  }
  return mode;
}

function compileCwd({ document, context, report }: Entry): Command["cwd"] {
  const { cwd, cwdPolicy } = document;
  if (cwdPolicy !== "fixed") {
    if (cwd !== undefined) report(["cwd"], "is only used with cwdPolicy: fixed", "set cwdPolicy: fixed or remove it");
    return undefined;
  }
  if (cwd === undefined) {
    report([], "cwdPolicy: fixed needs the field `cwd`", "name the directory");
    return undefined;
  }
  const found = findPlace(cwd, context.facts);
  if (found.kind === "place" && found.exists) return found.place;
  report(["cwd"], found.kind === "problem" ? found.message : "does not exist here", "name a directory that exists");
  return undefined;
}

function compileMounts({ document, context, report }: Entry): string[] {
  return document.mounts.flatMap((mount, i) => {
    const expanded = mount.startsWith("~/") ? context.facts.home + mount.slice(1) : mount;
    if (!expanded.startsWith("/")) {
      report(["mounts", i], "must be an absolute path", "write the whole path");
      return [];
    }
    // A link is shown with what it leads to.
    return [...new Set([realPathOf(expanded), resolve(expanded)])];
  });
}

function compileLimits({ limits: own }: CommandDocument, general: LimitsDocument): ProcessLimits {
  const { maxMemoryBytes, maxProcesses, maxOpenFiles } = DEFAULT_LIMITS;
  return {
    maxMemoryBytes: own?.maxMemoryBytes ?? general.maxMemoryBytes ?? maxMemoryBytes,
    maxProcesses: own?.maxProcesses ?? general.maxProcesses ?? maxProcesses,
    maxOpenFiles: own?.maxOpenFiles ?? general.maxOpenFiles ?? maxOpenFiles,
    maxCpuSeconds: own?.maxCpuSeconds ?? general.maxCpuSeconds,
  };
}
