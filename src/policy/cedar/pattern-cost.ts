// An operator's pattern searches the answers of hostile tools, from every position of a text of megabytes. So the steps
// of one attempt need a bound that does not depend on the text. It is read off the syntax: every repetition but the
// last has to be bounded, and what is repeated may not vary itself. The last may be endless: once it has its minimum
// it succeeds, and the search continues after it. A pattern that cannot be bounded is rejected.

import { createRequire } from "node:module";
import type { AST } from "@eslint-community/regexpp";

/** Steps of one attempt at worst. */
const MAX_STEPS = 10_000;
const MAX_SOURCE_CHARS = 1_000;

interface Cost {
  /** In how many ways an attempt can go on and fail. */
  readonly ways: number;
  /** Characters looked at on the longest of them. */
  readonly length: number;
}

class TooCostly extends Error {}

/** Why this pattern is not run over answers; undefined when it is. Its syntax is valid already. */
export function costProblem(source: string, flags: string): string | undefined {
  if (source.length > MAX_SOURCE_CHARS) return `is longer than ${MAX_SOURCE_CHARS} characters`;
  try {
    const { ways, length } = ofAlternatives(parse(source, flags).alternatives, true);
    if (ways * length <= MAX_STEPS) return undefined;
    return `may take ${ways * length} steps at every character of an answer, and ${MAX_STEPS} is the limit; give its repetitions narrower bounds`;
  } catch (error) {
    if (error instanceof TooCostly) return error.message;
    return `cannot be analyzed (${(error as Error).message}); write it more simply`;
  }
}

/** Loaded only when a policy has a pattern. */
function parse(source: string, flags: string): AST.Pattern {
  const { RegExpParser } = createRequire(import.meta.url)(
    "@eslint-community/regexpp",
  ) as typeof import("@eslint-community/regexpp");
  return new RegExpParser().parsePattern(source, 0, source.length, { unicode: flags.includes("u") });
}

function ofAlternatives(alternatives: readonly AST.Alternative[], isLast: boolean): Cost {
  const costs = alternatives.map(({ elements }) => ofSequence(elements, isLast));
  return {
    ways: costs.reduce((sum, { ways }) => sum + ways, 0),
    length: Math.max(...costs.map(({ length }) => length)),
  };
}

function ofSequence(elements: readonly AST.Element[], isLast: boolean): Cost {
  let ways = 1;
  // Even an attempt that fails at once looks at a character.
  let length = 1;
  for (const [at, element] of elements.entries()) {
    const cost = ofElement(element, isLast && at === elements.length - 1);
    ways *= cost.ways;
    length += cost.length;
  }
  return { ways, length };
}

function ofElement(element: AST.Element, isLast: boolean): Cost {
  switch (element.type) {
    case "Character":
    case "CharacterSet":
    case "CharacterClass":
      return { ways: 1, length: 1 };
    case "Assertion":
      if (element.kind === "lookahead" || element.kind === "lookbehind") {
        throw new TooCostly(`looks around with \`${element.raw}\`, which has no bound here; leave that out`);
      }
      return { ways: 1, length: 1 };
    case "Group":
    case "CapturingGroup":
      return ofAlternatives(element.alternatives, isLast);
    case "Quantifier":
      return ofQuantifier(element, isLast);
    default:
      throw new TooCostly(`has \`${element.raw}\`, whose cost has no bound here; leave that out`);
  }
}

function ofQuantifier({ min, max, element, raw }: AST.Quantifier, isLast: boolean): Cost {
  const once = ofElement(element, false);
  if (isLast && once.ways === 1) return { ways: 1, length: once.length * (min + 1) };
  if (max === Number.POSITIVE_INFINITY) {
    const why = once.ways > 1 ? "repeats what varies" : "repeats without a bound before the end";
    throw new TooCostly(
      `could take too long on a long answer: \`${raw}\` ${why}; give it a bound, such as {${min},64}, or end with it`,
    );
  }
  let ways = 0;
  // What varies, repeated: every repetition multiplies. Past the limit it does not matter by how much.
  for (let times = min; times <= max && ways <= MAX_STEPS; times++) ways += once.ways ** times;
  return { ways, length: once.length * max };
}
