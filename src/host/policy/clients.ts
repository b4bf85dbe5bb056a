// Profiles per client: the same policy with something taken away. Whatever would add is an error at load.

import { isWithin, type LocatedPlace, type Zone } from "../paths/index.js";
import type { Path } from "../../mcp/index.js";
import type { CommandReport } from "./command.js";
import type { ClientDocument } from "./document.js";
import { policyHash } from "./hash.js";
import { findPlace, type PlaceFacts } from "./places.js";
import type { Command, Policy } from "./policy.js";

export function narrow(
  base: Policy,
  client: ClientDocument,
  path: Path,
  facts: PlaceFacts,
  report: CommandReport,
): Policy {
  const roots = client.allowedRoots?.flatMap((text, i) =>
    below(text, base.roots, facts, (message) =>
      report([...path, "allowedRoots", i], message, "name a folder inside one of the policy's allowedRoots"),
    ),
  );
  const named = new Set<string>();
  const zones = client.writeRules?.flatMap((rule, i) => {
    const at = [...path, "writeRules", i];
    const found = below(rule.path, base.zones, facts, (message) =>
      report([...at, "path"], message, "name a folder inside one of the policy's writeRules"),
    );
    for (const place of found) {
      if (named.has(place.path)) {
        report([...at, "path"], `there are two write rules for ${rule.path}`, "keep one of them");
      }
      named.add(place.path);
    }
    return found.flatMap((place) => tighten(rule, place, base.zones, at, report));
  });
  const commands = client.commands?.flatMap((id, i) => {
    const command = base.commands.get(id);
    if (command === undefined && !base.elsewhere.has(id)) {
      report([...path, "commands", i], `there is no command ${id}`, "name an id from the policy's commands");
    }
    return command ?? [];
  });
  const maxReadBytes = Math.min(client.maxReadBytes ?? base.limits.maxReadBytes, base.limits.maxReadBytes);
  const maxCmdConcurrency = Math.min(
    client.maxCmdConcurrency ?? base.limits.maxCmdConcurrency,
    base.limits.maxCmdConcurrency,
  );
  const kept = commands ?? [...base.commands.values()];
  const quiet = client.network === false ? kept.map((command): Command => ({ ...command, network: false })) : kept;
  return Object.freeze({
    ...base,
    hash: policyHash({ policy: base.hash, client }),
    client: client.client,
    roots: roots ?? base.roots,
    zones: zones === undefined ? base.zones : [...zones, ...innerZones(zones, base.zones)],
    commands: new Map(quiet.map((command) => [command.id, command])),
    limits: { ...base.limits, maxReadBytes, maxCmdConcurrency },
    clients: new Map(),
  });
}

/** A rule of the policy's inside a zone of the profile's goes on holding: without it the wider one around it would. */
function innerZones(zones: readonly Zone[], base: readonly Zone[]): Zone[] {
  return base.flatMap((inner) => {
    if (zones.some((zone) => zone.path === inner.path)) return [];
    const [outer] = zones
      .filter((zone) => zone.recursive && isWithin(inner.path, zone.path))
      .sort((a, b) => b.path.length - a.path.length);
    return outer === undefined ? [] : [{ ...inner, ...meet(inner, outer) }];
  });
}

type Rule = Omit<Zone, "path" | "written" | "origin">;

function meet(a: Rule, b: Rule): Rule {
  return {
    recursive: a.recursive && b.recursive,
    maxFileBytes: Math.min(a.maxFileBytes, b.maxFileBytes),
    createIfMissing: a.createIfMissing && b.createIfMissing,
    repositoryInternals: a.repositoryInternals && b.repositoryInternals,
  };
}

function below(
  text: string,
  around: readonly LocatedPlace[],
  facts: PlaceFacts,
  complain: (message: string) => void,
): LocatedPlace[] {
  const found = findPlace(text, facts);
  if (found.kind === "foreign") return [];
  if (found.kind === "problem") {
    complain(found.message);
    return [];
  }
  if (around.some((place) => isWithin(found.place.path, place.path))) return [found.place];
  complain(`${text} lies outside what the policy itself opens`);
  return [];
}

function tighten(rule: Rule, place: LocatedPlace, zones: readonly Zone[], path: Path, report: CommandReport): Zone[] {
  const outer = zones
    .filter((zone) => isWithin(place.path, zone.path))
    .sort((a, b) => b.path.length - a.path.length)[0];
  if (outer === undefined) return [];
  if (!outer.recursive && place.path !== outer.path) {
    report([...path, "path"], "lies below a write rule that is not recursive", "name that rule's own folder");
  }
  return [{ ...place, ...meet(rule, outer) }];
}
