// From what there should be to what there is: the difference first, then, application by application, the change. Each
// is put by compare-and-set, so that nobody's change in between is overwritten unseen.

import type { JsonObject } from "../../mcp/index.js";
import type { ApiKey, ApplicationDocument, ApplicationKeyEntry, Storage } from "../../storage/index.js";
import { CliError } from "../../lib/exit.js";
import { allPages, pageAfter } from "../../runtime/store/open.js";
import { differences, type FieldChange } from "./difference.js";
import type { Declared } from "./file.js";

export interface ApplicationPlan {
  readonly app: string;
  readonly action: "add" | "change" | "remove";
  readonly changes: readonly FieldChange[];
  /** Keys in force that will follow what the document says of their name. */
  readonly keys: readonly KeyPlan[];
  readonly revision: number;
  readonly document: ApplicationDocument;
}

export interface KeyPlan {
  readonly id: string;
  readonly name: string;
  readonly before: Pick<ApiKey, "permissions" | "limits">;
  readonly after: Pick<ApiKey, "permissions" | "limits">;
}

export interface Plan {
  readonly applications: readonly ApplicationPlan[];
  /** Referred to, and not in the store. */
  readonly missingSecrets: readonly { readonly app: string; readonly name: string }[];
}

export async function planFor(storage: Storage, declared: Declared, prune: boolean): Promise<Plan> {
  const plans: ApplicationPlan[] = [];
  for (const [app, document] of declared.applications) {
    const known = await storage.applications.get(app);
    const changes = differences((known?.document ?? {}) as JsonObject, document as JsonObject);
    const keys = known ? await keyPlans(storage, app, document.keys ?? {}) : [];
    if (known && changes.length === 0 && keys.length === 0) continue;
    const action = known ? "change" : "add";
    plans.push({ app, action, changes, keys, revision: known?.revision ?? 0, document });
  }
  if (prune) {
    for (const { id, revision, document } of await allPages((after) => storage.applications.list(pageAfter(after)))) {
      if (declared.applications.has(id)) continue;
      const changes = differences(document as JsonObject, {});
      plans.push({ app: id, action: "remove", changes, keys: [], revision, document: {} });
    }
  }
  return { applications: plans, missingSecrets: await missing(storage, declared) };
}

async function keyPlans(
  storage: Storage,
  app: string,
  entries: Readonly<Record<string, ApplicationKeyEntry>>,
): Promise<KeyPlan[]> {
  const keys = await allPages((after) => storage.keys.list({ app, activeOnly: true }, pageAfter(after)));
  return keys.flatMap(({ id, name, permissions, limits }) => {
    const entry = Object.hasOwn(entries, name) ? entries[name] : undefined;
    if (!entry) return [];
    const before = { permissions, limits };
    const after = { permissions: [...entry.permissions], limits: limitsOf(entry) };
    return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ id, name, before, after }];
  });
}

export function limitsOf({ perMinute, perHour }: { perMinute?: number | undefined; perHour?: number | undefined }) {
  return {
    ...(perMinute === undefined ? {} : { perMinute }),
    ...(perHour === undefined ? {} : { perHour }),
  };
}

async function missing(storage: Storage, { secrets }: Declared): Promise<Plan["missingSecrets"]> {
  const absent = new Map<string, { app: string; name: string }>();
  for (const { app, name } of secrets) {
    if (!(await storage.secrets.get(app, name))) absent.set(`${app} ${name}`, { app, name });
  }
  return [...absent.values()];
}

export async function carryOut(storage: Storage, plan: Plan, by: string): Promise<void> {
  for (const { app, action, revision, document, keys } of plan.applications) {
    if (action === "remove") {
      await storage.applications.remove(app, by);
      continue;
    }
    if (!(await storage.applications.put(app, document, by, revision))) {
      throw new CliError(`application \`${app}\` was changed by somebody else meanwhile`, undefined, "look again");
    }
    for (const { id, after } of keys) await storage.keys.change(id, after, by);
  }
}
