import type { Scope } from "./compile.js";
import { eachKeyword, has, isCount, namedFormula } from "./compile-scalar.js";
import { isObject } from "./document.js";
import { type Formula, KIND } from "./formula.js";

export function objectKeywords(scope: Scope): Formula {
  const { f, place } = scope;
  const modern = place.document.dialect === "2020-12";
  return eachKeyword(scope, KIND.object, {
    properties: (value) => (isObject(value) ? f.and(...properties(scope, value)) : undefined),
    patternProperties: (value) => (isObject(value) ? f.and(...patterns(scope, value)) : undefined),
    additionalProperties: (value) =>
      f.atom({ is: "values", name: f.not(declaredNames(scope)), value: scope.compile(value) }),
    propertyNames: (value) => f.atom({ is: "values", name: f.not(scope.compile(value)), value: f.no }),
    required: (value) => (isNames(value) ? f.and(...value.map((name) => has(f, name))) : undefined),
    minProperties: (value) => (isCount(value) ? f.atom({ is: "members", least: value }) : undefined),
    maxProperties: (value) => (isCount(value) ? f.atom({ is: "members", least: value + 1 }, false) : undefined),
    dependencies: (value) => (modern && !scope.reads("dependencies") ? f.yes : dependencies(scope, value)),
    ...(modern
      ? {
          dependentRequired: (value: unknown) => dependencies(scope, value),
          dependentSchemas: (value: unknown) => dependencies(scope, value),
        }
      : {}),
  });
}

function isNames(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((name) => typeof name === "string");
}

function properties({ f, compile }: Scope, value: { readonly [name: string]: unknown }): Formula[] {
  return Object.entries(value).map(([name, schema]) =>
    f.atom({ is: "values", name: namedFormula(f, [name]), value: compile(schema) }),
  );
}

function patterns({ f, compile }: Scope, value: { readonly [source: string]: unknown }): Formula[] {
  return Object.entries(value).map(([source, schema]) =>
    f.atom({ is: "values", name: f.atom({ is: "pattern", source }), value: compile(schema) }),
  );
}

/** The names that `properties` and `patternProperties` beside it speak of. */
export function declaredNames({ f, keywords }: Scope): Formula {
  const names = isObject(keywords.properties) ? Object.keys(keywords.properties) : [];
  const sources = isObject(keywords.patternProperties) ? Object.keys(keywords.patternProperties) : [];
  return f.or(namedFormula(f, names), ...sources.map((source) => f.atom({ is: "pattern", source })));
}

function dependencies(scope: Scope, value: unknown): Formula | undefined {
  if (!isObject(value)) return undefined;
  const { f } = scope;
  const rules = Object.entries(value).map(([name, then]) => {
    const needed = isNames(then) ? f.and(...then.map((other) => has(f, other))) : scope.compile(then);
    return f.or(f.not(has(f, name)), needed);
  });
  return f.and(...rules);
}
