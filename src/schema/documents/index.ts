// Schema documents as data: dialects, where keywords hold schemas, what references point at. Nothing is ever fetched.

export { type Dialect, knownDialect } from "./dialect.js";
export { escapePointer, unescapePointer } from "./pointer.js";
export { subschemas } from "./subschemas.js";
export { HOME, type ResourceLimits, SchemaResources, splitReference } from "./resources.js";
