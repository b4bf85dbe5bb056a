// `portcullis import`.

import { join, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Command } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { paint } from "../../lib/print.js";
import type { JsonObject } from "../../mcp/index.js";
import { ensureState } from "../../runtime/data-directory.js";
import { agreed, outFor, shared } from "../../runtime/options.js";
import { profileLines } from "../../runtime/server-sandbox.js";
import { sandboxOf } from "../../runtime/servers.js";
import { operator, type StoreOptions, sealerFor, withStore } from "../../runtime/store/open.js";
import {
  type Application,
  type ApplicationDocument,
  hideCredentials,
  type Sealer,
  type ServerEntry,
  type Storage,
} from "../../storage/index.js";
import { visible } from "../../telemetry/index.js";
import { changeText, differences, type FieldChange } from "../declared/difference.js";
import { type CollectedServers, collectServers, here } from "./collect.js";
import type { Converted, Lifted } from "./convert.js";
import { isConnectable } from "./places.js";
import { importedSandbox, type SandboxContext } from "./sandbox.js";
import { STARTING_POLICY_FILE, startingPolicy } from "./starting-policy.js";

export interface ImportOptions extends StoreOptions {
  from: string;
  app: string;
  only?: string[];
  yes?: boolean;
  dryRun?: boolean;
}

export async function importServers(command: Command, options: ImportOptions): Promise<void> {
  const out = outFor(command);
  const bundles = join(resolve(shared(command).dir), "bundles");
  const mayAsk = process.stdin.isTTY === true && options.yes !== true;
  const collected = withoutUnset(
    await collectServers({ from: options.from, only: options.only, mayAsk, bundles }),
    options.only,
  );
  refuse(collected);
  const plan = await look(command, options, collected);
  if (!out.json) out.data(plan, () => planText(plan, collected));
  const mayChange = !plan.isEmpty && options.dryRun !== true;
  if (mayChange) {
    await agreed("Make these changes?", options.yes);
    ensureState(shared(command).dir);
    collected.extract?.();
    await withStore(
      command,
      options,
      async (storage) => carryOutImport(storage, await sealerFor(storage, command, options), plan),
      { create: true },
    );
  }
  if (out.json) out.data(asJson(plan, collected, mayChange), () => "");
  if (mayChange) out.note(next(options, plan));
}

/** A server that lacks a value is left out and named; it stops the import only when no other is left or --only names it. */
function withoutUnset(collected: CollectedServers, only: readonly string[] | undefined): CollectedServers {
  const { servers, unset, skipped } = collected;
  const ready = servers.filter(({ found }) => !unset.has(found.name));
  if (only !== undefined || ready.length === 0 || ready.length === servers.length) return collected;
  const leftOut = servers
    .filter(({ found }) => unset.has(found.name))
    .map(({ found: { name, file } }) => ({ name, file, why: (unset.get(name) ?? []).join("; ") }));
  return { ...collected, servers: ready, missing: [], unset: new Map(), skipped: [...skipped, ...leftOut] };
}

/** Everything that stops the import, in one error; nothing is changed then. */
function refuse({ servers, missing, files }: CollectedServers): void {
  const problems = [
    ...missing,
    ...servers.flatMap(({ found, problems }) => problems.map((each) => `${found.name}: ${each}`)),
  ];
  if (problems.length > 0) {
    const help = `${problems.map((each) => `  ${visible(each)}`).join("\n")}\nor leave a server out: --only names those to take`;
    throw new CliError(`${files.join(", ")} cannot be imported as it is; nothing was changed`, EXIT.error, help);
  }
  if (servers.length === 0) throw new CliError(`${files.join(", ")}: there is no server to import`);
}

function withProfiles(collected: CollectedServers, context: SandboxContext): CollectedServers {
  const servers = collected.servers.map((converted): Converted => {
    const { entry, reason } = importedSandbox(converted.entry, context);
    const note =
      reason === undefined ? [] : [`no profile, because ${reason}: the user's files and the network stay open to it`];
    return { ...converted, entry, notes: [...converted.notes, ...note] };
  });
  return { ...collected, servers };
}

async function look(command: Command, options: ImportOptions, collected: CollectedServers): Promise<ImportPlan> {
  return withStore(command, options, async (storage) => {
    const known = await knownIn(storage, () => sealerFor(storage, command, options), options.app);
    const context = { ...here(), dir: resolve(shared(command).dir) };
    return planImport(options.app, withProfiles(collected, context), known);
  });
}

function next({ from, app }: ImportOptions, plan: ImportPlan): string {
  const confined = plan.servers.filter(({ converted }) => typeof converted.entry.sandbox === "object");
  const [only] = confined;
  const server = confined.length === 1 && only !== undefined ? only.converted.name : "SERVER";
  const trouble =
    confined.length === 0
      ? []
      : [`If a server does not start in its profile: \`portcullis server show ${app} ${server}\` says why`];
  const named = app === "local" ? "" : ` --app ${app}`;
  const serve = `  portcullis serve${named}`;
  if (!isConnectable(from))
    return [paint.green("done"), "Next:", `${serve}  serves it on http://127.0.0.1:7420/mcp`, ...trouble].join("\n");
  const connect = `  portcullis connect ${from}${named}`;
  return [
    paint.green("done"),
    "Next:",
    `${connect}  lets the client start it, in place of its own servers`,
    `${serve.padEnd(connect.length)}  or serves it on http://127.0.0.1:7420/mcp`,
    ...trouble,
  ].join("\n");
}

const SIGNS = { add: "+", change: "~", same: "=" } as const;

function planText(plan: ImportPlan, collected: CollectedServers): string {
  const { app, isNew, servers, secrets, policy } = plan;
  return [
    paint.bold(`${isNew ? "+ new application" : plan.isEmpty ? "= application" : "~ application"} ${app}`),
    ...collected.files.map((file) => `  from ${file}`),
    ...servers.flatMap(serverText),
    ...secrets.map(({ action, lifted }) =>
      action === "same"
        ? `= secret ${lifted.name}`
        : `${SIGNS[action]} secret ${lifted.name}: ${visible(lifted.from)}, sealed in the store and not shown`,
    ),
    ...(policy === undefined
      ? []
      : [`+ policy ${policy}: reading is permitted, deleting is denied, everything else needs an approval`]),
    ...collected.warnings.map((each) => `! ${visible(each)}`),
    ...collected.skipped.map(({ name, why }) => `  ${visible(name)} is left alone: ${why}`),
    ...(plan.isEmpty ? ["nothing is different"] : []),
  ].join("\n");
}

function serverText({ action, converted, changes }: PlannedServer): string[] {
  const { name, entry, notes } = converted;
  const left = notes.map((note) => `    ${visible(note)}`);
  switch (action) {
    case "same":
      return [`= server ${name}`, ...left];
    case "change":
      return [`~ server ${name}`, ...changes.map((change) => `    ${changeText(change)}`), ...left];
    case "add": {
      const runs = entry.url ?? [entry.command, ...(entry.args ?? [])].join(" ");
      return [
        `+ server ${name}: ${visible(runs)}`,
        ...(entry.env ? [`    env: ${Object.keys(entry.env).map(visible).join(", ")}`] : []),
        ...(entry.headers ? [`    headers: ${Object.keys(entry.headers).map(visible).join(", ")}`] : []),
        ...(entry.cwd === undefined ? [] : [`    cwd: ${visible(entry.cwd)}`]),
        `    noGuardrail: ["*"], no guardrail looks at its calls: the policy alone decides`,
        ...(entry.disabled ? ["    disabled, as it was"] : []),
        ...profileLines(sandboxOf(entry).profile).map((each) => `    ${visible(each)}`),
        ...left,
      ];
    }
  }
}

function asJson(plan: ImportPlan, { files, skipped, warnings }: CollectedServers, applied: boolean): object {
  return {
    app: plan.app,
    applied,
    files,
    servers: plan.servers.map(({ action, converted: { name, found, entry, notes } }) => ({
      name,
      action,
      client_name: found.name,
      file: found.file,
      entry: hideCredentials(entry as JsonObject),
      notes,
    })),
    secrets: plan.secrets.map(({ action, lifted: { name, from } }) => ({ name, action, from })),
    policy: plan.policy ?? null,
    skipped,
    warnings,
  };
}

type ImportAction = "add" | "change" | "same";

interface PlannedServer {
  readonly action: ImportAction;
  readonly converted: Converted;
  readonly changes: readonly FieldChange[];
}

interface PlannedSecret {
  readonly action: ImportAction;
  readonly lifted: Lifted;
}

interface ImportPlan {
  readonly app: string;
  readonly isNew: boolean;
  readonly revision: number;
  readonly document: ApplicationDocument;
  readonly servers: readonly PlannedServer[];
  readonly secrets: readonly PlannedSecret[];
  /** The file of rules it begins with, where it has none. */
  readonly policy: string | undefined;
  readonly isEmpty: boolean;
}

/** What is stored now. */
interface KnownServers {
  readonly application: Application | undefined;
  secret(name: string): Promise<string | undefined>;
}

function knownIn(storage: Storage, sealer: () => Promise<Sealer>, app: string): Promise<KnownServers> {
  const secret = async (name: string): Promise<string | undefined> => {
    const found = await storage.secrets.get(app, name);
    return found && (await sealer()).open({ kind: "secret", app, name }, found.sealed);
  };
  return storage.applications.get(app).then((application) => ({ application, secret }));
}

export async function planImport(
  app: string,
  { servers: found }: CollectedServers,
  known: KnownServers,
): Promise<ImportPlan> {
  const before: ApplicationDocument = known.application?.document ?? {};
  const servers = found.map((taken): PlannedServer => {
    const old = Object.hasOwn(before.servers ?? {}, taken.name) ? before.servers?.[taken.name] : undefined;
    // What the operator decided about its sandbox since stays.
    const converted =
      old?.sandbox === undefined ? taken : { ...taken, entry: { ...taken.entry, sandbox: old.sandbox } };
    const changes = old ? differences(old as JsonObject, converted.entry as JsonObject) : [];
    const action = old === undefined ? "add" : changes.length > 0 ? "change" : "same";
    return { action, converted, changes };
  });
  const secrets: PlannedSecret[] = [];
  for (const lifted of found.flatMap((each) => each.lifted)) {
    const old = await known.secret(lifted.name);
    secrets.push({ action: old === undefined ? "add" : old === lifted.value ? "same" : "change", lifted });
  }
  const policy = Object.keys(before.policies ?? {}).length === 0 ? STARTING_POLICY_FILE : undefined;
  const entries = Object.fromEntries(
    servers.map(({ converted: { name, entry } }): [string, ServerEntry] => [name, entry]),
  );
  const document: ApplicationDocument = {
    ...before,
    servers: { ...before.servers, ...entries },
    ...(policy === undefined ? {} : { policies: { [policy]: startingPolicy(app) } }),
  };
  const isEmpty = isDeepStrictEqual(document, before) && secrets.every(({ action }) => action === "same");
  const { revision = 0 } = known.application ?? {};
  return { app, isNew: !known.application, revision, document, servers, secrets, policy, isEmpty };
}

/** Secrets first: a gateway that is running takes up the servers as soon as they are there. */
async function carryOutImport(storage: Storage, sealer: Sealer, plan: ImportPlan): Promise<void> {
  const { app, document } = plan;
  const changedMeanwhile = (): CliError =>
    new CliError(`application \`${app}\` was changed by another process meanwhile`, undefined, "look again");
  let { revision } = plan;
  if (plan.isNew) {
    const made = await storage.applications.put(app, {}, operator(), 0);
    if (!made) throw changedMeanwhile();
    revision = made.revision;
  }
  for (const { action, lifted } of plan.secrets) {
    if (action === "same") continue;
    const sealed = sealer.seal({ kind: "secret", app, name: lifted.name }, lifted.value);
    await storage.secrets.put(app, lifted.name, sealed, operator());
  }
  if (!(await storage.applications.put(app, document, operator(), revision))) throw changedMeanwhile();
}
