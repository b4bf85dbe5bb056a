// What the operations of the console work with, and the small things that they share.

import type { AdminEvents, OperationExchange } from "../../admin/index.js";
import type { Applications, ServedApplication } from "../../gateway/index.js";
import type { Ledger, NamedLedger } from "../../ledger/index.js";
import { Fault } from "../../mcp/index.js";
import type { Approvals, PolicySource, PolicyWatcher } from "../../policy/index.js";
import type { Sealer, Storage } from "../../storage/index.js";
import type { Telemetry } from "../../telemetry/index.js";
import { ledgersUnder } from "../ledgers.js";
import type { ServedTool } from "../served.js";
import { servedTools } from "../tool-snapshots.js";

export interface ConsoleParts {
  readonly stateDir: string;
  readonly policyDir: string;
  readonly storage: Storage;
  readonly sealer: Sealer;
  readonly applications: Applications;
  readonly ledger: Ledger;
  readonly telemetry: Telemetry;
  readonly approvals: Approvals;
  readonly watcher: PolicyWatcher;
  /** Whether the common policy files lie in the data directory, and not where the operator named them. */
  readonly ownsPolicies: boolean;
  /** The application whose tools run in this process, and the policies that came with them. */
  readonly inProcess: { readonly app: string; readonly policies: Readonly<Record<string, string>> } | undefined;
  readonly workflow: { readonly app: string; readonly file: string } | undefined;
  readonly components: () => readonly { readonly name: string; readonly message: string }[];
  readonly servers: () => readonly ServerState[];
  reloadPolicies(): Promise<void>;
}

export interface ServerState {
  readonly app: string;
  readonly server: string;
  readonly state: string;
  readonly circuit: string;
  readonly last_error?: { readonly message: string } | undefined;
}

export type { AdminEvents, OperationExchange };

/** Everything of the console that outlives a process is kept under names that no application has. */
export const KEPT = {
  sessions: "~console/sessions",
  drafts: "~console/drafts",
  grants: "~console/grants",
  policies: "~console/policies",
};

export function iso(at: number): string {
  return new Date(at).toISOString();
}

export function notFound(what: string): Fault {
  return new Fault("ResourceNotFound", what);
}

export function invalid(message: string, suggestions: readonly string[] = []): Fault {
  return new Fault("InvalidParams", message, { suggestions });
}

/** The ledgers of the data directory, and the one of this process wherever it is. */
export function ledgersOf({ stateDir, ledger }: Pick<ConsoleParts, "stateDir" | "ledger">): NamedLedger[] {
  const known = ledgersUnder(stateDir);
  return known.some(({ path }) => path === ledger.dir) ? known : [{ name: "ledger", path: ledger.dir }, ...known];
}

export function ledgerNamed(parts: Pick<ConsoleParts, "stateDir" | "ledger">, name: string): NamedLedger {
  const found = ledgersOf(parts).find((each) => each.name === name);
  if (found) return found;
  throw notFound("there is no such ledger");
}

/** A record by its id, LEDGER#NUMBER. */
export function placeOfRecord(
  parts: Pick<ConsoleParts, "stateDir" | "ledger">,
  id: string,
): { ledger: NamedLedger; seq: number } {
  const at = id.lastIndexOf("#");
  const number = id.slice(at + 1);
  if (at < 1 || !/^\d{1,15}$/.test(number)) throw notFound("there is no such record");
  return { ledger: ledgerNamed(parts, id.slice(0, at)), seq: Number(number) };
}

export async function servedApp({ applications }: ConsoleParts, app: string): Promise<ServedApplication> {
  const served = await applications.get(app);
  if (served) return served;
  throw notFound("there is no such application");
}

export function toolsOf(served: ServedApplication): Promise<readonly ServedTool[]> {
  const { server, readOnlyTools } = served.endpoint.gateway;
  return servedTools(server, readOnlyTools ?? new Set());
}

/** Names of applications: those of the store, and the one of this process. */
export async function appNames({ storage, inProcess }: ConsoleParts): Promise<string[]> {
  const { items } = await storage.applications.list({ limit: 1_000 });
  return [...new Set([...items.map(({ id }) => id), ...(inProcess ? [inProcess.app] : [])])].sort();
}

export type { PolicySource };
