// A tool made of tools. Its parts are called through the context, so the gate sees, decides and records each one.

import type { JsonObject } from "../index.js";
import { failure } from "./content.js";
import { DefinitionError } from "../../schema/index.js";
import {
  type ArgumentsOf,
  type DefinedTool,
  defineTool,
  type ReturnOf,
  type SchemaLike,
  type ToolOptions,
} from "./tool.js";
import type { HandlerResult, Tool, ToolResult } from "./types.js";

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
