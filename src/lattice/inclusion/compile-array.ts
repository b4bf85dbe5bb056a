import type { Scope } from "./compile.js";
import { eachKeyword, isCount } from "./compile-scalar.js";
import { type Formula, KIND } from "./formula.js";

export function arrayKeywords(scope: Scope): Formula {
  const { f, keywords, place } = scope;
  const modern = place.document.dialect === "2020-12";
  const prefixKeyword = modern ? keywords.prefixItems : keywords.items;
  const prefix = Array.isArray(prefixKeyword) ? prefixKeyword : [];
  const every = (from: number, schema: unknown): Formula =>
    f.atom({ is: "items", from, to: Infinity, item: scope.compile(schema) });
  const positions = (): Formula =>
    f.and(...prefix.map((part, i) => f.atom({ is: "items", from: i, to: i + 1, item: scope.compile(part) })));

  return eachKeyword(scope, KIND.array, {
    ...(modern
      ? {
          prefixItems: (value) => (Array.isArray(value) ? positions() : undefined),
          items: (value) => (Array.isArray(value) ? undefined : every(prefix.length, value)),
        }
      : {
          items: (value) => (Array.isArray(value) ? positions() : every(0, value)),
          // Without a list of items there is nothing that could be additional.
          additionalItems: (value) => (Array.isArray(keywords.items) ? every(prefix.length, value) : f.yes),
        }),
    contains: (value) => {
      const rule = contains(scope, value, modern);
      if (rule === undefined || rule === f.yes || prefix.length === 0 || !scope.reads("emptyContains")) return rule;
      return f.or(f.atom({ is: "size", least: 1 }, false), rule);
    },
    minItems: (value) => (isCount(value) ? f.atom({ is: "size", least: value }) : undefined),
    maxItems: (value) => (isCount(value) ? f.atom({ is: "size", least: value + 1 }, false) : undefined),
    uniqueItems: (value) => (typeof value === "boolean" ? (value ? f.atom({ is: "unique" }) : f.yes) : undefined),
  });
}

function contains(scope: Scope, schema: unknown, modern: boolean): Formula | undefined {
  const { f, keywords } = scope;
  const least = modern ? (keywords.minContains ?? 1) : 1;
  const most = modern ? keywords.maxContains : undefined;
  if (!isCount(least) || (most !== undefined && !isCount(most))) return undefined;
  const item = scope.compile(schema);
  const enough = f.atom({ is: "count", least, item });
  return most === undefined ? enough : f.and(enough, f.atom({ is: "count", least: most + 1, item }, false));
}
