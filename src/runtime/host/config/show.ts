// A policy as it holds here, after `~`, links, PATH and platform are resolved.

import type { Command, HostDecision, Policy, Would } from "../../../host/index.js";
import { CliError, EXIT, type ExitCode } from "../../../lib/exit.js";
import { effectWord, type Out, paint, table } from "../../../lib/print.js";
import type { JsonObject } from "../../../mcp/index.js";
import { visible } from "../../../telemetry/index.js";
import { decideHostCall } from "../decide.js";
import { HOST_TOOLS } from "../starter-policy.js";

export function effectiveText(policy: Policy): object {
  return {
    file: policy.file,
    hash: policy.hash,
    allowedRoots: policy.readableRoots.map(({ path, written, origin }) => ({ path, written, origin })),
    writeRules: policy.writableRoots,
    commands: [...policy.commands.values()].map(commandFacts),
    otherPlatforms: Object.fromEntries(policy.otherPlatforms),
    denyNetworkFS: policy.denyNetworkFS,
    hardLinks: policy.hardLinks,
    sandbox: policy.sandbox,
    runAs: policy.runAs,
    limits: policy.limits,
    logging: policy.logging,
    profiles: [...policy.clients.keys()],
    notices: policy.notices,
  };
}

export function commandFacts(command: Command): object {
  const { id, origin, description, executable, profile, allow, fixed, patterns } = command;
  return {
    id,
    origin,
    description,
    exec: executable.path,
    profile: profile?.name,
    args:
      allow === undefined
        ? undefined
        : { allow: [...allow], fixed, patterns: patterns.map((pattern) => pattern.source) },
    cwdPolicy: command.cwdPolicy,
    cwd: command.cwd?.path,
    envAllowlist: [...command.envAllowlist],
    timeoutMs: command.timeoutMs,
    maxOutputBytes: command.maxOutputBytes,
    network: command.network,
    sandbox: command.sandbox,
    mounts: command.mounts,
    execFromRoots: command.execFromRoots,
    limits: command.limits,
  };
}

export function commandTable(policy: Policy): string {
  const rows = [...policy.commands.values()].map((command) => [
    command.id,
    command.executable.path,
    argumentsOf(command),
    command.cwdPolicy,
    command.network ? "open" : "off",
    command.sandbox,
    command.origin,
  ]);
  return table(["id", "program", "arguments", "directory", "network", "sandbox", "where"], rows);
}

const MAX_ARGUMENTS_CHARS = 48;

function argumentsOf({ profile, allow, fixed, patterns }: Command): string {
  if (allow === undefined) return `profile ${profile?.name}`;
  const words = [...allow, ...patterns.map((pattern) => `/${pattern.source}/`)].join(" ") || "none";
  const all = fixed.length === 0 ? words : `${fixed.join(" ")} + ${words}`;
  return all.length > MAX_ARGUMENTS_CHARS ? `${all.slice(0, MAX_ARGUMENTS_CHARS - 1)}…` : all;
}

/** In a few lines: what may be read, written and run. */
export function policySummary(policy: Policy): string {
  const line = (what: string, items: readonly string[]): string =>
    `  ${what.padEnd(16)}${items.length === 0 ? paint.dim("nothing") : items.join(", ")}`;
  return [
    line(
      "may be read",
      policy.readableRoots.map((root) => root.written),
    ),
    line(
      "may be written",
      policy.writableRoots.map((zone) => zone.written),
    ),
    line("may be run", [...policy.commands.keys()]),
  ].join("\n");
}

/** `obstacle`: what would stand in the way although the rules allow it. */
export function explainHostCall(policy: Policy, tool: string, args: JsonObject, out: Out, obstacle?: string): ExitCode {
  const decision = decideHostCall(policy, tool, args);
  if (decision === undefined) {
    throw new CliError(`the host has no tool \`${tool}\``, EXIT.usage, `it has ${[...HOST_TOOLS].join(", ")}`);
  }
  const under = { file: policy.file, hash: policy.hash, client: policy.client };
  out.data({ tool, arguments: args, ...decision, obstacle, policy: under }, () => decisionText(decision, obstacle));
  if (decision.effect === "deny") return EXIT.deny;
  return obstacle === undefined ? EXIT.ok : EXIT.error;
}

function decisionText(decision: HostDecision, obstacle: string | undefined): string {
  const head = `${effectWord(decision.effect)} by ${paint.bold(visible(decision.rule))}`;
  if (decision.effect === "permit") {
    const fails = obstacle === undefined ? [] : [`  ${paint.red("would fail")}  ${visible(obstacle)}`];
    return [head, ...(decision.would === undefined ? [] : wouldLines(decision.would)), ...fails].join("\n");
  }
  const { code, reason, field, suggestions = [] } = decision.denial;
  return [
    `${head} (${code})`,
    `  ${visible(reason)}`,
    ...(field === undefined ? [] : [`  look at     ${visible(field)}`]),
    ...suggestions.map((suggestion) => `  try         ${visible(suggestion)}`),
  ].join("\n");
}

function wouldLines(would: Would): string[] {
  switch (would.tool) {
    case "fs.read":
      return [`  would read  ${would.bytes} bytes of ${visible(would.path)}, from byte ${would.offset}`];
    case "fs.write": {
      const how = would.replaces ? "replace" : "create";
      return [`  would ${how}  ${visible(would.path)} with ${would.bytes} bytes`];
    }
    case "cmd.run": {
      const env = Object.entries(would.env).map(([name, value]) => `${name}=${shown(value)}`);
      const network = would.network ? "network open" : "no network";
      return [
        `  would run   ${[would.program, ...would.args].map(shown).join(" ")}`,
        `  in          ${would.cwd === undefined ? "a scratch directory of its own" : visible(would.cwd)}`,
        ...(env.length === 0 ? [] : [`  with        ${env.join(" ")}`]),
        `  may write   ${writable(would)}`,
        `  held by     sandbox ${would.sandbox}, ${network}, ${would.timeoutMs} ms, ${would.maxOutputBytes} bytes of output`,
      ];
    }
  }
}

function writable({ sandbox, writes, exceptIn, maxFileBytes }: Extract<Would, { tool: "cmd.run" }>): string {
  if (sandbox === "off") return "whatever its user may: without a sandbox no write rule holds for commands";
  if (writes.length === 0) return "nothing but its scratch directory";
  const except = exceptIn.length === 0 ? "" : `, but not in ${exceptIn.map(visible).join(", ")}`;
  return `${writes.map(visible).join(", ")}${except}; files of at most ${maxFileBytes} bytes`;
}

/** As a shell would need it, so that an argument with spaces is seen as one. */
function shown(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${visible(text).replaceAll("'", "'\\''")}'`;
}
