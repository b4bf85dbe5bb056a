// `portcullis app apply`.

import type { Command } from "commander";
import { problemText } from "../../host/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { type Out, paint } from "../../lib/print.js";
import type { JsonObject } from "../../mcp/index.js";
import { agreed, outFor } from "../../runtime/options.js";
import { allPages, operator, pageAfter, type StoreOptions, withStore } from "../../runtime/store/open.js";
import {
  type ApiKey,
  type ApplicationDocument,
  type ApplicationKeyEntry,
  clearCredentials,
  hideCredentials,
  type Storage,
} from "../../storage/index.js";
import { changeText, differences, type FieldChange } from "./difference.js";
import { unusableHere } from "./document-checks.js";
import { type Declared, readDeclared } from "./file.js";

export interface ApplyOptions {
  yes?: boolean;
  dryRun?: boolean;
  prune?: boolean;
}

const MAX_PROBLEMS = 50;

export async function applyFile(command: Command, file: string, options: StoreOptions & ApplyOptions): Promise<void> {
  const read = await readDeclared(file);
  if (!read.ok) {
    const lines = read.problems.slice(0, MAX_PROBLEMS).map(problemText);
    const code = read.isByRules ? EXIT.invalidPolicy : EXIT.error;
    throw new CliError(`${file} is not right; nothing was changed`, code, lines.join("\n"));
  }
  const { declared } = read;
  const out = outFor(command);
  const apply = async (storage: Storage): Promise<void> => {
    const plan = await planFor(storage, declared, options.prune === true);
    const isEmpty = plan.applications.length === 0;
    const mayChange = !isEmpty && options.dryRun !== true;
    if (!out.json) show(out, plan);
    if (mayChange) {
      await agreed("Make these changes?", options.yes);
      await carryOut(storage, plan, operator());
    }
    const applied = mayChange;
    if (out.json) out.data(asJson(plan, applied), () => "");
    else if (applied) out.note(paint.green("done"));
    for (const { app, document } of plan.applications) {
      const remarks = [...clearCredentials(app, document as JsonObject), unusableHere(app, document)];
      for (const each of remarks) if (each !== undefined) out.note(`application ${app}: ${each}`);
    }
    for (const { app, name } of plan.missingSecrets) {
      out.note(`application ${app} refers to a secret that is not there: portcullis secret set ${app} ${name}`);
    }
  };
  await withStore(command, storeOf(options, declared), apply, { create: options.dryRun !== true });
}

/** Flags count before the file. */
function storeOf(options: StoreOptions, { storage, sealKey }: Declared): StoreOptions {
  return {
    ...(storage === undefined ? {} : { storage }),
    ...(sealKey === undefined ? {} : { sealKey }),
    ...(options.storage === undefined ? {} : { storage: options.storage }),
    ...(options.sealKey === undefined ? {} : { sealKey: options.sealKey }),
  };
}

const VERBS = { add: "+ new application", change: "~ application", remove: "- remove application" } as const;

function show(out: Out, plan: Plan): void {
  const lines = plan.applications.flatMap(({ app, action, changes, keys }) => [
    paint.bold(`${VERBS[action]} ${app}`),
    ...changes.map((change) => `  ${changeText(change)}`),
    ...keys.map(({ id, name, before, after }) => `  ~ key ${name} (${id}): ${rights(before)} → ${rights(after)}`),
  ]);
  out.data(plan, () => (lines.length === 0 ? "nothing is different" : lines.join("\n")));
}

function rights({ permissions, limits }: { permissions: readonly string[]; limits: object }): string {
  return `${permissions.join(", ")} ${JSON.stringify(limits)}`;
}

function asJson({ applications, missingSecrets }: Plan, applied: boolean): object {
  return {
    applied,
    applications: applications.map(({ app, action, changes, keys }) => ({
      app,
      action,
      changes: changes.map(({ path, before, after }) => ({
        path,
        ...(before === undefined ? {} : { before: hideCredentials(before, path) }),
        ...(after === undefined ? {} : { after: hideCredentials(after, path) }),
      })),
      keys,
    })),
    missing_secrets: missingSecrets,
  };
}

interface ApplicationPlan {
  readonly app: string;
  readonly action: "add" | "change" | "remove";
  readonly changes: readonly FieldChange[];
  /** Keys in force that will follow what the document says of their name. */
  readonly keys: readonly KeyPlan[];
  readonly revision: number;
  readonly document: ApplicationDocument;
}

interface KeyPlan {
  readonly id: string;
  readonly name: string;
  readonly before: Pick<ApiKey, "permissions" | "limits">;
  readonly after: Pick<ApiKey, "permissions" | "limits">;
}

interface Plan {
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
    const after = { permissions: [...entry.permissions], limits: rateLimits(entry) };
    return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ id, name, before, after }];
  });
}

export function rateLimits({ perMinute, perHour }: { perMinute?: number | undefined; perHour?: number | undefined }) {
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
      throw new CliError(`application \`${app}\` was changed by another process meanwhile`, undefined, "look again");
    }
    for (const { id, after } of keys) await storage.keys.change(id, after, by);
  }
}
