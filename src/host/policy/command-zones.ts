// What the write rules mean for commands. A command is held by the kernel, which knows whole folders and one size for every
// file; what of a rule cannot be said that way is not left to the command's good will: it cannot write there at all.

import { basename } from "node:path";
import { isWithin, type Zone } from "../paths/index.js";
import type { Command } from "./policy.js";

/** "This folder but none below it" and "replace but never create" hold for fs.write only. */
export function isOpenToCommands({ recursive, createIfMissing }: Zone): boolean {
  return recursive && createIfMissing;
}

/** Zones with a rule of their own inside one that is open: the stricter rule holds there. */
export function closedInside(zones: readonly Zone[]): Zone[] {
  const open = zones.filter(isOpenToCommands);
  return zones.filter((zone) => !isOpenToCommands(zone) && open.some((outer) => isWithin(zone.path, outer.path)));
}

/** One number holds for all files of a process, so the strictest zone sets it. Undefined: there is nothing to write. */
export function largestFile(zones: readonly Zone[]): number | undefined {
  const sizes = zones.filter(isOpenToCommands).map((zone) => zone.maxFileBytes);
  return sizes.length === 0 ? undefined : Math.min(...sizes);
}

/** A program called git is nearly always meant to write there. */
export function repositoryNotices(zones: readonly Zone[], commands: Iterable<Command>): string[] {
  const isClosed = zones.some((zone) => isOpenToCommands(zone) && !zone.repositoryInternals);
  const writers = [...commands].filter((command) => command.profile === undefined && isGit(command));
  return (isClosed ? writers : []).map(
    ({ id, origin }) =>
      `command ${id} (${origin}) cannot commit or change settings: repositories are closed to commands unless a write rule says repositoryInternals: true`,
  );
}

export function isGit(command: Command): boolean {
  return command.profile?.name === "git" || basename(command.executable.real) === "git";
}

/** Said when the policy is loaded: nobody should find out by a command that fails. */
export function zoneNotices(zones: readonly Zone[]): string[] {
  const closed = zones
    .filter((zone) => !isOpenToCommands(zone))
    .map(
      ({ written, origin }) =>
        `writeRules ${written} (${origin}) holds for fs.write; commands cannot write there unless it says recursive: true and createIfMissing: true`,
    );
  const size = largestFile(zones);
  const isTighter = zones.some((zone) => isOpenToCommands(zone) && zone.maxFileBytes !== size);
  return isTighter
    ? [...closed, `commands write files of at most ${size} bytes, the smallest maxFileBytes of the zones open to them`]
    : closed;
}
