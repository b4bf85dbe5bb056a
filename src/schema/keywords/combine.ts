// Keywords that apply other schemas to the same value.

import type { JsonValue } from "../../mcp/index.js";
import {
  type FoundProblems,
  type InstancePlace,
  type KeywordCheck,
  SeenRefs,
  type ValidationRun,
  WRONG_TYPE,
} from "../run.js";
import type { JsonSchema } from "../types.js";
import { jsonKindOf, listWords, valueSummary } from "../words.js";
import { branches, type Keyword } from "./context.js";

export const allOf: Keyword = (context) => {
  const parts = branches(context, "allOf");
  return parts === undefined ? undefined : allOfKeyword(parts);
};

/** All of them; while words are wanted, also after a failure. */
export function allOfKeyword(checks: readonly KeywordCheck[]): KeywordCheck {
  const [only, second] = checks;
  if (only !== undefined && second === undefined) return only;
  return (value, at, run, seen) => {
    let ok = true;
    for (const check of checks) {
      if (check(value, at, run, seen)) continue;
      ok = false;
      if (run.done) return false;
    }
    return ok;
  };
}

export const anyOf: Keyword = (context) => {
  const options = branches(context, "anyOf");
  if (options === undefined) return undefined;
  return (value, at, run, seen) =>
    // Every fitting alternative counts for what has been looked at; otherwise the first one is enough.
    countFitting(options, value, at, run, seen, seen === undefined ? 1 : options.length) > 0 ||
    explainNearest(options, value, at, run);
};

export const oneOfKeyword: Keyword = (context) => {
  const options = branches(context, "oneOf");
  if (options === undefined) return undefined;
  return (value, at, run, seen) => {
    const fitting = countFitting(options, value, at, run, seen, 2);
    if (fitting === 1) return true;
    if (fitting === 0) return explainNearest(options, value, at, run);
    return run.fail(at, () => {
      const fits = run.quietly(() =>
        options.flatMap((option, i) => (option(value, at, run, undefined) ? [`${i + 1}`] : [])),
      );
      return {
        message: `fits alternatives ${listWords(fits, "and")} at once, and exactly one is allowed`,
        expected: "a value that fits exactly one alternative",
      };
    });
  };
};

/** How many alternatives fit, counted up to a number. Their failures are no news, so no words are collected. */
function countFitting(
  options: readonly KeywordCheck[],
  value: JsonValue,
  at: InstancePlace | undefined,
  run: ValidationRun,
  seen: SeenRefs | undefined,
  enough: number,
): number {
  const { problems } = run;
  run.problems = undefined;
  let fitting = 0;
  for (const option of options) {
    const own = seen === undefined ? undefined : new SeenRefs();
    if (!option(value, at, run, own)) continue;
    if (own !== undefined) seen?.merge(own, run);
    if (++fitting >= enough) break;
  }
  run.problems = problems;
  return fitting;
}

const MAX_EXPLAINED = 20;

/** Only the nearest of several alternatives is explained: the reasons of all of them would be too long to read. */
function explainNearest(
  options: readonly KeywordCheck[],
  value: JsonValue,
  at: InstancePlace | undefined,
  run: ValidationRun,
): boolean {
  if (run.done) return false;
  const tried = options.slice(0, MAX_EXPLAINED).map((option) => run.apart(option, value, at));
  if (tried.every(([first, second]) => second === undefined && first?.weight === WRONG_TYPE && first.at === at)) {
    const expected = listWords([...new Set(tried.map(([first]) => first?.expected ?? ""))]);
    return run.fail(at, () => ({
      message: `must be ${expected}, not ${jsonKindOf(value)}`,
      expected,
      weight: WRONG_TYPE,
    }));
  }
  const best = tried.reduce((a, b) => (distance(b, at) < distance(a, at) ? b : a));
  return run.adopt(best);
}

/** A value of another type is a different thing; somewhere inside it, the wrong type is only a slip. */
function distance(found: readonly FoundProblems[], at: InstancePlace | undefined): number {
  return found.reduce((sum, { weight, at: place }) => sum + (weight === WRONG_TYPE && place !== at ? 3 : weight), 0);
}

export const not: Keyword = (context) => {
  if (context.schema.not === undefined) return undefined;
  const check = context.check("not");
  return (value, at, run) =>
    !run.quietly(() => check(value, at, run, undefined)) ||
    run.fail(at, () => {
      const words = valueSummary(context.schema.not as JsonSchema);
      return {
        message: "is a value that is not allowed",
        ...(words === undefined ? {} : { expected: `not ${words}` }),
      };
    });
};

export const conditional: Keyword = (context) => {
  const { schema } = context;
  if (schema.if === undefined) return undefined;
  const condition = context.check("if");
  const then = schema.then === undefined ? undefined : context.check("then");
  const otherwise = schema.else === undefined ? undefined : context.check("else");
  return (value, at, run, seen) => {
    const own = seen === undefined ? undefined : new SeenRefs();
    const holds = run.quietly(() => condition(value, at, run, own));
    if (holds && own !== undefined) seen?.merge(own, run);
    const rule = holds ? then : otherwise;
    return rule === undefined || rule(value, at, run, seen);
  };
};

export const reference: Keyword = (context) =>
  context.schema.$ref === undefined ? undefined : context.reference("$ref");

export const dynamicReference: Keyword = (context) =>
  context.schema.$dynamicRef === undefined ? undefined : context.reference("$dynamicRef");
