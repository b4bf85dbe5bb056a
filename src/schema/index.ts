// JSON Schema for tools: validation, patterns with a bounded cost, formats, examples of text.

export { isSchema, type Located, SchemaDocument } from "./document.js";
export { equalityKey, escapePointer, unescapePointer } from "./documents/index.js";
export { FORMAT_EXAMPLES } from "./format.js";
export { createMatcher } from "./pattern/matcher.js";
export { sampleOf } from "./pattern/sample.js";
export { Schema, type SchemaOptions } from "./schema.js";
export {
  DEFAULT_SCHEMA_LIMITS,
  DefinitionError,
  frozenJson,
  type JsonSchema,
  type Problem,
  SchemaError,
  type SchemaLimits,
  type Validation,
} from "./types.js";
