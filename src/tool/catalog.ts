// The catalog: every tool with its schemas, tags, metadata and examples, in one JSON document.

import type { JsonObject, JsonValue } from "../protocol/index.js";
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
    tools: [...tools].map((tool) => ({
      ...tool.definition,
      tags: [...tool.tags],
      metadata: { ...tool.metadata },
      examples: count === 0 ? [] : examples(tool.definition.inputSchema, count),
    })),
    version,
    generated_at: now.toISOString(),
  };
}
