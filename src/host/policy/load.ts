// policy.yaml to a frozen policy, or every problem with it at once.

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { basename, resolve } from "node:path";
import type { Path, ShapeProblem } from "../../mcp/index.js";
import type { LocatedPlace } from "../paths/locate.js";
import type { WritableRoot } from "../paths/target.js";
import { SYSTEM_DIRECTORIES, SYSTEM_FILES } from "../sandbox/confinement.js";
import { narrow } from "./clients.js";
import { type CommandContext, compileCommand, type PolicyReport } from "./command.js";
import { defaultsOf, type PolicyDocument, policyDocument } from "./document.js";
import { searchDirectories } from "./executable.js";
import { findPlace, overlap, type PlaceFacts, realPathOf } from "./places.js";
import { type Command, type Policy, policyHash, repositoryNotices, writeNotices } from "./policy.js";
import { type HostPolicyProblem, type Positions, placed, readYaml } from "./yaml.js";

export interface HostPolicyLoadOptions {
  /** Keys, ledger, store, admin socket: nothing that the policy opens may touch them. The policy file is added. */
  readonly protectedPaths?: readonly string[];
  /** The host's own program: it may be read, but no writable root may touch it. */
  readonly programPaths?: readonly string[];
  readonly home?: string;
  readonly searchPath?: string | undefined;
  readonly platform?: NodeJS.Platform;
}

export type LoadResult =
  | { readonly ok: true; readonly policy: Policy }
  | { readonly ok: false; readonly problems: readonly HostPolicyProblem[] };

export function loadYamlPolicy(file: string, options: HostPolicyLoadOptions = {}): LoadResult {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    const message = `cannot be read (${(error as NodeJS.ErrnoException).code})`;
    return {
      ok: false,
      problems: [{ file, line: 1, column: 1, path: "", message, remedy: "check the path given to --config" }],
    };
  }
  const protectedPaths = [...(options.protectedPaths ?? []), resolve(file)];
  return parsePolicy(text, file, { ...options, protectedPaths });
}

/** INVARIANT: a policy that comes out is complete and frozen; one problem anywhere and none comes out. */
export function parsePolicy(text: string, file: string, options: HostPolicyLoadOptions = {}): LoadResult {
  const yaml = readYaml(text, file);
  if (yaml.problems.length > 0) return { ok: false, problems: yaml.problems };
  const shapeProblems: ShapeProblem[] = [];
  const document = policyDocument.check(yaml.value ?? {}, [], shapeProblems);
  if (document === undefined) return { ok: false, problems: shapeProblems.map((p) => placed(p, yaml.positions)) };
  const problems: HostPolicyProblem[] = [];
  const report: PolicyReport = (path, message, remedy) => problems.push(yaml.positions.problem(path, message, remedy));
  const policy = compile(document, file, options, yaml.positions, report);
  return problems.length > 0 ? { ok: false, problems } : { ok: true, policy };
}

/** What every step of loading needs. */
type Loading = Pick<CommandContext, "document" | "facts" | "originOf" | "report"> & { readonly notices: string[] };

function compile(
  document: PolicyDocument,
  file: string,
  options: HostPolicyLoadOptions,
  positions: Positions,
  report: PolicyReport,
): Policy {
  const platform = options.platform ?? process.platform;
  const home = options.home ?? ownHome();
  const facts: PlaceFacts = { platform, home, denyNetworkFS: document.denyNetworkFS };
  const { limits, logging } = defaultsOf(document);
  const notices: string[] = [];
  const logFile = logging.file?.replace(/^~(?=\/)/, home);
  const guard = guardOf([...(options.protectedPaths ?? []), ...(logFile === undefined ? [] : [logFile])], report);
  const originOf = (path: Path): string => `${basename(file)}:${positions.problem(path, "", "").line}`;
  const loading: Loading = { document, facts, notices, originOf, report };
  const readableRoots = compileReadableRoots(loading, guard);
  const guardProgram = guardOf(options.programPaths ?? [], report);
  const writableRoots = compileWritableRoots(loading, (...place) => {
    guard(...place);
    guardProgram(...place);
  });
  const directories = searchDirectories(options.searchPath ?? process.env.PATH, platform);
  const context: CommandContext = { ...loading, limits, searchDirectories: directories, writableRoots };
  const { commands, otherPlatforms } = compileCatalog(context, guard);
  if (commands.size > 0)
    notices.push(...writeNotices(writableRoots), ...repositoryNotices(writableRoots, commands.values()));
  const base: Policy = {
    file,
    hash: policyHash(document),
    client: undefined,
    platform,
    home,
    denyNetworkFS: document.denyNetworkFS,
    hardLinks: document.hardLinks,
    readableRoots,
    writableRoots,
    commands,
    otherPlatforms,
    sandbox: document.sandbox,
    runAs: document.runAs,
    limits,
    logging,
    notices,
    clients: new Map(),
  };
  return freeze({ ...base, clients: compileClients(loading, base) });
}

/** A user without an entry in the user database has no home; then `~` names nothing. */
function ownHome(): string {
  try {
    return homedir();
  } catch {
    return "/nonexistent";
  }
}

/** All the way down; a policy is data, and its few maps are only ever read. */
function freeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const part of value instanceof Map ? value.values() : Object.values(value)) freeze(part);
  return value instanceof RegExp ? value : Object.freeze(value);
}

type Guard = (place: string, at: Path, what: string) => void;

/** An agent that could read a key or rewrite the rules would not need to ask. */
function guardOf(protectedPaths: readonly string[], report: PolicyReport): Guard {
  const closed = protectedPaths.map((path) => ({ path, real: realPathOf(path) }));
  return (place, at, what) => {
    for (const { path, real } of closed) {
      if (!overlap(place, real)) continue;
      report(
        at,
        `${what} reaches ${path}, which must stay out of reach`,
        "choose a directory that neither holds it nor lies in it",
      );
    }
  };
}

function compileReadableRoots({ document, facts, notices, originOf, report }: Loading, guard: Guard): LocatedPlace[] {
  return document.allowedRoots.flatMap((text, i) => {
    const at = ["allowedRoots", i];
    const found = findPlace(text, facts);
    if (found.kind === "foreign") notices.push(foreignNotice(at, text));
    else if (found.kind === "problem") report(at, found.message, found.remedy);
    else if (!found.exists) report(at, `${text} does not exist`, "create the directory or remove the entry");
    else {
      guard(found.place.path, at, "this root");
      return [{ ...found.place, origin: originOf(at) }];
    }
    return [];
  });
}

function foreignNotice([list, i]: Path, text: string): string {
  return `${list}[${i}] ${text} is for another platform and is ignored here`;
}

function compileWritableRoots({ document, facts, notices, originOf, report }: Loading, guard: Guard): WritableRoot[] {
  const first = new Map<string, Path>();
  return document.writeRules.flatMap(({ path, ...rule }, i) => {
    const found = findPlace(path, facts);
    const at = ["writeRules", i, "path"];
    const earlier = found.kind === "place" ? first.get(found.place.path) : undefined;
    if (found.kind === "place" && earlier === undefined) first.set(found.place.path, at);
    if (found.kind === "foreign") notices.push(foreignNotice(at, path));
    else if (found.kind === "problem") report(at, found.message, found.remedy);
    else if (earlier !== undefined) {
      // One of the two would win without a word, and it may be the wider one.
      report(at, `there are two write rules for ${path} (first at ${originOf(earlier)})`, "keep one of them");
    } else if (!found.exists && !rule.createIfMissing) {
      report(at, `${path} does not exist`, "create the directory or set createIfMissing: true");
    } else {
      guard(found.place.path, at, "this writable root");
      return [{ ...found.place, ...rule, origin: originOf(at) }];
    }
    return [];
  });
}

const PLATFORM_NAMES: Readonly<Partial<Record<NodeJS.Platform, string>>> = {
  linux: "linux",
  darwin: "macos",
  win32: "windows",
};

function compileCatalog(context: CommandContext, guard: Guard) {
  const { document, facts, originOf, report } = context;
  const commands = new Map<string, Command>();
  const otherPlatforms = new Map<string, string>();
  const ids = new Map<string, number>();
  for (const [i, entry] of document.commands.entries()) {
    const path = ["commands", i];
    const first = ids.get(entry.id);
    if (first !== undefined) {
      report(
        [...path, "id"],
        `duplicate command id ${entry.id} (first at ${originOf(["commands", first])})`,
        "give it another id",
      );
      continue;
    }
    ids.set(entry.id, i);
    const here = PLATFORM_NAMES[facts.platform];
    if (entry.platform !== undefined && !entry.platform.some((name) => name === here)) {
      otherPlatforms.set(entry.id, entry.platform.join(", "));
      continue;
    }
    const command = compileCommand(entry, path, context);
    if (command === undefined) continue;
    commands.set(entry.id, command);
    command.mounts.forEach((mount, j) => guard(mount, [...path, "mounts", j], "this mount"));
    if (command.cwd !== undefined) guard(command.cwd.path, [...path, "cwd"], "this directory");
  }
  if (commands.size > 0) {
    for (const seen of [...SYSTEM_DIRECTORIES, ...SYSTEM_FILES])
      guard(realPathOf(seen), ["commands"], `${seen}, which every command sees,`);
  }
  return { commands, otherPlatforms };
}

function compileClients({ document, facts, report }: Loading, base: Policy): Map<string, Policy> {
  const clients = new Map<string, Policy>();
  for (const [i, client] of document.profiles.entries()) {
    const path = ["profiles", i];
    if (clients.has(client.client))
      report([...path, "client"], `there are two profiles for ${client.client}`, "join them");
    clients.set(client.client, narrow(base, client, path, facts, report));
  }
  return clients;
}
