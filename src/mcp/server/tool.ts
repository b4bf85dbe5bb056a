// Tools: from what an author writes, or a downstream server lists, to what the gateway can validate and run.

import { createHash } from "node:crypto";
import {
  DEFAULT_SCHEMA_LIMITS,
  DefinitionError,
  equalityKey,
  frozenJson,
  Schema,
  type SchemaOptions,
} from "../../schema/index.js";
import type { JsonObject, JsonValue } from "../index.js";
import { failure, toResult } from "./content.js";
import { type Fields, type FieldsType, type FromSchema, isSignature, type Signature } from "./signature.js";
import { isStandardSchema, jsonSchemaOf, type StandardSchemaV1, standardProblems } from "./standard.js";
import type {
  CallContext,
  ContentBlock,
  HandlerResult,
  JsonSchema,
  Problem,
  Tool,
  ToolDefinition,
  ToolResult,
  Validation,
} from "./types.js";
import { problemsOf, runInOrder, type Validator, withinPath } from "./validators.js";

/** A JSON Schema written in place. */
export interface SchemaLiteral {
  readonly [keyword: string]: unknown;
}

/** How arguments and structured content can be described. */
export type SchemaLike = StandardSchemaV1 | Signature | SchemaLiteral;

/** The type of what a caller sends. For a Standard Schema that is its input: nothing is transformed or filled in. */
export type ArgumentsOf<S> = S extends StandardSchemaV1
  ? StandardSchemaV1.InferInput<S>
  : S extends Signature<infer I, Fields | undefined>
    ? FieldsType<I>
    : FromSchema<S> extends infer T
      ? JsonValue extends T
        ? JsonObject
        : T
      : never;

type OutputOf<S> = S extends StandardSchemaV1
  ? StandardSchemaV1.InferInput<S>
  : S extends Signature<infer I, Fields | undefined>
    ? FieldsType<I>
    : FromSchema<S>;

/** Without an output schema anything a handler may return; with one, its structured content or a failure. */
export type ReturnOf<S, O> = O extends SchemaLike
  ? Structured<OutputOf<O>>
  : S extends Signature<Fields, infer F extends Fields>
    ? Structured<FieldsType<F>>
    : HandlerResult;

export type Structured<T> =
  | { structuredContent: T; content?: ContentBlock[]; _meta?: JsonObject }
  | (ToolResult & { isError: true });

export type Handler<A, R> = (args: A, context: CallContext) => R | Promise<R>;

export interface ToolOptions<A = JsonObject, O = undefined> {
  title?: string;
  /** Schema of the structured content. */
  output?: O;
  annotations?: JsonObject;
  icons?: JsonValue;
  _meta?: JsonObject;
  tags?: readonly string[];
  metadata?: Tool["metadata"];
  /** Said by the author: read-only or idempotent, a guardrail callback would add nothing. */
  noGuardrailRequired?: boolean;
  timeoutMs?: number;
  /** Time for the whole validation, 5 s unless told otherwise. */
  validationTimeoutMs?: number;
  validators?: readonly Validator<A>[];
  schema?: SchemaOptions;
}

export interface ToolSpec<S extends SchemaLike, O> extends ToolOptions<ArgumentsOf<S>, O> {
  name: string;
  description: string;
  input: S;
  handler: Handler<ArgumentsOf<S>, ReturnOf<S, O>>;
}

/** A tool that remembers the types of its arguments and its structured content. */
export interface DefinedTool<A = JsonObject, R = unknown> extends Tool {
  readonly "~types"?: { arguments: A; result: R };
}

export function defineTool<const S extends SchemaLike, const O extends SchemaLike | undefined = undefined>(
  spec: ToolSpec<S, O>,
): DefinedTool<ArgumentsOf<S>, ReturnOf<S, O>> {
  const { name, description, input, output, handler } = spec;
  checkToolName(name);
  const label = `tool \`${name}\``;
  if (typeof description !== "string") throw new DefinitionError(`${label}: the description must be text`);
  if (typeof handler !== "function") throw new DefinitionError(`${label}: the handler must be a function`);
  const outputSchema = output === undefined ? outputOfSignature(input) : toJsonSchema(output, `${label}, output`);
  const definition: ToolDefinition = {
    name,
    ...pick(spec, "title"),
    description,
    inputSchema: ofObjects(toJsonSchema(input, label), label),
    ...(outputSchema === undefined ? {} : { outputSchema }),
    ...pick(spec, "annotations", "icons", "_meta"),
  };
  const timeoutMs = spec.validationTimeoutMs ?? spec.schema?.limits?.timeoutMs ?? DEFAULT_SCHEMA_LIMITS.timeoutMs;
  const compiled = compileDefinition(definition, { ...spec.schema, limits: { ...spec.schema?.limits, timeoutMs } });
  const extra = extraChecks(input, spec.validators as readonly Validator[] | undefined);
  const extraOutput = extraChecks(output);
  return Object.freeze({
    ...compiled,
    noGuardrailRequired: spec.noGuardrailRequired ?? false,
    ...pick(spec, "timeoutMs"),
    tags: Object.freeze([...(spec.tags ?? [])]),
    metadata: Object.freeze({ ...spec.metadata }),
    validate: (args: JsonObject) => then(compiled.validate(args), extra, args, timeoutMs),
    validateOutput: (value: JsonValue | undefined) =>
      then(compiled.validateOutput(value), extraOutput, value as JsonObject, timeoutMs),
    run: async (args: JsonObject, context: CallContext) =>
      toResult(name, (await handler(args as ArgumentsOf<S>, context)) as HandlerResult),
  });
}

/** What can be known about a tool from its definition alone. */
export interface CompiledDefinition
  extends Pick<Tool, "definition" | "definitionHash" | "validate" | "validateOutput"> {
  readonly input: Schema;
  readonly output: Schema | undefined;
}

/** Throws a `SchemaError` when the definition's schemas cannot be used. */
export function compileDefinition(definition: ToolDefinition, options?: SchemaOptions): CompiledDefinition {
  const frozen = frozenJson(definition, `the definition of tool \`${definition.name}\``);
  const input = new Schema(frozen.inputSchema, options);
  const output = frozen.outputSchema === undefined ? undefined : new Schema(frozen.outputSchema, options);
  return {
    definition: frozen,
    definitionHash: definitionHash(frozen),
    input,
    output,
    validate: (args) => input.validate(args),
    validateOutput(value) {
      if (output === undefined) return { ok: true };
      if (value !== undefined) return output.validate(value);
      return {
        ok: false,
        problems: [{ path: "", message: "structured content is missing", expected: "what the output schema says" }],
      };
    },
  };
}

/** The rule of MCP for tool names. */
export function checkToolName(name: string): void {
  if (typeof name === "string" && /^[A-Za-z0-9_./-]{1,128}$/.test(name)) return;
  throw new DefinitionError(
    `tool name ${JSON.stringify(name)} is not allowed: use 1 to 128 of the characters A-Z a-z 0-9 _ - . /`,
  );
}

function toJsonSchema(schema: SchemaLike, label: string): JsonObject {
  if (isStandardSchema(schema)) return jsonSchemaOf(schema, label);
  if (isSignature(schema)) return schema.inputSchema;
  if (typeof schema === "object" && schema !== null && !Array.isArray(schema)) return schema as JsonObject;
  throw new DefinitionError(`${label}: the schema must be a Standard Schema, a signature or a JSON Schema object`);
}

/** Arguments are always an object, and MCP wants the schema to say so. */
function ofObjects(schema: JsonObject, label: string): JsonSchema {
  if (schema.type === "object") return schema;
  if (schema.type === undefined) return { ...schema, type: "object" };
  throw new DefinitionError(`${label}: arguments are an object, so the schema's type must be "object"`);
}

function outputOfSignature(schema: SchemaLike): JsonObject | undefined {
  return isSignature(schema) ? schema.outputSchema : undefined;
}

type Extra = (value: JsonObject) => readonly Problem[] | Promise<readonly Problem[]>;

function extraChecks(schema: SchemaLike | undefined, validators: readonly Validator[] = []): Extra[] {
  const own: Extra[] = validators.map((validator) => (args) => problemsOf(validator, args));
  if (!isStandardSchema(schema)) return own;
  return [(args) => problemsOf(() => standardProblems(schema, args), args), ...own];
}

function then(
  first: Validation | Promise<Validation>,
  extra: readonly Extra[],
  value: JsonObject,
  timeoutMs: number,
): Validation | Promise<Validation> {
  if (extra.length === 0) return first;
  const more = (validation: Validation) => {
    if (!validation.ok) return validation;
    // An author's code gets a copy: what runs later is what was hashed, not what a check made of it.
    const copy = structuredClone(value);
    return runInOrder(extra.map((check) => () => check(copy)));
  };
  const outcome = first instanceof Promise ? first.then(more) : more(first);
  return outcome instanceof Promise ? withinPath(outcome, timeoutMs) : outcome;
}

function pick<T extends object, K extends keyof T>(from: T, ...keys: K[]): Partial<Pick<T, K>> {
  return Object.fromEntries(keys.filter((key) => from[key] !== undefined).map((key) => [key, from[key]])) as Partial<
    Pick<T, K>
  >;
}

/** SHA-256, in hex, over the definition as JSON with sorted keys. */
export function definitionHash(definition: ToolDefinition): string {
  return createHash("sha256")
    .update(equalityKey(definition as unknown as JsonValue))
    .digest("hex");
}

const MAX_STEPS = 64;

/** What is known when a step is about to run. */
export interface CompositeProgress<A> {
  readonly input: A;
  /** Results of the steps that ran, by name. */
  readonly results: Readonly<Record<string, ToolResult>>;
  /** The result of the step before, if one ran. */
  readonly previous: ToolResult | undefined;
}

export interface CompositeStep<A> {
  /** The part: a tool of the same server, or its name. */
  tool: string | Tool;
  /** The name its result is kept under; the tool's name unless given. */
  as?: string;
  args: (progress: CompositeProgress<A>) => JsonObject;
  /** Skips the step when false. */
  when?: (progress: CompositeProgress<A>) => boolean;
  /** A failed part ends the whole unless it says so here. */
  mayFail?: boolean;
}

export interface CompositeSpec<S extends SchemaLike, O> extends ToolOptions<ArgumentsOf<S>, O> {
  name: string;
  description: string;
  input: S;
  steps: readonly CompositeStep<ArgumentsOf<S>>[];
  /** Makes the result; the last step's result unless given. */
  result?: (progress: CompositeProgress<ArgumentsOf<S>>) => ReturnOf<S, O> | Promise<ReturnOf<S, O>>;
}

export function composeTools<const S extends SchemaLike, const O extends SchemaLike | undefined = undefined>(
  spec: CompositeSpec<S, O>,
): DefinedTool<ArgumentsOf<S>, ReturnOf<S, O>> {
  const { steps, result, ...rest } = spec;
  const plan = steps.map((step) => {
    const tool = typeof step.tool === "string" ? step.tool : step.tool.definition.name;
    return { ...step, tool, as: step.as ?? tool };
  });
  checkPlan(spec.name, plan);
  return defineTool<S, O>({
    ...(rest as unknown as CompositeSpec<S, O>),
    handler: async (input, context) => {
      const results: Record<string, ToolResult> = Object.create(null) as Record<string, ToolResult>;
      let previous: ToolResult | undefined;
      for (const [index, step] of plan.entries()) {
        context.signal.throwIfAborted();
        const progress = { input, results, previous };
        if (step.when !== undefined && !step.when(progress)) continue;
        context.progress(index, plan.length, step.as);
        previous = await context.call(step.tool, step.args(progress));
        results[step.as] = previous;
        if (previous.isError === true && step.mayFail !== true) {
          return stopped(step.as, previous) as ReturnOf<S, O>;
        }
      }
      if (result !== undefined) return result({ input, results, previous });
      return (previous ?? failure("no step was run")) satisfies HandlerResult as ReturnOf<S, O>;
    },
  });
}

/** The part's own words, and which part they came from. */
function stopped(step: string, part: ToolResult): ToolResult {
  const { content } = failure(`step \`${step}\` failed:`);
  return { ...part, content: [...content, ...part.content], isError: true };
}

function checkPlan(name: string, plan: readonly { as: string; tool: string }[]): void {
  if (plan.length === 0) throw new DefinitionError(`tool \`${name}\`: a composed tool needs at least one step`);
  if (plan.length > MAX_STEPS) {
    throw new DefinitionError(`tool \`${name}\` has ${plan.length} steps; the limit is ${MAX_STEPS}`);
  }
  if (plan.some((step) => step.tool === name)) throw new DefinitionError(`tool \`${name}\` cannot be a step of itself`);
  const names = plan.map((step) => step.as);
  const twice = names.find((step, index) => names.indexOf(step) !== index);
  if (twice !== undefined) {
    throw new DefinitionError(`tool \`${name}\`: two steps are called \`${twice}\`; tell them apart with \`as\``);
  }
}
