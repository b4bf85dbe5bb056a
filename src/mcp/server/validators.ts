// Checks of an author's own, for rules that a schema cannot say. They run after the schema, on the same arguments,
// and compose. A check that throws, or takes too long, has not said yes.

import { escapePointer, unescapePointer } from "../../schema/index.js";
import { Fault, type JsonObject } from "../index.js";
import type { CompiledDefinition } from "./tool.js";
import type { Problem, Tool, Validation } from "./types.js";

/** Nothing or true is fine; a string is the reason why not; problems say it precisely. */
export type ValidatorResult = true | undefined | void | string | Problem | readonly Problem[];
export type Validator<A = JsonObject> = (args: A) => ValidatorResult | Promise<ValidatorResult>;

/** Every validator must agree; all of them are heard. */
export function allValid<A>(...validators: readonly Validator<A>[]): Validator<A> {
  return (args) => collect(validators.map((validator) => problemsOf(validator, args)));
}

/** At least one must agree; otherwise the problems of the first are reported. */
export function anyValid<A>(...validators: readonly Validator<A>[]): Validator<A> {
  return async (args) => {
    const outcomes = await Promise.all(validators.map((validator) => problemsOf(validator, args)));
    return outcomes.some((problems) => problems.length === 0) ? undefined : outcomes[0];
  };
}

export function validWhen<A>(condition: (args: A) => boolean, validator: Validator<A>): Validator<A> {
  return (args) => (condition(args) ? validator(args) : undefined);
}

/** Checks one argument, if it is there; its problems are reported at its place. */
export function validAt<A extends object, K extends keyof A & string>(
  name: K,
  validator: Validator<Exclude<A[K], undefined>>,
): Validator<A> {
  return (args) => {
    const value = args[name];
    if (value === undefined) return undefined;
    const problems = problemsOf(validator, value as Exclude<A[K], undefined>);
    const placed = (list: readonly Problem[]) =>
      list.map((problem) => ({ ...problem, path: `/${escapePointer(name)}${problem.path}` }));
    return problems instanceof Promise ? problems.then(placed) : placed(problems);
  };
}

/** What a validator has against these arguments. Never throws. */
export function problemsOf<A>(validator: Validator<A>, args: A): readonly Problem[] | Promise<readonly Problem[]> {
  try {
    const verdict = validator(args);
    return verdict instanceof Promise ? verdict.then(toProblems, brokenCheck) : toProblems(verdict);
  } catch (error) {
    return brokenCheck(error);
  }
}

function toProblems(verdict: ValidatorResult): readonly Problem[] {
  if (verdict === undefined || verdict === true) return [];
  if (typeof verdict === "string") return [{ path: "", message: verdict }];
  return Array.isArray(verdict) ? (verdict as readonly Problem[]) : [verdict as Problem];
}

function brokenCheck(error: unknown): Problem[] {
  const reason = error instanceof Error ? error.message : String(error);
  return [{ path: "", message: `could not be checked: ${reason}` }];
}

function collect(
  parts: readonly (readonly Problem[] | Promise<readonly Problem[]>)[],
): readonly Problem[] | Promise<readonly Problem[]> {
  if (parts.some((part) => part instanceof Promise)) return Promise.all(parts).then((lists) => lists.flat());
  return (parts as readonly (readonly Problem[])[]).flat();
}

/** Runs the steps in order until one has something against it; a promise only when a step is one. */
export function runInOrder(
  steps: readonly (() => readonly Problem[] | Promise<readonly Problem[]>)[],
): Validation | Promise<Validation> {
  for (const [index, step] of steps.entries()) {
    const problems = step();
    if (problems instanceof Promise) {
      return problems.then((found) => (found.length > 0 ? failed(found) : runInOrder(steps.slice(index + 1))));
    }
    if (problems.length > 0) return failed(problems);
  }
  return { ok: true };
}

function failed(problems: readonly Problem[]): Validation {
  return { ok: false, problems: [...problems] };
}

export async function withinPath(validation: Promise<Validation>, timeoutMs: number): Promise<Validation> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Validation>((resolve) => {
    timer = setTimeout(
      () => resolve(failed([{ path: "", message: `could not be checked within ${timeoutMs} ms` }])),
      timeoutMs,
    );
  });
  try {
    return await Promise.race([validation, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** What `tools/validate` answers. */
export interface ValidationReport {
  tool: string;
  valid: boolean;
  problems: Problem[];
}

export async function validateArguments(
  tool: Pick<Tool | CompiledDefinition, "definition" | "validate">,
  args: JsonObject,
): Promise<ValidationReport> {
  const validation = await tool.validate(args);
  return { tool: tool.definition.name, valid: validation.ok, problems: validation.ok ? [] : validation.problems };
}

/** The error object for arguments that do not fit: the first problem decides its words, all of them travel. */
export function validationFault(tool: string, { problems }: Validation & { ok: false }): Fault {
  const [first = { path: "", message: "do not fit the schema" }] = problems;
  const field = fieldOf(first.path);
  const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
  const reason = `${field === undefined ? "the arguments" : `\`${field}\``} ${first.message}${more}`;
  const suggestions = [...new Set(problems.map(({ suggestion }) => suggestion).filter((text) => text !== undefined))];
  return new Fault("ValidationError", reason, {
    ...(field === undefined ? {} : { field }),
    suggestions,
    extra: { tool_name: tool, problems },
  });
}

/** `/filters/0/name` → `filters.0.name`, as people name fields. */
function fieldOf(path: string): string | undefined {
  return path === "" ? undefined : path.slice(1).split("/").map(unescapePointer).join(".");
}
