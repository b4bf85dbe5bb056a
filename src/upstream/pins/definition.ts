// What of a server is pinned, and by which hash: everything it says that a model reads or a caller trusts. Single
// resources are not: they are its data, and come and go.

import { createHash } from "node:crypto";
import { inSlices, isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { Catalogue } from "../types.js";

export type PinnedKind = "tool" | "prompt" | "template" | "instructions";

export interface Definition {
  readonly kind: PinnedKind;
  readonly name: string;
  readonly value: JsonValue;
  /** SHA-256 of `sortedText(value)`, in hex. */
  readonly hash: string;
  /** Characters of that text. */
  readonly size: number;
}

/** There is one of these for each server, so it needs a name only to be stored under. */
export const INSTRUCTIONS = "instructions";

/** `keyOf` names one definition among those of a server. */
export function pinKeyOf(kind: string, name: string): string {
  return kind === "instructions" ? INSTRUCTIONS : `${kind} ${name}`;
}

/** Everything of the catalogue that is pinned, hashed in slices: a server may list thousands. */
export async function definitionsOf(catalogue: Catalogue): Promise<Definition[]> {
  const { tools, prompts, resourceTemplates, instructions } = catalogue;
  const found: Definition[] = [];
  const add = (kind: PinnedKind, values: readonly JsonObject[], key: string): Promise<void> =>
    inSlices(values, (value) => found.push({ kind, name: String(value[key]), value, ...measuredOf(value) }));
  await add("tool", tools, "name");
  await add("prompt", prompts, "name");
  await add("template", resourceTemplates, "uriTemplate");
  if (instructions !== undefined) {
    const text = sortedText(instructions);
    const [hash, size] = [hashOf(text), text.length];
    found.push({ kind: "instructions", name: INSTRUCTIONS, value: instructions, hash, size });
  }
  return found;
}

interface Measured {
  readonly hash: string;
  readonly size: number;
}

/** A definition is hashed once: the listing, the pins and the calls that name it all ask. */
const known = new WeakMap<JsonObject, Measured>();

function measuredOf(value: JsonObject): Measured {
  let measured = known.get(value);
  if (measured === undefined) {
    const text = sortedText(value);
    measured = { hash: hashOf(text), size: text.length };
    known.set(value, measured);
  }
  return measured;
}

export function definitionHashOf(value: JsonObject): string {
  return measuredOf(value).hash;
}

export function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** INVARIANT: the depth was bounded when the server's message was read. */
export function sortedText(value: JsonValue): string {
  if (Array.isArray(value)) return `[${value.map(sortedText).join(",")}]`;
  if (!isJsonObject(value)) return JSON.stringify(value);
  const entries = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${sortedText(value[key] as JsonValue)}`);
  return `{${entries.join(",")}}`;
}

/** The offered catalogue with only those definitions that `isShown`. */
export function shownOf(catalogue: Catalogue, isShown: (kind: PinnedKind, name: string) => boolean): Catalogue {
  const { tools, prompts, resourceTemplates, instructions } = catalogue;
  const named = (list: readonly JsonObject[], kind: PinnedKind, key: string): readonly JsonObject[] =>
    list.filter((each) => isShown(kind, String(each[key])));
  return {
    ...catalogue,
    tools: named(tools, "tool", "name"),
    prompts: named(prompts, "prompt", "name"),
    resourceTemplates: named(resourceTemplates, "template", "uriTemplate"),
    instructions: instructions !== undefined && isShown("instructions", INSTRUCTIONS) ? instructions : undefined,
  };
}
