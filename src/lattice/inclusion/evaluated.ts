import type { Scope } from "./compile.js";
import { isObject } from "./document.js";
import { type Formula, KIND } from "./formula.js";
import { declaredNames, has } from "./keywords.js";

const MAX_CASES = 64;
const MAX_DEPTH = 12;

/** Under the condition `when`, these members and items have been evaluated by keywords beside or below. */
interface Case {
  readonly when: Formula;
  readonly names: Formula;
  /** Items before this position. */
  readonly upTo: number;
  /** Items that satisfy this, by `contains`. */
  readonly found: Formula;
}

/**
 * `unevaluatedProperties` and `unevaluatedItems` depend on which other parts of the schema hold, so they are written
 * out case by case. When the cases are too many the keyword stays an unknown predicate.
 */
export function unevaluatedKeywords(scope: Scope): Formula {
  const { keywords, f } = scope;
  const parts: Formula[] = [];
  for (const keyword of ["unevaluatedProperties", "unevaluatedItems"] as const) {
    if (keywords[keyword] === undefined) continue;
    const rest = scope.compile(keywords[keyword]);
    if (rest === f.yes) continue;
    const cases = casesOf(scope, keyword, 0);
    const { fingerprint } = scope.place.document;
    const unsure = scope.opaque(`${keyword} ${fingerprint} ${scope.entered.join()} ${JSON.stringify(keywords)}`);
    if (cases === undefined) {
      parts.push(unsure);
      continue;
    }
    const rule = (one: Case): Formula => {
      if (keyword === "unevaluatedProperties") {
        return f.forKinds(KIND.object, f.atom({ is: "values", name: f.not(one.names), value: rest }));
      }
      const item = one.found !== f.no && scope.reads("contains") ? f.or(rest, one.found) : rest;
      return f.forKinds(KIND.array, f.atom({ is: "items", from: one.upTo, to: Infinity, item }));
    };
    const strict = f.or(...cases.map((one) => f.and(one.when, rule(one))));
    if (cases.length === 1 || !scope.reads("failedBranches")) {
      parts.push(strict);
      continue;
    }
    // Which failed branches such a validator counts is not known: none of them, all of them, or some.
    const lenient = rule(cases.reduce((a, b) => ({ ...both(scope, a, b), when: f.yes })));
    parts.push(f.or(strict, f.and(lenient, unsure)));
  }
  return f.and(...parts);
}

/** All cases for a schema that holds; their conditions exclude each other and leave nothing out. */
function casesOf(scope: Scope, asking: string, depth: number): Case[] | undefined {
  const { f, keywords } = scope;
  if (depth > MAX_DEPTH || keywords.dependencies !== undefined) return undefined;
  const nothing: Case = { when: f.yes, names: f.no, upTo: 0, found: f.no };
  let cases: Case[] | undefined = [own(scope, depth === 0 ? asking : "")];

  const combine = (others: readonly Case[] | undefined): void => {
    if (cases === undefined || others === undefined || cases.length * others.length > MAX_CASES) {
      cases = undefined;
      return;
    }
    cases = cases.flatMap((a) => others.map((b) => both(scope, a, b))).filter((one) => one.when !== f.no);
  };
  const below = (schema: unknown): Case[] | undefined => {
    const inner = scope.inside(schema);
    return inner === undefined ? [nothing] : casesOf(inner, asking, depth + 1);
  };
  const given = (condition: Formula, then: readonly Case[] | undefined): Case[] | undefined =>
    then?.map((one) => ({ ...one, when: f.and(condition, one.when) }));
  /** What the schema adds where `condition` holds, and nothing otherwise. */
  const onlyIf = (condition: Formula, then: readonly Case[] | undefined): Case[] | undefined => {
    const yes = given(condition, then);
    return yes === undefined ? undefined : [...yes, { ...nothing, when: f.not(condition) }];
  };

  for (const [reference, resolve] of [
    [keywords.$ref, scope.resolve],
    [keywords.$dynamicRef, scope.resolveDynamic],
  ] as const) {
    if (typeof reference !== "string") continue;
    const target = resolve(reference);
    const inner = target === undefined ? undefined : scope.at(target);
    combine(inner === undefined ? undefined : casesOf(inner, asking, depth + 1));
  }
  for (const part of listOf(keywords.allOf)) combine(below(part));
  for (const part of [...listOf(keywords.anyOf), ...listOf(keywords.oneOf)]) {
    combine(onlyIf(scope.compile(part), below(part)));
  }
  if (keywords.if !== undefined) {
    const test = scope.compile(keywords.if);
    const yes = product(scope, below(keywords.if), keywords.then === undefined ? [nothing] : below(keywords.then));
    const no = keywords.else === undefined ? [nothing] : below(keywords.else);
    const [whenYes, whenNo] = [given(test, yes), given(f.not(test), no)];
    combine(whenYes === undefined || whenNo === undefined ? undefined : [...whenYes, ...whenNo]);
  }
  if (isObject(keywords.dependentSchemas)) {
    for (const [name, part] of Object.entries(keywords.dependentSchemas)) {
      const present = f.and(f.kind(KIND.object), has(f, name));
      combine(onlyIf(present, below(part)));
    }
  }
  return cases;
}

/** What the keywords of one schema object evaluate by themselves. */
function own(scope: Scope, asking: string): Case {
  const { f, keywords } = scope;
  const allNames =
    keywords.additionalProperties !== undefined ||
    (keywords.unevaluatedProperties !== undefined && asking !== "unevaluatedProperties");
  const allItems =
    keywords.items !== undefined || (keywords.unevaluatedItems !== undefined && asking !== "unevaluatedItems");
  return {
    when: f.yes,
    names: allNames ? f.yes : declaredNames(scope),
    upTo: allItems ? Infinity : listOf(keywords.prefixItems).length,
    found: keywords.contains === undefined ? f.no : scope.compile(keywords.contains),
  };
}

function both({ f }: Scope, a: Case, b: Case): Case {
  return {
    when: f.and(a.when, b.when),
    names: f.or(a.names, b.names),
    upTo: Math.max(a.upTo, b.upTo),
    found: f.or(a.found, b.found),
  };
}

function product(scope: Scope, left: Case[] | undefined, right: Case[] | undefined): Case[] | undefined {
  if (left === undefined || right === undefined || left.length * right.length > MAX_CASES) return undefined;
  return left.flatMap((a) => right.map((b) => both(scope, a, b)));
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
