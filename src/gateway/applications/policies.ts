// The rules of one application: those that hold for all, and its own. They are loaded against its own tools, so that
// a mistake in one application's rules is no trouble to another.

import { createHash } from "node:crypto";
import { loadPolicyInSlices, type PolicySet, type PolicySource, type ToolSummary } from "../../gate/index.js";
import { inSlices } from "../../protocol/index.js";

/** Applications with the same rules and the same tools share one set. */
const MAX_SHARED = 256;

export class PolicyBook {
  #common: readonly PolicySource[] = [];
  readonly #sets = new Map<string, PolicySet>();
  readonly #listeners = new Set<() => void>();

  /** New rules for all; every application loads them when it is told. */
  setCommon(sources: readonly PolicySource[]): void {
    this.#common = sources;
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
    const key = await keyOf(sources, tools);
    const known = this.#sets.get(key);
    if (known) return known;
    const set = await loadPolicyInSlices(sources, tools, { unknownTools: "warn" });
    if (this.#sets.size >= MAX_SHARED) this.#sets.delete(this.#sets.keys().next().value as string);
    this.#sets.set(key, set);
    return set;
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
