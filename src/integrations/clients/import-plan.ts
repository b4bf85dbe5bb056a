// What an import would change in an application, before it does; and then the change.

import { isDeepStrictEqual } from "node:util";
import type { JsonObject } from "../../mcp/index.js";
import type { Application, ApplicationDocument, Sealer, ServerEntry, Storage } from "../../storage/index.js";
import { differences, type FieldChange } from "../declared/difference.js";
import { CliError } from "../../lib/exit.js";
import { operator } from "../../runtime/store/open.js";
import type { CollectedServers } from "./collect.js";
import type { Converted } from "./convert.js";
import type { Lifted } from "./lift.js";
import { STARTING_POLICY_FILE, startingPolicy } from "./starting-policy.js";

export type ImportAction = "add" | "change" | "same";

export interface PlannedServer {
  readonly action: ImportAction;
  readonly converted: Converted;
  readonly changes: readonly FieldChange[];
}

export interface PlannedSecret {
  readonly action: ImportAction;
  readonly lifted: Lifted;
}

export interface ImportPlan {
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
export interface KnownServers {
  readonly application: Application | undefined;
  secret(name: string): Promise<string | undefined>;
}

export function knownIn(storage: Storage, sealer: () => Promise<Sealer>, app: string): Promise<KnownServers> {
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
  const servers = found.map((converted): PlannedServer => {
    const old = Object.hasOwn(before.servers ?? {}, converted.name) ? before.servers?.[converted.name] : undefined;
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
  const entries = Object.fromEntries(found.map(({ name, entry }): [string, ServerEntry] => [name, entry]));
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
export async function carryOutImport(storage: Storage, sealer: Sealer, plan: ImportPlan): Promise<void> {
  const { app, document } = plan;
  const changedMeanwhile = (): CliError =>
    new CliError(`application \`${app}\` was changed by somebody else meanwhile`, undefined, "look again");
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
