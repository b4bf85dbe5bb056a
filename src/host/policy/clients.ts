// Profiles per client: the same policy with something taken away. Whatever would add is an error at load.

import type { Path } from "../../mcp/index.js";
import type { LocatedPlace } from "../paths/locate.js";
import { isWithin } from "../paths/mounts.js";
import type { WritableRoot } from "../paths/target.js";
import type { PolicyReport } from "./command.js";
import type { ClientDocument } from "./document.js";
import { findPlace, type PlaceFacts } from "./places.js";
import { type Command, type Policy, policyHash } from "./policy.js";

export function narrow(
  base: Policy,
  client: ClientDocument,
  path: Path,
  facts: PlaceFacts,
  report: PolicyReport,
): Policy {
  const roots = client.allowedRoots?.flatMap((text, i) =>
    below(text, base.readableRoots, facts, (message) =>
      report([...path, "allowedRoots", i], message, "name a directory inside one of the policy's allowedRoots"),
    ),
  );
  const named = new Set<string>();
  const writableRoots = client.writeRules?.flatMap((rule, i) => {
    const at = [...path, "writeRules", i];
    const found = below(rule.path, base.writableRoots, facts, (message) =>
      report([...at, "path"], message, "name a directory inside one of the policy's writeRules"),
    );
    for (const place of found) {
      if (named.has(place.path)) {
        report([...at, "path"], `there are two write rules for ${rule.path}`, "keep one of them");
      }
      named.add(place.path);
    }
    return found.flatMap((place) => tighten(rule, place, base.writableRoots, at, report));
  });
  const commands = client.commands?.flatMap((id, i) => {
    const command = base.commands.get(id);
    if (command === undefined && !base.otherPlatforms.has(id)) {
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
    readableRoots: roots ?? base.readableRoots,
    writableRoots:
      writableRoots === undefined
        ? base.writableRoots
        : [...writableRoots, ...innerWritableRoots(writableRoots, base.writableRoots)],
    commands: new Map(quiet.map((command) => [command.id, command])),
    limits: { ...base.limits, maxReadBytes, maxCmdConcurrency },
    clients: new Map(),
  });
}

/** A rule of the policy's inside a writable root of the profile's stays in force: without it the wider one around it would apply. */
function innerWritableRoots(writableRoots: readonly WritableRoot[], base: readonly WritableRoot[]): WritableRoot[] {
  return base.flatMap((inner) => {
    if (writableRoots.some((writableRoot) => writableRoot.path === inner.path)) return [];
    const [outer] = writableRoots
      .filter((writableRoot) => writableRoot.recursive && isWithin(inner.path, writableRoot.path))
      .sort((a, b) => b.path.length - a.path.length);
    return outer === undefined ? [] : [{ ...inner, ...meet(inner, outer) }];
  });
}

type Rule = Omit<WritableRoot, "path" | "written" | "origin">;

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

function tighten(
  rule: Rule,
  place: LocatedPlace,
  writableRoots: readonly WritableRoot[],
  path: Path,
  report: PolicyReport,
): WritableRoot[] {
  const outer = writableRoots
    .filter((writableRoot) => isWithin(place.path, writableRoot.path))
    .sort((a, b) => b.path.length - a.path.length)[0];
  if (outer === undefined) return [];
  if (!outer.recursive && place.path !== outer.path) {
    report([...path, "path"], "lies below a write rule that is not recursive", "name that rule's own directory");
  }
  return [{ ...place, ...meet(rule, outer) }];
}
