import type { Scope } from "./compile.js";
import { isObject } from "./document.js";
import { ANYTHING, type Formula, type Formulas, KIND, NUMBER } from "./formula.js";

const TYPES: Record<string, number> = {
  null: KIND.null,
  boolean: KIND.true | KIND.false,
  integer: KIND.integer,
  number: NUMBER,
  string: KIND.string,
  array: KIND.array,
  object: KIND.object,
};

export function typeKeyword({ f, keywords, opaque }: Scope): Formula {
  const { type } = keywords;
  if (type === undefined) return f.yes;
  const names = Array.isArray(type) ? type : [type];
  const kinds = names.map((name) => (typeof name === "string" && Object.hasOwn(TYPES, name) ? TYPES[name] : undefined));
  if (kinds.includes(undefined)) return opaque(`type ${JSON.stringify(type)}`);
  return f.kind(kinds.reduce<number>((all, kind) => all | (kind ?? 0), 0));
}

/** One of these values; scalars of one kind become one atom, however long the list. */
export function oneOfValues(f: Formulas, values: readonly unknown[]): Formula {
  const numbers = values.filter((value) => typeof value === "number").map((value) => (value === 0 ? 0 : value));
  const strings = values.filter((value) => typeof value === "string");
  const rest = values.filter((value) => typeof value !== "number" && typeof value !== "string");
  const integers = numbers.filter(Number.isInteger);
  const fractions = numbers.filter((value) => !Number.isInteger(value));
  const among = (kind: number, of: readonly number[]): Formula =>
    f.and(f.kind(kind), f.atom({ is: "oneOfNumbers", values: [...new Set(of)].toSorted((a, b) => a - b) }));
  return f.or(
    among(KIND.integer, integers),
    among(KIND.fraction, fractions),
    f.and(f.kind(KIND.string), namedFormula(f, strings)),
    ...rest.map((value) => constantFormula(f, value)),
  );
}

/** Exactly this value, written out by its parts so that its negation is exact too. */
export function constantFormula(f: Formulas, value: unknown): Formula {
  if (value === null) return f.kind(KIND.null);
  if (typeof value === "boolean") return f.kind(value ? KIND.true : KIND.false);
  if (typeof value === "number" || typeof value === "string") return oneOfValues(f, [value]);
  if (Array.isArray(value)) {
    return f.and(
      f.kind(KIND.array),
      f.atom({ is: "size", least: value.length }),
      f.atom({ is: "size", least: value.length + 1 }, false),
      ...value.map((item, i) => f.atom({ is: "items", from: i, to: i + 1, item: constantFormula(f, item) })),
    );
  }
  if (typeof value === "object") {
    const names = Object.keys(value).toSorted();
    return f.and(
      f.kind(KIND.object),
      closedTo(f, names),
      ...names.map((name) => has(f, name)),
      ...Object.entries(value).map(([name, inner]) =>
        f.atom({ is: "values", name: namedFormula(f, [name]), value: constantFormula(f, inner) }),
      ),
    );
  }
  return f.atom({ is: "opaque", key: `constant ${String(value)}` });
}

export function namedFormula(f: Formulas, names: readonly string[]): Formula {
  return f.atom({ is: "oneOfStrings", values: [...new Set(names)].toSorted() });
}

export function has(f: Formulas, name: string): Formula {
  return f.atom({ is: "values", name: namedFormula(f, [name]), value: f.no }, false);
}

function closedTo(f: Formulas, names: readonly string[]): Formula {
  return f.atom({ is: "values", name: f.not(namedFormula(f, names)), value: f.no });
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}

/** One part for each keyword that is present: `make` says what it means, or undefined when its value makes no sense. */
function eachKeyword(
  scope: Scope,
  kinds: number,
  meanings: { readonly [keyword: string]: (value: unknown) => Formula | undefined },
): Formula {
  const { f, keywords, opaque } = scope;
  const parts = Object.entries(meanings)
    .filter(([keyword]) => keywords[keyword] !== undefined)
    .map(([keyword, make]) => make(keywords[keyword]) ?? opaque(`${keyword} ${JSON.stringify(keywords[keyword])}`));
  return kinds === ANYTHING ? f.and(...parts) : f.forKinds(kinds, f.and(...parts));
}

export function numberKeywords(scope: Scope): Formula {
  const { f } = scope;
  const bound = (make: (than: number) => Formula) => (value: unknown) =>
    typeof value === "number" && Number.isFinite(value) ? make(value) : undefined;
  return eachKeyword(scope, NUMBER, {
    minimum: bound((than) => f.atom({ is: "atLeast", than })),
    exclusiveMinimum: bound((than) => f.atom({ is: "above", than })),
    maximum: bound((than) => f.atom({ is: "above", than }, false)),
    exclusiveMaximum: bound((than) => f.atom({ is: "atLeast", than }, false)),
    multipleOf: bound((of) => (of > 0 ? f.atom({ is: "multiple", of }) : scope.opaque(`multipleOf ${of}`))),
  });
}

export function stringKeywords(scope: Scope): Formula {
  const { f, options } = scope;
  return eachKeyword(scope, KIND.string, {
    minLength: (value) => (isCount(value) ? f.atom({ is: "length", least: value }) : undefined),
    maxLength: (value) => (isCount(value) ? f.atom({ is: "length", least: value + 1 }, false) : undefined),
    pattern: (value) => (typeof value === "string" ? f.atom({ is: "pattern", source: value }) : undefined),
    format: (value) => {
      if (typeof value !== "string") return undefined;
      return options.ignoresFormat(value) ? f.yes : f.atom({ is: "format", name: value });
    },
  });
}

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
