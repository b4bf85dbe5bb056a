// cmd.run: decide by the catalog, then run in the sandbox, then say what was in force.

import { isUtf8 } from "node:buffer";
import { AuditClock, type AuditFacts } from "../audit.js";
import { type Denial, denial, isDenial } from "../denial.js";
import { isUnchanged } from "../policy/executable.js";
import type { Command, Policy } from "../policy/policy.js";
import { missingProtections, type Protections } from "../sandbox/confinement.js";
import { confinementOf, environmentOf, type GitSettings, launchLimitsOf, programDirectories } from "../sandbox/plan.js";
import { needsOf } from "../sandbox/reach.js";
import { type RunOutcome, Sandbox } from "../sandbox/sandbox.js";
import type { Ending, OutputStream } from "../sandbox/supervisor-link.js";
import { type Planned, planCommand } from "./catalog.js";
import { cmdRunInput } from "./definitions.js";
import { requestedPath } from "./fs-read.js";
import {
  checkArguments,
  denyHostCall,
  type HostCallContext,
  type HostDecision,
  type HostOutcome,
  internalDenial,
  Reporter,
  type Would,
} from "./outcome.js";

export interface CmdRunResult {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
  readonly truncated: boolean;
  readonly warnings: readonly "OUTPUT_TRUNCATED"[];
  readonly protections: Protections;
}

export interface CmdContext extends HostCallContext {
  /** Called with each piece of output within the cap, as it comes. */
  readonly onOutput?: (stream: OutputStream, chunk: Buffer) => void;
  /** Shared by all calls of a host; one for the process by default. */
  readonly sandbox?: Sandbox;
  /** With `sandbox: required`, refuse to run a command with the user and the rights of this process. */
  readonly needsOwnUser?: boolean;
}

let shared: Sandbox | undefined;

export function sharedSandbox(): Sandbox {
  shared ??= new Sandbox();
  return shared;
}

export async function closeSharedSandbox(): Promise<void> {
  await shared?.close();
  shared = undefined;
}

function plan(policy: Policy, args: unknown): Planned | Denial {
  const input = checkArguments(cmdRunInput, args);
  return isDenial(input) ? input : planCommand(policy, input);
}

/** The decision before any effect; executing checks again. */
export function decideCmdRun(policy: Policy, args: unknown): HostDecision {
  try {
    const planned = plan(policy, args);
    if (isDenial(planned)) return denyHostCall(planned);
    const { command } = planned;
    return { effect: "permit", rule: `commands.${command.id} (${command.origin})`, would: wouldRun(policy, planned) };
  } catch (error) {
    return denyHostCall(internalDenial(error));
  }
}

function wouldRun(policy: Policy, { command, argv, cwd, env, timeoutMs }: Planned): Would {
  const { executable, profile, maxOutputBytes, network, sandbox } = command;
  const { writableRoots, closed, repositories } = confinementOf(policy, command);
  return {
    tool: "cmd.run",
    commandId: command.id,
    program: executable.path,
    args: argv,
    cwd: cwd?.path,
    env: { ...Object.fromEntries(env), ...profile?.env },
    timeoutMs,
    maxOutputBytes,
    network,
    sandbox,
    writes: writableRoots,
    exceptIn: [...closed, ...repositories],
    maxFileBytes: launchLimitsOf(policy, command, timeoutMs).maxFileBytes,
  };
}

/** Checks everything again; the supervisor enters the working directory by descriptor. */
export async function executeCmdRun(
  policy: Policy,
  args: unknown,
  context: CmdContext = {},
): Promise<HostOutcome<CmdRunResult>> {
  const reporter = new Reporter(new AuditClock(), "cmd.run", policy, context);
  const facts: AuditFacts = { commandId: requestedPath(args, "commandId"), cwd: requestedPath(args, "cwd") };
  try {
    const planned = plan(policy, args);
    if (isDenial(planned)) return reporter.denied(planned, facts);
    facts.cwd = planned.cwd?.path;
    facts.args = planned.argv;
    facts.env = planned.env;
    if (!isUnchanged(planned.command.executable)) return reporter.denied(changedProgram(planned), facts);
    const settings = await settingsOff(policy, planned, context);
    if (isDenial(settings)) return reporter.denied(settings, facts);
    return report(reporter, facts, planned, await start(policy, planned, context, settings));
  } catch (error) {
    return reporter.denied(internalDenial(error), facts);
  }
}

function changedProgram(planned: Planned): Denial {
  const { path } = planned.command.executable;
  const reason = `${path} is no longer the program that was checked when the policy was loaded`;
  return denial("POLICY_DENY", "executableChanged", reason, {
    suggestions: ["an operator who knows why can reload the policy"],
  });
}

/** Enough for every filter of an ordinary repository; each key is at most one line of a settings file. */
const MAX_SETTINGS_BYTES = 16_384;

/** GitSettings of a repository that name programs, each with the value that switches it off. Nothing is written meanwhile. */
async function settingsOff(policy: Policy, planned: Planned, context: CmdContext): Promise<GitSettings | Denial> {
  const { profile, id } = planned.command;
  if (profile?.settings === undefined) return [];
  const command = { ...planned.command, maxOutputBytes: MAX_SETTINGS_BYTES };
  const argv = profile.settings.list(planned.argv);
  const listing = await start(
    policy,
    { ...planned, command, argv, stdin: Buffer.alloc(0) },
    { ...context, onOutput: () => undefined },
    [],
  );
  // What went wrong otherwise goes wrong again, and is reported then.
  if (listing.kind !== "ended" || listing.ending.kind === "failed") return [];
  const { stdout, truncated, timedOut } = listing.ending;
  // A name that is not UTF-8 cannot be passed on.
  if (!truncated && !timedOut && isUtf8(stdout)) return profile.settings.off(stdout.toString("utf8"));
  const reason = `command \`${id}\`: the filters in the repository's config cannot be switched off (more than ${MAX_SETTINGS_BYTES} bytes, not UTF-8, or not listed in time)`;
  return denial("POLICY_DENY", `profile.${profile.name}`, reason, {
    field: "cwd",
    suggestions: ["remove filter.* from the repository's config"],
  });
}

function start(policy: Policy, planned: Planned, context: CmdContext, settings: GitSettings): Promise<RunOutcome> {
  const { command } = planned;
  const confinement = confinementOf(policy, command);
  return (context.sandbox ?? sharedSandbox()).run({
    confinement,
    executable: command.executable.path,
    args: planned.argv,
    needs: needsOf(command.executable, programDirectories(command)),
    env: (scratch) => environmentOf(policy, command, planned.env, confinement.user !== undefined, scratch, settings),
    cwd: planned.cwd,
    stdin: planned.stdin,
    timeoutMs: planned.timeoutMs,
    maxOutputBytes: command.maxOutputBytes,
    limits: launchLimitsOf(policy, command, planned.timeoutMs),
    queue: {
      concurrency: policy.limits.maxCmdConcurrency,
      waiting: policy.limits.maxCmdQueue,
      waitMs: policy.limits.maxCmdQueueMs,
    },
    signal: context.signal,
    onOutput: context.onOutput,
    accept: (protections) => findMissing(command, protections, context.needsOwnUser),
  });
}

/** What the policy or the command's profile cannot do without and this machine does not give. */
function findMissing(
  { sandbox, network, profile }: Command,
  protections: Protections,
  needsOwnUser: boolean | undefined,
): string | undefined {
  if (sandbox === "required") {
    const missing = missingProtections(protections, network, needsOwnUser);
    return missing.length === 0 ? undefined : missing.join(", ");
  }
  // With nothing in force, `preferred` is `off` by another name.
  return profile?.needsSandbox !== undefined && protections.files === "none" ? "file-system confinement" : undefined;
}

function report(
  reporter: Reporter,
  facts: AuditFacts,
  planned: Planned,
  outcome: RunOutcome,
): HostOutcome<CmdRunResult> {
  switch (outcome.kind) {
    case "ended":
      return reportEnding(reporter, facts, planned, outcome.ending, outcome.protections);
    case "busy":
      return reporter.denied(
        denial("POLICY_DENY", "maxCmdConcurrency", "too many commands are running or waiting", {
          suggestions: ["try again later"],
        }),
        facts,
      );
    case "aborted":
      return reporter.denied(cancelled(), facts);
    case "refused":
      return reporter.denied(unprotected(planned.command, outcome.reason), facts);
    case "unavailable":
      return reporter.denied(
        denial("INTERNAL", "sandbox", "the sandbox could not be started", {
          suggestions: [outcome.reason.slice(0, 300)],
        }),
        facts,
      );
  }
}

function unprotected({ sandbox, profile }: Command, missing: string): Denial {
  const needs =
    profile?.needsSandbox === undefined ? "" : `; the profile ${profile.name} ${profile.needsSandbox} and needs it`;
  const asked = sandbox === "required" ? "what sandbox: required asks for" : "what the command's profile asks for";
  const preferred = needs === "" ? ["an operator may set sandbox: preferred"] : [];
  return denial("POLICY_DENY", "sandboxRequired", `this machine does not give ${asked}: ${missing}${needs}`, {
    suggestions: ["run `portcullis doctor`", ...preferred],
  });
}

function cancelled(): Denial {
  return denial("IO_ERROR", "cancelled", "the call was cancelled; the command and all its children were ended");
}

function reportEnding(
  reporter: Reporter,
  facts: AuditFacts,
  planned: Planned,
  ending: Ending,
  protections: Protections,
): HostOutcome<CmdRunResult> {
  if (ending.kind === "failed") return reporter.denied(failedToStart(ending.reason), facts);
  const result: CmdRunResult = {
    exitCode: ending.exitCode,
    signal: ending.signal,
    stdout: ending.stdout.toString("utf8"),
    stderr: ending.stderr.toString("utf8"),
    timedOut: ending.timedOut,
    truncated: ending.truncated,
    warnings: ending.truncated ? ["OUTPUT_TRUNCATED"] : [],
    protections,
  };
  const seen: AuditFacts = {
    ...facts,
    exitCode: ending.exitCode,
    timedOut: ending.timedOut,
    truncated: ending.truncated,
    bytes: ending.stdout.length + ending.stderr.length,
  };
  if (ending.timedOut) {
    return reporter.denied(outOfTime(planned), seen, result);
  }
  if (ending.aborted) return reporter.denied(cancelled(), seen, result);
  if (ending.kind === "lost")
    return reporter.denied(
      denial("INTERNAL", "sandbox", `the command's supervisor was lost: ${ending.reason}`),
      seen,
      result,
    );
  return reporter.done(result, seen);
}

function outOfTime({ command, timeoutMs }: Planned): Denial {
  const reason = `command \`${command.id}\` took longer than ${timeoutMs} ms; it and all its children were ended`;
  const longer =
    timeoutMs < command.timeoutMs
      ? `give it more time: timeoutMs may be up to ${command.timeoutMs}`
      : `an operator can raise commands.${command.id}.timeoutMs (${command.origin})`;
  return denial("TIMEOUT", "timeoutMs", reason, { timeoutMs, suggestions: ["ask for less at once", longer] });
}

function failedToStart(reason: string): Denial {
  if (reason.startsWith("changed:")) {
    return denial("POLICY_DENY", "changedWhileOpening", "the working directory changed while it was being entered", {
      field: "cwd",
      suggestions: ["try again"],
    });
  }
  return denial("IO_ERROR", "spawn", reason.slice(0, 300));
}
