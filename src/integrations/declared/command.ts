// `portcullis app apply`.

import type { Command } from "commander";
import { problemText } from "../../host/index.js";
import type { JsonObject } from "../../mcp/index.js";
import type { Storage } from "../../storage/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { outFor } from "../../runtime/options.js";
import { type Out, paint } from "../../lib/print.js";
import { agreed } from "../../runtime/store/ask.js";
import { operator, type StoreOptions, withStore } from "../../runtime/store/open.js";
import { carryOut, type Plan, planFor } from "./apply.js";
import { changeText } from "./difference.js";
import { unusableHere } from "./folders.js";
import { clearCredentials, hideCredentials } from "../../storage/index.js";
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

/** What was said on the command line counts before what the file says. */
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
