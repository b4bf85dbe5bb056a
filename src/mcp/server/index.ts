// What a tool is, how it is defined, and everything that can be said about one before it runs.

export { type Catalog, type CatalogEntry, type CatalogOptions, catalog, catalogText } from "./catalog.js";
export { type CompositeSpec, composeTools, type CompositeProgress, type CompositeStep } from "./tool.js";
export { audio, failure, image, link, resource, structured, text } from "./content.js";
export { DefinitionError, SchemaError } from "../../schema/index.js";
export { examples } from "./examples.js";
export { definitionHash } from "./tool.js";
export type { FromSchema } from "./signature.js";
export type { InvokeOptions } from "./registry.js";
export { type OpenApiOptions, openApi, openApiText } from "./catalog.js";
export { type ValidationReport, validateArguments, validationFault } from "./validators.js";
export { ToolRegistry } from "./registry.js";
export { DEFAULT_SCHEMA_LIMITS, type SchemaLimits } from "../../schema/index.js";
export { Schema, type SchemaOptions } from "../../schema/index.js";
export {
  type Completions,
  defineServer,
  type PromptArguments,
  type PromptBody,
  type PromptOptions,
  type ResourceBody,
  type ResourceOptions,
  ServerBuilder,
  type ServerOptions,
  type TemplateOptions,
} from "./server.js";
export { type Field, type Fields, field, type Signature, signature, signatureDefinition } from "./signature.js";
export { withJsonSchema } from "./standard.js";
export {
  type ArgumentsOf,
  type CompiledDefinition,
  compileDefinition,
  type DefinedTool,
  defineTool,
  type Handler,
  type ReturnOf,
  type SchemaLike,
  type SchemaLiteral,
  type Structured,
  type ToolOptions,
  type ToolSpec,
} from "./tool.js";
export type * from "./types.js";
export { UriTemplate } from "./uri-template.js";
export { allValid, anyValid, type Validator, type ValidatorResult, validAt, validWhen } from "./validators.js";
