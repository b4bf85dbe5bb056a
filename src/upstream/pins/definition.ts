// What of a server is pinned, and by which hash: everything it says that a model reads or a caller trusts. Single
// resources are not: they are its data, and come and go.

import { createHash } from "node:crypto";
import { isJsonObject, type JsonObject, type JsonValue } from "../../protocol/index.js";
import type { Catalogue } from "../types.js";

export type PinnedKind = "tool" | "prompt" | "template" | "instructions";

export interface Definition {
  readonly kind: PinnedKind;
  readonly name: string;
  /** As JSON with sorted keys: the order in which a server writes them means nothing. */
  readonly text: string;
  /** SHA-256 of the text, in hex. */
  readonly hash: string;
}

/** There is one of these for each server, so it needs a name only to be stored under. */
export const INSTRUCTIONS = "instructions";

export function definitionsOf(catalogue: Catalogue): Definition[] {
  const { tools, prompts, resourceTemplates, instructions } = catalogue;
  return [
    ...tools.map((tool) => definitionOf("tool", String(tool.name), tool)),
    ...prompts.map((prompt) => definitionOf("prompt", String(prompt.name), prompt)),
    ...resourceTemplates.map((template) => definitionOf("template", String(template.uriTemplate), template)),
    ...(instructions === undefined ? [] : [definitionOf("instructions", INSTRUCTIONS, instructions)]),
  ];
}

function definitionOf(kind: PinnedKind, name: string, value: JsonValue): Definition {
  const text = sortedText(value);
  return { kind, name, text, hash: hashOf(text) };
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
