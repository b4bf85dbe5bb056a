// Policies as the console edits them: the same loader, explanations and replay as the command line. What is activated is
// kept by its hash, so that it can be read, proved and activated again.

import { randomBytes } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { OperationHandlers, OperationInput, OperationResult } from "../../admin/index.js";
import type { ServedApplication } from "../../gateway/index.js";
import { readLast } from "../../ledger/index.js";
import { lineDiff } from "../../lib/line-diff.js";
import { Fault, type JsonValue } from "../../mcp/index.js";
import {
  diffPolicies,
  loadPolicyInSlices,
  NO_FLOW,
  type ObservedCall,
  PolicyInvalid,
  type PolicyProblem,
  type PolicyRequest,
  type PolicySet,
  type PolicySource,
  readPolicyFiles,
  suggestPolicy,
  withChecks,
} from "../../policy/index.js";
import { recordedRequest } from "../recorded-requests.js";
import type { ServedTool } from "../served.js";
import { decisionRow, explainedView, matcherOf, pageOfDecisions } from "./decisions.js";
import { type ConsoleParts, invalid, iso, KEPT, ledgersOf, notFound, servedApp, toolsOf } from "./parts.js";

type Files = OperationInput<"checkPolicies">["files"];
type PolicyFileView = OperationResult<"getPolicies">["files"][number];

const SUFFIX = ".cedar";
const FILE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.cedar$/;
const REPLAY_BYTES = 64 * 1024 * 1024;
const DEFAULT_REPLAY = 1_000;
const MAX_SHOWN_CALLS = 200;
const MAX_VERSIONS = 100;
const KEPT_MS = 400 * 24 * 3_600_000;

interface AppPolicies {
  readonly served: ServedApplication;
  readonly tools: readonly ServedTool[];
  readonly files: readonly PolicyFileView[];
}

async function policiesOf(parts: ConsoleParts, app: string): Promise<AppPolicies> {
  const served = await servedApp(parts, app);
  const { storage, watcher, policyDir, ownsPolicies, inProcess } = parts;
  const { document } = served.application;
  const isStored = (await storage.applications.get(app)) !== undefined;
  // Where one application is alone, the files for all applications are its own.
  const isAlone = ownsPolicies && !isStored && (await storage.applications.list({ limit: 1 })).items.length === 0;
  const common = await commonSources(watcher.files);
  const ofModule = inProcess?.app === app ? Object.entries(inProcess.policies) : [];
  const view =
    (scope: PolicyFileView["scope"], writable: boolean) =>
    ([file, text]: readonly [string, string]) => ({
      file,
      scope,
      writable,
      text,
    });
  return {
    served,
    tools: await toolsOf(served),
    files: [
      ...common.map(({ file, text }) => view("all", isAlone && dirname(file) === policyDir)([file, text])),
      ...ofModule.map(view("module", false)),
      ...Object.entries(document.policies ?? {}).map(view("application", true)),
    ],
  };
}

/** As they are now, also where they are not in force because one of them is wrong. */
async function commonSources(files: readonly string[]): Promise<readonly PolicySource[]> {
  try {
    return await readPolicyFiles(files.filter((file) => file.endsWith(SUFFIX)));
  } catch {
    const texts = await Promise.all(files.map((file) => readFile(file, "utf8").catch(() => "")));
    return files.map((file, i) => ({ file, text: texts[i] as string }));
  }
}

/** The texts that would be in force with these files in the place of those that can be changed here. */
function sourcesWith({ files }: AppPolicies, draft: Files): PolicySource[] {
  const fixed = files.filter(({ writable }) => !writable).map(({ file, text }) => ({ file, text }));
  return [...fixed, ...draft];
}

/** Beside the rules in force stand checks in other languages, which a draft does not change. */
async function loadDraft(policies: AppPolicies, draft: Files): Promise<PolicySet> {
  checkNames(policies, draft);
  const set = await loadPolicyInSlices(sourcesWith(policies, draft), policies.tools, { unknownTools: "warn" });
  return withChecks(set, policies.served.gate.policy.checks ?? []);
}

function checkNames({ files }: AppPolicies, draft: Files): void {
  const known = new Set(files.map(({ file }) => file));
  const fixed = new Set(files.filter(({ writable }) => !writable).map(({ file }) => file));
  const seen = new Set<string>();
  for (const { file } of draft) {
    if (fixed.has(file)) throw invalid("this file cannot be changed here");
    if (!known.has(file) && !FILE_NAME.test(file)) throw invalid("a policy file has a plain name that ends in .cedar");
    if (seen.has(file)) throw invalid("a policy file is named twice");
    seen.add(file);
  }
}

const problemView = ({ file, line, column, message, help }: PolicyProblem) => ({ file, line, column, message, help });

async function requestFor(
  policies: AppPolicies,
  { app, agent, tool: name, arguments: args }: OperationInput<"tryCall">,
): Promise<PolicyRequest> {
  const tool = policies.tools.find((each) => each.name === name);
  if (!tool) throw notFound("the application has no such tool");
  const { server, tags, readOnly } = tool;
  const resource = { type: "Tool", id: name, server, tags: tags ?? [], readOnly: readOnly ?? false } as const;
  const rest = { flow: NO_FLOW, transport: "http", now: Date.now() };
  return { app, agent, scope: [], action: name, resource, arguments: args, ...rest };
}

async function compare(
  parts: ConsoleParts,
  policies: AppPolicies,
  { app, files: draft, last = DEFAULT_REPLAY }: OperationInput<"comparePolicies">,
): Promise<OperationResult<"comparePolicies">> {
  const after = await loadDraft(policies, draft).catch(unlessInvalid);
  const before = policies.served.gate.policy;
  const { records } = await pageOfDecisions(ledgersOf(parts), matcherOf({ app }), last, undefined, REPLAY_BYTES);
  let [compared, skipped] = [0, 0];
  const changes = new Map<string, number>();
  const calls: OperationResult<"comparePolicies">["replay"]["calls"][number][] = [];
  for (const { ledger, record } of records) {
    const recorded = recordedRequest(ledger.name, record, policies.tools);
    if (!recorded?.hasArguments) {
      skipped++;
      continue;
    }
    compared++;
    // An approved call is recorded as a permit: what counts is how both sets decide it without the approval.
    const was = before.decide(recorded.request).effect;
    const { effect, rules } = after.decide(recorded.request);
    if (effect === was) continue;
    const key = `${was} ${effect}`;
    changes.set(key, (changes.get(key) ?? 0) + 1);
    if (calls.length >= MAX_SHOWN_CALLS) continue;
    const decision = decisionRow(ledger.name, record);
    calls.push({ before: was, after: effect, rules: rules.map(({ id }) => id), decision });
  }
  const { added, removed, changed } = diffPolicies(before, after, []);
  return {
    hash: after.hash,
    base: before.hash,
    files: fileDifferences(policies.files, draft),
    added: added.map(({ id }) => id),
    removed: removed.map(({ id }) => id),
    changed: changed.map(({ id }) => id),
    replay: {
      compared,
      skipped,
      changes: [...changes].map(([key, count]) => {
        const [was, is] = key.split(" ") as ["permit", "deny"];
        return { before: was, after: is, count };
      }),
      calls,
    },
  };
}

const KINDS = { " ": "same", "-": "removed", "+": "added" } as const;

function fileDifferences(files: readonly PolicyFileView[], draft: Files) {
  const before = new Map(files.filter(({ writable }) => writable).map(({ file, text }) => [file, text]));
  const after = new Map(draft.map(({ file, text }) => [file, text]));
  return [...new Set([...before.keys(), ...after.keys()])].map((file) => {
    const [was, is] = [before.get(file), after.get(file)];
    const state = was === undefined ? "added" : is === undefined ? "removed" : was === is ? "same" : "changed";
    const lines = lineDiff(was ?? "", is ?? "").map((line) => ({
      kind: KINDS[line[0] as keyof typeof KINDS] ?? ("same" as const),
      text: line.slice(2),
    }));
    return { file, state: state as "added", lines };
  });
}

function unlessInvalid(error: unknown): never {
  if (!(error instanceof PolicyInvalid)) throw error;
  const [first] = error.problems;
  throw invalid(`the policy is not valid: ${first?.message ?? ""}`, [
    `${error.problems.length} problems; check it to see all of them`,
  ]);
}

/** Writes common files whole, or puts the application's own into its document. */
async function activate(
  parts: ConsoleParts,
  policies: AppPolicies,
  { app, files: draft, base }: OperationInput<"activatePolicies">,
  actor: string,
): Promise<{ hash: string }> {
  const { storage, policyDir } = parts;
  const { served } = policies;
  if (served.gate.policy.hash !== base) throw changedMeanwhile();
  const set = await loadDraft(policies, draft).catch(unlessInvalid);
  const stored = await storage.applications.get(app);
  if (stored) {
    const own = Object.fromEntries(draft.map(({ file, text }) => [file, text]));
    const put = await storage.applications.put(app, { ...stored.document, policies: own }, actor, stored.revision);
    if (!put) throw changedMeanwhile();
    await served.update(put);
  } else {
    if (!parts.ownsPolicies) throw invalid("the policy files were named at the start; change them where they are");
    const kept = new Set(draft.map(({ file }) => basename(file)));
    for (const { file, text } of draft) await replaceFile(join(policyDir, basename(file)), text);
    for (const { file, writable } of policies.files) if (writable && !kept.has(basename(file))) await rm(file);
    await parts.reloadPolicies();
  }
  const { refusal, gate } = served;
  if (refusal !== undefined) throw invalid(`the policy is not in force: ${refusal}`);
  await keepText(parts, app, gate.policy.hash, sourcesWith(policies, draft), actor);
  return { hash: gate.policy.hash === set.hash ? set.hash : gate.policy.hash };
}

function changedMeanwhile(): Fault {
  return new Fault("InvalidRequest", "another policy came into force meanwhile: compare again", {
    suggestions: ["Load the policy again; the draft stays as it is"],
  });
}

async function replaceFile(path: string, text: string): Promise<void> {
  const before = await readFile(path, "utf8").catch(() => undefined);
  if (before === text) return;
  const draft = `${path}.${randomBytes(6).toString("hex")}`;
  await writeFile(draft, text, { mode: 0o600, flag: "wx" });
  await rename(draft, path);
}

async function keepText(
  { storage }: Pick<ConsoleParts, "storage">,
  app: string,
  hash: string,
  files: readonly PolicySource[],
  by: string,
): Promise<void> {
  const value = { by, at: Date.now(), files: files.map(({ file, text }) => ({ file, text })) };
  await storage.values.set(KEPT.policies, `${app} ${hash}`, value as JsonValue, { ttlMs: KEPT_MS });
}

interface KeptPolicy {
  readonly by: string;
  readonly files: { readonly file: string; readonly text: string }[];
}

async function keptPolicy({ storage }: ConsoleParts, app: string, hash: string): Promise<KeptPolicy | undefined> {
  return (await storage.values.get(KEPT.policies, `${app} ${hash}`))?.value as KeptPolicy | undefined;
}

async function versions(parts: ConsoleParts, app: string | undefined, limit: number) {
  const found: OperationResult<"listPolicyVersions">["items"][number][] = [];
  for (const ledger of ledgersOf(parts)) {
    const { records } = await readLast(ledger.path, limit, {
      filter: (record) => record.kind === "policy" && (app === undefined || record.detail?.app === app),
      maxBytes: REPLAY_BYTES,
    });
    for (const record of records) {
      if (record.kind !== "policy") continue;
      const { app: of, files } = (record.detail ?? {}) as { app?: string; files?: string[] };
      const kept = of === undefined ? undefined : await keptPolicy(parts, of, record.new);
      found.push({
        hash: record.new,
        ...(of === undefined ? {} : { app: of }),
        at: record.ts,
        ...(kept === undefined ? {} : { by: kept.by }),
        files: files ?? [],
        record: `${ledger.name}#${record.seq}`,
        has_text: kept !== undefined,
      });
    }
  }
  return found.sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, limit);
}

/** The text in force is kept before it is replaced, so that the first version can be activated again too. */
async function keepPresent(parts: ConsoleParts, app: string, { served, files }: AppPolicies): Promise<void> {
  const { hash } = served.gate.policy;
  if (await keptPolicy(parts, app, hash)) return;
  await keepText(parts, app, hash, files, "before the console");
}

interface KeptDraft {
  readonly app: string;
  readonly base: string;
  readonly by: string;
  readonly at: number;
  readonly files: { readonly file: string; readonly text: string }[];
}

const draftView = (name: string, { app, base, by, at, files }: KeptDraft) => ({
  name,
  app,
  base,
  by,
  at: iso(at),
  files,
});

export function policyHandlers(parts: ConsoleParts): OperationHandlers {
  const { storage } = parts;
  return {
    getPolicies: async ({ app }) => {
      const { served, tools, files } = await policiesOf(parts, app);
      const { policy } = served.gate;
      const refusal = served.refusal ?? (served.gate.policy.hash === "" ? undefined : parts.watcher.refusal);
      return {
        app,
        hash: policy.hash,
        files,
        rules: policy.rules.map(({ id, file, line, text }) => ({ id, file, line, text })),
        warnings: policy.warnings.map(problemView),
        ...(refusal === undefined ? {} : { refusal: String(refusal) }),
        tools: tools.map(({ name, server, description, inputSchema }) => ({
          name,
          server,
          ...(description === undefined ? {} : { description }),
          input_schema: inputSchema as JsonValue,
        })),
      };
    },

    checkPolicies: async ({ app, files: draft }) => {
      try {
        const { hash, warnings } = await loadDraft(await policiesOf(parts, app), draft);
        return { ok: true, hash, problems: [], warnings: warnings.map(problemView) };
      } catch (error) {
        if (!(error instanceof PolicyInvalid)) throw error;
        return { ok: false, problems: error.problems.map(problemView), warnings: [] };
      }
    },

    tryCall: async (input) => {
      const policies = await policiesOf(parts, input.app);
      const { files } = input;
      const set =
        files === undefined ? policies.served.gate.policy : await loadDraft(policies, files).catch(unlessInvalid);
      return explainedView(set, policies.tools, await requestFor(policies, input));
    },

    comparePolicies: async (input) => compare(parts, await policiesOf(parts, input.app), input),

    activatePolicies: async (input, { actor }) => {
      const policies = await policiesOf(parts, input.app);
      await keepPresent(parts, input.app, policies);
      return activate(parts, policies, input, actor);
    },

    listPolicyVersions: async ({ app, limit = MAX_VERSIONS }) => ({ items: await versions(parts, app, limit) }),

    getPolicyVersion: async ({ app, hash }) => {
      const kept = await keptPolicy(parts, app, hash);
      if (!kept) throw notFound("the text of this version is not kept");
      const { files } = await policiesOf(parts, app);
      const fixed = new Set(files.filter(({ writable }) => !writable).map(({ file }) => file));
      return { hash, files: kept.files.filter(({ file }) => !fixed.has(file)) };
    },

    suggestPolicy: async ({ app, only_denied }) => {
      const { served, tools } = await policiesOf(parts, app);
      const page = await pageOfDecisions(ledgersOf(parts), matcherOf({ app }), 10_000, undefined, REPLAY_BYTES);
      const calls: ObservedCall[] = [];
      for (const { ledger, record } of page.records) {
        const recorded = recordedRequest(ledger.name, record, tools);
        if (!recorded || (only_denied === "1" && recorded.effect === "permit")) continue;
        const { agent, action, resource, arguments: args } = recorded.request;
        // An approved call is recorded as permitted, and needed an approval all the same.
        const decided = served.gate.policy.decide(recorded.request);
        const effect = recorded.effect === "permit" && decided.effect === "challenge" ? "challenge" : recorded.effect;
        calls.push({
          app,
          agent,
          action,
          resource,
          effect,
          rules: recorded.rules,
          ...(effect === "challenge" ? { approvers: decided.approvers } : {}),
          ...(recorded.hasArguments ? { arguments: args } : {}),
        });
      }
      return { text: suggestPolicy(calls, tools), calls: calls.length };
    },

    listDrafts: async ({ app }) => {
      const { items } = await storage.values.list(KEPT.drafts, "", { limit: 1_000 });
      const drafts = items.map(({ key, value }) => draftView(key, value as unknown as KeptDraft));
      return { drafts: drafts.filter((each) => app === undefined || each.app === app) };
    },

    putDraft: async ({ name, app, base, files }, { by }) => {
      await servedApp(parts, app);
      const draft: KeptDraft = { app, base, by: by.name, at: Date.now(), files: files.map((each) => ({ ...each })) };
      await storage.values.set(KEPT.drafts, name, draft as unknown as JsonValue);
      return draftView(name, draft);
    },

    removeDraft: async ({ name }) => {
      if (!(await storage.values.remove(KEPT.drafts, name))) throw notFound("there is no such draft");
      return { ok: true };
    },
  };
}
