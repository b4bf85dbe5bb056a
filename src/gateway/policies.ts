// The rules of one application: those that hold for all, and its own. They are loaded against its own tools, so that
// a mistake in one application's rules is no trouble to another.

import { createHash } from "node:crypto";
import {
  type LoadedCheck,
  loadPolicyInSlices,
  type PolicySet,
  type PolicySource,
  type ToolSummary,
  withChecks,
} from "../policy/index.js";
import { inSlices } from "../mcp/index.js";

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

  /** New rules for all; every application loads them when it is told. */
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
