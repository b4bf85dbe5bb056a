// The catalog: every tool with its schemas, tags, metadata and examples, in one JSON document.

import { isSliceOver, type JsonObject, type JsonValue, nextSlice } from "../index.js";
import { examples } from "./examples.js";
import type { Tool, ToolDefinition } from "./types.js";

export interface CatalogOptions {
  version?: string;
  /** The time written into the catalog. */
  now?: Date;
  /** Examples for each tool; 0 for none. */
  examples?: number;
}

export interface CatalogEntry extends ToolDefinition {
  tags: string[];
  metadata: JsonObject;
  examples: JsonValue[];
}

export interface Catalog {
  tools: CatalogEntry[];
  version: string;
  generated_at: string;
}

export function catalog(tools: Iterable<Tool>, options: CatalogOptions = {}): Catalog {
  const { version = "1.0.0", now = new Date(), examples: count = 2 } = options;
  return {
    tools: [...tools].map((tool) => entryOf(tool, count)),
    version,
    generated_at: now.toISOString(),
  };
}

function entryOf(tool: Tool, count: number): CatalogEntry {
  return {
    ...tool.definition,
    tags: [...tool.tags],
    metadata: { ...tool.metadata },
    examples: count === 0 ? [] : examples(tool.definition.inputSchema, count),
  };
}

/** The same document as text, built in slices. Undefined when it would be longer than `maxChars`. */
export async function catalogText(
  tools: Iterable<Tool>,
  options: CatalogOptions,
  maxChars: number,
): Promise<string | undefined> {
  const { tools: _none, ...head } = catalog([], options);
  let entries = "";
  for (const tool of tools) {
    entries += `${entries === "" ? "" : ","}${JSON.stringify(entryOf(tool, options.examples ?? 2))}`;
    if (entries.length > maxChars) return undefined;
    if (isSliceOver()) await nextSlice();
  }
  return `{"tools":[${entries}],${JSON.stringify(head).slice(1)}`;
}
