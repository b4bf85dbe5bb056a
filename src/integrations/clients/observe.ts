// `portcullis server observe`: a server runs in its profile while its calls are made as usual, and what it touched becomes the
// next profile. What it was refused is shown and enters the profile only when the operator names it.

import { existsSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import {
  type Destination,
  destinationName,
  isWithin,
  type ServerProtections,
  type TouchedPath,
} from "../../host/index.js";
import { CliError } from "../../lib/exit.js";
import type { JsonObject } from "../../mcp/index.js";
import { askAdmin } from "../../runtime/admin-client.js";
import { shared } from "../../runtime/options.js";
import { noApplication, operator, type StoreOptions, withStore } from "../../runtime/store/open.js";
import type { Application, SandboxEntry, ServerEntry, Storage } from "../../storage/index.js";
import { differences, type FieldChange } from "../declared/difference.js";
import { here } from "./collect.js";
import { importedSandbox, isPublicRegistry } from "./sandbox.js";

export interface ObserveOptions extends StoreOptions {
  readonly admin?: string;
  readonly read?: readonly string[];
  readonly write?: readonly string[];
  readonly host?: readonly string[];
  readonly accept?: boolean;
}

type Named = Pick<ObserveOptions, "read" | "write" | "host">;

export type ObserveResult =
  | { readonly state: "started"; readonly sandbox: SandboxEntry }
  | (Proposal & { readonly state: "proposed" | "accepted"; readonly changes: readonly FieldChange[] });

export interface Proposal {
  readonly sandbox: SandboxEntry;
  /** What the server tried to touch, and the profile does not open. */
  readonly refusedPaths: readonly TouchedPath[];
  readonly refusedHosts: readonly string[];
}

/** Starts the observation of a server, or proposes the profile that follows from it; `accept` puts that in force. */
export function observeServer(
  command: Command,
  app: string,
  server: string,
  options: ObserveOptions,
): Promise<ObserveResult> {
  return withStore(command, options, async (storage) => {
    const application = await storage.applications.get(app);
    if (!application) throw noApplication(app);
    const entry = application.document.servers?.[server];
    if (entry?.command === undefined) {
      throw new CliError(`application ${app} starts no server ${server}`, undefined, `portcullis app show ${app}`);
    }
    const { sandbox } = entry;
    if (typeof sandbox !== "object" || sandbox.observe !== true) {
      const profile = opened(typeof sandbox === "object" ? sandbox : firstProfile(command, entry), options);
      await change(storage, application, server, { ...entry, sandbox: { ...profile, observe: true } });
      return { state: "started", sandbox: profile };
    }
    const { observe: _, ...current } = sandbox;
    const proposal = proposed(current, await seen(command, app, server, options), options);
    const changes = differences(current as JsonObject, proposal.sandbox as JsonObject);
    if (options.accept !== true) return { ...proposal, changes, state: "proposed" };
    await change(storage, application, server, { ...entry, sandbox: proposal.sandbox });
    return { ...proposal, changes, state: "accepted" };
  });
}

/** The profile, with what the operator names. */
export function opened(profile: SandboxEntry, { read = [], write = [], host = [] }: Named): SandboxEntry {
  const { network } = profile;
  const before = typeof network === "object" || network === "public" ? [network].flat() : [];
  const more = (known: readonly string[] = [], named: readonly string[]): string[] => [
    ...new Set([...known, ...named]),
  ];
  return {
    ...profile,
    ...(read.length === 0 ? {} : { read: more(profile.read, read) }),
    ...(write.length === 0 ? {} : { write: more(profile.write, write) }),
    ...(host.length === 0 || network === "on" ? {} : { network: more(before, host) }),
  };
}

function firstProfile(command: Command, entry: ServerEntry): SandboxEntry {
  const { entry: withProfile, reason } = importedSandbox(entry, { ...here(), dir: resolve(shared(command).dir) });
  if (typeof withProfile.sandbox === "object") return withProfile.sandbox;
  const why = reason ?? `there is no sandbox for servers on ${process.platform}`;
  throw new CliError(`no profile can be proposed: ${why}`, undefined, "write a profile into `sandbox` of its entry");
}

async function change(storage: Storage, before: Application, server: string, entry: ServerEntry): Promise<void> {
  const { id, document, revision } = before;
  const next = { ...document, servers: { ...document.servers, [server]: entry } };
  if (await storage.applications.put(id, next, operator(), revision)) return;
  throw new CliError(`application \`${id}\` was changed by another process meanwhile`, undefined, "run it again");
}

async function seen(
  command: Command,
  app: string,
  server: string,
  { admin }: ObserveOptions,
): Promise<ServerProtections> {
  const { servers } = (await askAdmin(command, admin, "/v1/servers")) as {
    servers: { app: string; server: string; sandbox?: ServerProtections }[];
  };
  const sandbox = servers.find((each) => each.app === app && each.server === server)?.sandbox;
  if (sandbox?.touched !== undefined) return sandbox;
  throw new CliError(
    `server ${server} of application ${app} is not observed yet`,
    undefined,
    "call its tools while the gateway runs, and run this again before the server is stopped",
  );
}

/** The narrowest profile that permits what was used. INVARIANT: it opens nothing that `current` or the operator did not. */
export function proposed(
  current: SandboxEntry,
  { touched = [], destinations = [] }: Pick<ServerProtections, "touched" | "destinations">,
  { read = [], write = [], host = [] }: Named,
): Proposal {
  const { read: _, write: __, network: ___, ...rest } = current;
  const [reads, writes] = [current.read ?? [], current.write ?? []];
  const uses = (path: string, isWrite: boolean): boolean =>
    touched.some((each) => isWithin(each.path, realOf(path)) && (!isWrite || each.isWritten));
  const nextWrite = [...new Set([...writes.filter((path) => uses(path, true)), ...write])];
  const nextRead = [...new Set([...reads, ...writes].filter((path) => uses(path, false)).concat(read))];
  const onlyRead = nextRead.filter((path) => !nextWrite.includes(path));
  const isOpen = ({ path, isWritten }: TouchedPath): boolean =>
    [...writes, ...(isWritten ? [] : reads), ...read, ...write].some((each) => isWithin(path, realOf(each)));
  return {
    sandbox: {
      ...rest,
      ...(onlyRead.length === 0 ? {} : { read: onlyRead }),
      ...(nextWrite.length === 0 ? {} : { write: nextWrite }),
      network: nextNetwork(current.network, destinations, host),
    },
    refusedPaths: touched.filter((each) => !isOpen(each)),
    refusedHosts: [...new Set(destinations.filter(isClosed).map(destinationName))].filter(
      (each) => !host.includes(each),
    ),
  };
}

function nextNetwork(
  before: SandboxEntry["network"] = "off",
  destinations: readonly Destination[],
  more: readonly string[],
): SandboxEntry["network"] {
  // The machine's own network is not observed.
  if (before === "on") return before;
  const reached = destinations.filter(({ allowed }) => allowed).map(destinationName);
  const kept = typeof before === "string" ? [] : before.filter(isPublicRegistry);
  const next = [...new Set([...kept, ...reached, ...more])];
  return next.length === 0 ? "off" : next;
}

/** One that did not answer is not opened by naming it. */
function isClosed({ allowed, refusal }: Destination): boolean {
  return !allowed && refusal !== "connection";
}

function realOf(path: string): string {
  const full = path === "~" || path.startsWith("~/") ? join(homedir(), path.slice(1)) : path;
  return existsSync(full) ? realpathSync(full) : full;
}
