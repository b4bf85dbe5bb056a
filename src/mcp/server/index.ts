// What a tool is, how it is defined, and everything that can be said about one before it runs.

export {
  DEFAULT_SCHEMA_LIMITS,
  DefinitionError,
  Schema,
  SchemaError,
  type SchemaLimits,
  type SchemaOptions,
} from "../../schema/index.js";
export {
  type Catalog,
  type CatalogEntry,
  type CatalogOptions,
  catalog,
  catalogText,
  type OpenApiOptions,
  openApi,
  openApiText,
} from "./catalog.js";
export { audio, failure, image, link, resource, structured, text } from "./content.js";
export { examples } from "./examples.js";
export type { InvokeOptions } from "./registry.js";
export { ToolRegistry } from "./registry.js";
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
export type { FromSchema } from "./signature.js";
export { type Field, type Fields, field, type Signature, signature, signatureDefinition } from "./signature.js";
export { withJsonSchema } from "./standard.js";
export {
  type ArgumentsOf,
  type CompiledDefinition,
  type CompositeProgress,
  type CompositeSpec,
  type CompositeStep,
  compileDefinition,
  composeTools,
  type DefinedTool,
  defineTool,
  definitionHash,
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
export {
  allValid,
  anyValid,
  type ValidationReport,
  type Validator,
  type ValidatorResult,
  validAt,
  validateArguments,
  validationFault,
  validWhen,
} from "./validators.js";
