// A policy as it holds here, after `~`, links, PATH and platform are resolved.

import { type Command, type Policy } from "../../../host/index.js";
import { paint, table } from "../../../lib/print.js";

export function effectiveText(policy: Policy): object {
  return {
    file: policy.file,
    hash: policy.hash,
    allowedRoots: policy.roots.map(({ path, written, origin }) => ({ path, written, origin })),
    writeRules: policy.zones,
    commands: [...policy.commands.values()].map(commandFacts),
    otherPlatforms: Object.fromEntries(policy.elsewhere),
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
  return table(["id", "program", "arguments", "folder", "network", "sandbox", "where"], rows);
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
      policy.roots.map((root) => root.written),
    ),
    line(
      "may be written",
      policy.zones.map((zone) => zone.written),
    ),
    line("may be run", [...policy.commands.keys()]),
  ].join("\n");
}
