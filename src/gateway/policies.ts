// The rules and the guardrails of one application. Its rules are those for all applications and its own, loaded against its
// own tools, so that a mistake in one application's rules affects no other. A guardrail of its document is a JavaScript file
// of the data directory, run in this process, or a tool of the application, called through the pipeline.

import { createHash } from "node:crypto";
import { inSlices, type JsonObject } from "../mcp/index.js";
import type { ToolResult } from "../mcp/server/index.js";
import {
  type Gate,
  type Guardrail,
  type GuardrailCall,
  type GuardrailCallback,
  guardrailAgent,
  type LoadedCheck,
  loadPolicyInSlices,
  type PendingPolicy,
  type PolicySet,
  type PolicySource,
  RecordedPolicy,
  type ToolSummary,
  withChecks,
} from "../policy/index.js";
import type { GuardrailEntry } from "../storage/index.js";

import type { ApplicationServices } from "./application-types.js";
import { toolSummaries } from "./gateway.js";
import type { AppCatalogue } from "./relay/catalogue.js";

/** Entries of sets that are no longer in use are removed above this number. */
const MAX_SHARED = 256;

export class PolicyCache {
  #common: readonly PolicySource[] = [];
  #checks: readonly LoadedCheck[] = [];
  readonly #known: (sources: readonly PolicySource[]) => PolicySet | undefined;
  /**
   * Applications with the same rules and the same tools share one set. Only what is in force somewhere is kept: a server
   * that changes thousands of tools again and again would otherwise fill the memory with sets of before.
   */
  readonly #sets = new Map<string, WeakRef<PolicySet>>();
  readonly #listeners = new Set<() => void>();

  /** `known` gives the set of texts where it is known without loading them. */
  constructor(known: (sources: readonly PolicySource[]) => PolicySet | undefined = () => undefined) {
    this.#known = known;
  }

  /** New rules for all; every application is notified and loads them. */
  setCommon(sources: readonly PolicySource[], checks: readonly LoadedCheck[] = []): void {
    this.#common = sources;
    this.#checks = checks;
    for (const listener of this.#listeners) listener();
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Throws PolicyInvalid. Others are served meanwhile: an application may have thousands of tools. */
  async load(own: Readonly<Record<string, string>>, tools: readonly ToolSummary[]): Promise<PolicySet> {
    const files = Object.entries(own).map(([file, text]): PolicySource => ({ file, text }));
    const sources = [...this.#common, ...files];
    // Read at once: both may change while the rules are loaded.
    const checks = this.#checks;
    return withChecks(this.#known(sources) ?? (await this.#loaded(sources, tools)), checks);
  }

  async #loaded(sources: readonly PolicySource[], tools: readonly ToolSummary[]): Promise<PolicySet> {
    const key = await keyOf(sources, tools);
    const known = this.#sets.get(key)?.deref();
    if (known) return known;
    const set = await loadPolicyInSlices(sources, tools, { unknownTools: "warn" });
    if (this.#sets.size >= MAX_SHARED) this.#dropUnused();
    this.#sets.set(key, new WeakRef(set));
    return set;
  }

  #dropUnused(): void {
    for (const [key, set] of this.#sets) if (set.deref() === undefined) this.#sets.delete(key);
  }
}

async function keyOf(sources: readonly PolicySource[], tools: readonly ToolSummary[]): Promise<string> {
  const hash = createHash("sha256");
  for (const { file, text } of sources) hash.update(`${JSON.stringify([file, text])}\n`);
  hash.update("\n");
  await inSlices(tools, ({ inputSchema, ...rest }) => {
    hash.update(`${JSON.stringify(rest)} ${digestOf(inputSchema)}\n`);
  });
  return hash.digest("hex");
}

/** Definitions do not change once they are made, and rules are loaded for them again and again. */
const digests = new WeakMap<object, string>();

function digestOf(schema: unknown): string {
  const known = typeof schema === "object" && schema !== null ? digests.get(schema) : undefined;
  if (known !== undefined) return known;
  const digest = createHash("sha256")
    .update(JSON.stringify(schema) ?? "")
    .digest("base64url");
  if (typeof schema === "object" && schema !== null) digests.set(schema, digest);
  return digest;
}

const PAUSE_MS = 20;

/** What the policy of an application is made of. */
interface ApplicationPolicySource {
  /** Its own Cedar texts by file name. */
  texts(): Readonly<Record<string, string>>;
  gate(): Gate;
}

/** `ApplicationPolicy` keeps the policy of one application in force: loaded for its tools, and recorded. */
export class ApplicationPolicy {
  readonly #app: string;
  readonly #services: ApplicationServices;
  readonly #catalogue: AppCatalogue;
  readonly #source: ApplicationPolicySource;
  readonly #recorded: RecordedPolicy;
  #timer: NodeJS.Timeout | undefined;
  #loading: Promise<void> = Promise.resolve();
  #lastInForce: string | undefined;
  #closed = false;
  /** Why its rules are not in force as they are written; undefined when they are. */
  refusal: string | undefined;

  constructor(app: string, services: ApplicationServices, catalogue: AppCatalogue, source: ApplicationPolicySource) {
    this.#app = app;
    this.#services = services;
    this.#catalogue = catalogue;
    this.#source = source;
    const { ledger, telemetry } = services;
    this.#recorded = new RecordedPolicy({
      apply: (policy) => {
        source.gate().swap(policy);
        if (this.#closed || this.#recorded.isInterim) return;
        const before = this.#lastInForce;
        this.#lastInForce = policy.hash;
        // Lists that were read in between lack what the policy did not know yet.
        if (before === undefined || before === policy.hash) return;
        catalogue.announce({ kind: "tools" });
        telemetry.log.notice("policy in force", { app, policy: policy.hash });
      },
      record: async ({ from, to, interim }) => {
        const files = Object.keys(source.texts());
        const checks = Object.fromEntries((to.checks ?? []).map(({ file, hash }) => [file, hash]));
        const detail = { app, files, interim, ...(to.checks ? { checks } : {}) };
        await ledger?.append({ kind: "policy", old: from, new: to.hash, detail });
        telemetry.metrics.policyReloads.inc();
        for (const { file, line, message } of to.warnings) {
          telemetry.log.debug("a rule of the policy", { app, file, line, warning: message });
        }
      },
      onPending: ({ to, problem }) =>
        telemetry.log.error("policy change not recorded: the stricter of old and new applies until it is", {
          app,
          policy: to,
          problem,
        }),
    });
  }

  /** A change of the policy that is not recorded yet. */
  get pending(): PendingPolicy | undefined {
    return this.#recorded.pending;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#recorded.close();
  }

  loadLater(): void {
    if (this.#closed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.load();
    }, PAUSE_MS);
  }

  /** One after the other: each is loaded for the tools there are when its turn comes. */
  load(): Promise<void> {
    this.#loading = this.#loading.then(() => this.#loadNow());
    return this.#loading;
  }

  /** A set that cannot be loaded changes nothing; where there was none, everything stays denied. */
  async #loadNow(): Promise<void> {
    const { policies, telemetry, onTools } = this.#services;
    const { readOnlyTools } = this.#catalogue;
    try {
      const set = await policies.load(this.#source.texts(), toolSummaries(this.#catalogue, readOnlyTools));
      this.refusal = undefined;
      if (!this.#closed) onTools?.(this.#app, this.#catalogue, readOnlyTools);
      if (!this.#closed) await this.#recorded.put(set);
    } catch (error) {
      this.refusal = (error as Error).message;
      telemetry.metrics.policyRefusals.inc();
      telemetry.log.error("the policy of an application is not valid, the one in force stays", {
        app: this.#app,
        kept: this.#recorded.recorded,
        problem: (error as Error).message,
      });
    }
  }
}

interface GuardrailSources {
  /** Loads the callback of a file. Rejects with the reason when it cannot be used. */
  load?(file: string): Promise<GuardrailCallback>;
  /** Calls a tool of the application as `agent`. Rejects when the call is denied or fails. */
  call(tool: string, input: JsonObject, agent: string): Promise<ToolResult>;
  /** Receives what the operator has to repair; callers do not learn of paths. */
  onProblem(module: string, problem: string): void;
}

/** `applicationGuardrails` never leaves one out: what cannot be loaded blocks every call that it covers. */
export function applicationGuardrails(
  entries: readonly GuardrailEntry[],
  sources: GuardrailSources,
): Promise<Guardrail[]> {
  return Promise.all(
    entries.map(async ({ id, agent = "*", tool, module, call }) => ({
      id,
      agent,
      tool,
      callback: module === undefined ? byTool(id, call ?? "", sources) : await byModule(module, sources),
    })),
  );
}

async function byModule(module: string, { load, onProblem }: GuardrailSources): Promise<GuardrailCallback> {
  try {
    if (!load) throw new Error("this gateway loads no guardrail modules");
    return await load(module);
  } catch (error) {
    onProblem(module, (error as Error).message);
    return () => `guardrail module \`${module}\` cannot be loaded; the operator finds the reason in the log`;
  }
}

function byTool(id: string, tool: string, { call }: GuardrailSources): GuardrailCallback {
  const own = guardrailAgent(id);
  return async (guarded) => {
    // Calls of guardrails are decided by policy alone: two guardrails that guard each other's calls would not end.
    if (guarded.agent.startsWith(guardrailAgent(""))) return undefined;
    const result = await call(tool, inputOf(guarded), own);
    return reasonOf(id, result);
  };
}

function inputOf({ app, agent, tool, intentId, arguments: args, forwarded }: GuardrailCall): JsonObject {
  return { app, agent, tool, intentId, arguments: args, forwarded };
}

/** A tool permits with `{ "allow": true }` as structured content. Everything else blocks. */
function reasonOf(id: string, { isError, structuredContent, content }: ToolResult): string | undefined {
  const answer = structuredContent as { allow?: unknown; reason?: unknown } | undefined;
  if (isError !== true && answer?.allow === true) return undefined;
  if (typeof answer?.reason === "string" && answer.reason !== "") return answer.reason;
  const text = content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
  return text || `guardrail \`${id}\` did not return {"allow": true}`;
}
