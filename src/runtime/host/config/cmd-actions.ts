// What the `cmd` commands do with the catalog in policy.yaml.

import { basename } from "node:path";
import type { Command } from "commander";
import {
  type Command as CatalogEntry,
  decideCmdRun,
  type Policy,
  PROFILE_NAMES,
  type ProfileName,
  reachInSandbox,
  Sandbox,
} from "../../../host/index.js";
import { CliError, EXIT } from "../../../lib/exit.js";
import { paintErr } from "../../../lib/print.js";
import type { JsonObject } from "../../../mcp/index.js";
import { outFor } from "../../options.js";
import { adding, editPolicy } from "./edit.js";
import type { HostFiles } from "./files.js";
import { report } from "./policy-actions.js";
import { requireClient, requireHostPolicy } from "./read.js";
import { commandFacts, commandTable, explainHostCall } from "./show.js";
import { talkToHost } from "./talk.js";

export interface AddOptions {
  profile?: string;
  exec?: string;
  allow?: string[];
  pattern?: string[];
  fixed?: string[];
  env?: string[];
  mount?: string[];
  cwdPolicy?: string;
  cwd?: string;
  timeoutMs?: number;
  maxOutputBytes?: number;
  network?: boolean;
  description?: string;
}

/** Programs that run other programs: no list of arguments limits them, only the sandbox does. */
const RUN_ANYTHING =
  /^(sh|bash|dash|zsh|fish|ksh|busybox|env|xargs|sudo|su|ssh|node|deno|bun|python[\d.]*|perl|ruby|php|lua)$/;

export function allowCommand(command: Command, files: HostFiles, id: string, options: AddOptions): void {
  const profile = options.profile ?? (options.exec === undefined && isProfile(id) ? id : undefined);
  if (profile === undefined && options.exec === undefined) {
    throw new CliError(
      `${id} is not a curated profile, so its program is needed`,
      EXIT.usage,
      `give --exec <path>, or --profile <name>: ${PROFILE_NAMES.join(", ")}`,
    );
  }
  const edited = editPolicy(command, files, [adding("commands", entryOf(id, profile, options))]);
  report(command, edited);
  const notes = [...notesOn(id, profile, options), ...networkNotes(edited.policy.commands.get(id))];
  for (const note of notes) outFor(command).note(paintErr.yellow(note));
}

/** Of little use without it. */
const NEEDS_NETWORK = /^(curl|wget|ssh|scp|sftp|ping|dig|host|nslookup|nc|telnet|ftp|gh)$/;

function networkNotes(added: CatalogEntry | undefined): string[] {
  if (added === undefined || added.network || !NEEDS_NETWORK.test(basename(added.executable.path))) return [];
  return [
    `${added.id} cannot reach the network here, so it can do nothing: set \`network: true\` in its entry (${added.origin}), as \`cmd add --network\` does.`,
  ];
}

function isProfile(name: string): name is ProfileName {
  return (PROFILE_NAMES as readonly string[]).includes(name);
}

function entryOf(id: string, profile: string | undefined, options: AddOptions): object {
  const { allow, fixed, pattern, env, mount } = options;
  const args = {
    ...(allow === undefined ? {} : { allow }),
    ...(fixed === undefined ? {} : { fixed }),
    ...(pattern === undefined ? {} : { patterns: pattern.map((value) => ({ type: "regex", value })) }),
  };
  const given = {
    description: options.description,
    exec: options.exec,
    profile,
    args: Object.keys(args).length === 0 ? undefined : args,
    cwdPolicy: options.cwdPolicy ?? (options.cwd === undefined ? undefined : "fixed"),
    cwd: options.cwd,
    envAllowlist: env,
    timeoutMs: options.timeoutMs,
    maxOutputBytes: options.maxOutputBytes,
    network: options.network,
    mounts: mount,
  };
  return { id, ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) };
}

function notesOn(id: string, profile: string | undefined, { exec, allow, pattern }: AddOptions): string[] {
  if (profile !== undefined || exec === undefined) return [];
  const name = basename(exec);
  const notes: string[] = [];
  if (RUN_ANYTHING.test(name)) {
    notes.push(`${name} can run any program: only the sandbox limits it, not its arguments.`);
  }
  if (isProfile(name)) {
    notes.push(
      `There is a curated profile for ${name}, which knows its dangerous options: portcullis cmd add ${id} --profile ${name}`,
    );
  }
  if (allow === undefined && pattern === undefined) {
    notes.push(`${id} can be run without arguments only; --allow and --pattern let some through.`);
  }
  return notes;
}

export function listCommands(command: Command, files: HostFiles): void {
  const out = outFor(command);
  const policy = requireHostPolicy(command, files);
  const commands = [...policy.commands.values()].map(commandFacts);
  const otherPlatforms = Object.fromEntries(policy.otherPlatforms);
  out.data({ commands, otherPlatforms, profiles: PROFILE_NAMES }, () =>
    commands.length === 0 ? "the catalog is empty" : commandTable(policy),
  );
  if (out.json) return;
  for (const [id, platforms] of policy.otherPlatforms) out.note(paintErr.dim(`${id} is only for ${platforms}`));
  const free = PROFILE_NAMES.filter((name) => !policy.commands.has(name));
  if (free.length > 0)
    out.note(paintErr.dim(`curated profiles to add with \`portcullis cmd add\`: ${free.join(", ")}`));
}

export interface TestOptions {
  cwd?: string;
  env?: string[];
  stdin?: string;
  client?: string;
  run?: boolean;
}

export async function testCommand(
  command: Command,
  files: HostFiles,
  id: string,
  args: readonly string[],
  options: TestOptions,
): Promise<void> {
  const out = outFor(command);
  const policy = requireClient(requireHostPolicy(command, files), options.client);
  const params: JsonObject = {
    commandId: id,
    args: [...args],
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: Object.fromEntries(options.env.map(variable)) }),
    ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
  };
  if (options.run !== true) {
    process.exitCode = explainHostCall(policy, "cmd.run", params, out, await obstacleTo(policy, params));
    return;
  }
  const request = { jsonrpc: "2.0", id: 1, method: "cmd.run", params };
  const { answers } = await talkToHost({ files, client: options.client, messages: [JSON.stringify(request)] });
  const answer = answers[0] as Answer | undefined;
  if (answer?.result === undefined) throw refusedRun(answer?.error);
  const { exitCode, stdout, stderr } = answer.result;
  out.data(answer.result, () => stdout.replace(/\n$/, ""));
  if (!out.json && stderr !== "") process.stderr.write(stderr);
  if (!out.json) out.note(paintErr.dim(`exit code ${exitCode}; held by ${JSON.stringify(answer.result.protections)}`));
  if (exitCode !== 0) process.exitCode = EXIT.error;
}

/** The rules allow it; can it start there? Tried in its own sandbox, with a program that does nothing in its place. */
async function obstacleTo(policy: Policy, params: JsonObject): Promise<string | undefined> {
  const decision = decideCmdRun(policy, params);
  if (decision.effect !== "permit" || decision.would?.tool !== "cmd.run") return undefined;
  const command = policy.commands.get(decision.would.commandId);
  if (command === undefined) return undefined;
  const sandbox = new Sandbox();
  try {
    return await reachInSandbox(policy, command, sandbox, decision.would.cwd);
  } finally {
    await sandbox.close();
  }
}

interface Answer {
  readonly result?: { exitCode: number | null; stdout: string; stderr: string; protections: JsonObject };
  readonly error?: { message: string; data?: { code?: string; rule?: string; suggestions?: string[] } };
}

function refusedRun(error: Answer["error"]): CliError {
  if (error === undefined)
    return new CliError("the host gave no answer", EXIT.error, "`portcullis doctor host` looks for the reason");
  const { code, rule, suggestions = [] } = error.data ?? {};
  const exit = code === "POLICY_DENY" || code === "INVALID_ARGS" ? EXIT.deny : EXIT.error;
  return new CliError(error.message, exit, [...(rule ? [`rule: ${rule}`] : []), ...suggestions].join("\n"));
}

function variable(text: string): [string, string] {
  const at = text.indexOf("=");
  if (at < 1) throw new CliError(`invalid variable \`${text}\`: expected name=value`, EXIT.usage);
  return [text.slice(0, at), text.slice(at + 1)];
}
