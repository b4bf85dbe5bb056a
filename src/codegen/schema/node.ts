import type { JsonValue } from "../../mcp/index.js";

export type TypeName = "null" | "boolean" | "integer" | "number" | "string" | "array" | "object";

/** The place of a node in the table of its contract. */
export type NodeId = number;

/**
 * One schema, with its dialect and its references resolved away. All that a validator needs stands here, and all
 * types are derived from it, so that the two cannot disagree.
 */
export interface Node {
  /** `false`: nothing fits. */
  never?: true;
  types?: readonly TypeName[];
  /** `enum`, and `const` as an `enum` of one. */
  values?: readonly JsonValue[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  /** Places in the table of patterns; from `pattern` and from formats that are expressions. */
  patterns?: readonly number[];
  /** Formats that need more than an expression. */
  format?: BuiltInFormat;
  properties?: ReadonlyMap<string, NodeId>;
  patternProperties?: readonly (readonly [pattern: number, node: NodeId])[];
  additionalProperties?: NodeId;
  unevaluatedProperties?: NodeId;
  propertyNames?: NodeId;
  required?: readonly string[];
  minProperties?: number;
  maxProperties?: number;
  dependentRequired?: ReadonlyMap<string, readonly string[]>;
  dependentSchemas?: ReadonlyMap<string, NodeId>;
  prefixItems?: readonly NodeId[];
  items?: NodeId;
  unevaluatedItems?: NodeId;
  contains?: NodeId;
  minContains?: number;
  maxContains?: number;
  minItems?: number;
  maxItems?: number;
  uniqueItems?: true;
  /** `allOf`, and `$ref` as one more member of it. */
  all?: readonly NodeId[];
  any?: readonly NodeId[];
  one?: readonly NodeId[];
  not?: NodeId;
  if?: NodeId;
  then?: NodeId;
  else?: NodeId;

  /** What people wrote for people; no validator looks at it. */
  readonly about: About;
}

export interface About {
  /** Whose schema it is part of. */
  readonly tool: string;
  readonly side: "inputSchema" | "outputSchema";
  /** From the root of the schema. */
  readonly pointer: string;
  /** The key under `$defs` or `definitions`, where that is where it stands. */
  readonly definition?: string;
  title?: string;
  description?: string;
  default?: JsonValue;
  deprecated?: true;
  /** The name of the format, also where it is not checked. */
  format?: string;
}

export const BUILT_IN_FORMATS = [
  "date",
  "time",
  "date-time",
  "hostname",
  "iso-time",
  "iso-date-time",
  "int32",
  "int64",
  "regex",
] as const;
export type BuiltInFormat = (typeof BUILT_IN_FORMATS)[number];

/** An ECMAScript expression. */
export interface Pattern {
  readonly source: string;
  readonly flags: string;
}

/** All nodes and patterns of one server. */
export interface NodeTable {
  readonly nodes: Node[];
  readonly patterns: Pattern[];
}

/** Keywords with one schema that keep their names as fields of a node. */
export const ONE_SCHEMA = [
  "additionalProperties",
  "unevaluatedProperties",
  "propertyNames",
  "unevaluatedItems",
  "contains",
  "not",
  "if",
  "then",
  "else",
] as const;
