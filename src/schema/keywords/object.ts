// Keywords for objects. Only own properties count: `toString` is not a property of `{}`.

import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { KeywordCheck } from "../run.js";
import { nearestKeyword, range, valueSummary } from "../words.js";
import { count, type Keyword, type KeywordContext, namedKeyword, names } from "./context.js";

/** Named properties, properties by pattern and all the others: one pass over the keys of the value. */
export const properties: Keyword = (context) => {
  const { schema } = context;
  const known = new Map(
    Object.keys(namedKeyword(context, "properties") ?? {}).map((name) => [name, context.check("properties", name)]),
  );
  const patterns = Object.keys(namedKeyword(context, "patternProperties") ?? {}).map((source) => ({
    matcher: context.matcher(source, "patternProperties"),
    check: context.check("patternProperties", source),
  }));
  const closed = schema.additionalProperties === false;
  const others = schema.additionalProperties === undefined ? undefined : context.check("additionalProperties");
  if (known.size === 0 && patterns.length === 0 && others === undefined) return undefined;
  return (value, at, run, seen) => {
    if (!isJsonObject(value)) return true;
    let ok = true;
    for (const name of Object.keys(value)) {
      const child = value[name] as JsonValue;
      const check = known.get(name);
      let looked = check !== undefined;
      let passed = check === undefined || run.inside(check, child, name, at);
      for (const pattern of patterns) {
        if (!run.matches(pattern.matcher, name)) continue;
        looked = true;
        passed = run.inside(pattern.check, child, name, at) && passed;
      }
      if (!looked && others !== undefined) {
        looked = true;
        if (closed) {
          run.spend(1);
          passed = run.fail({ up: at, key: name }, () => unknownProperty(name, [...known.keys()], value));
        } else passed = run.inside(others, child, name, at);
      }
      if (looked) seen?.properties.add(name);
      if (passed) continue;
      ok = false;
      if (run.done) return false;
    }
    return ok;
  };
};

export function unknownProperty(name: string, known: readonly string[], value: JsonObject) {
  const free = known.filter((other) => !Object.hasOwn(value, other));
  const meant = nearestKeyword(name, free);
  const shown = known.slice(0, 10).join(", ");
  return {
    message: "is not a property of this object",
    expected: known.length === 0 ? "no properties" : `only ${shown}${known.length > 10 ? ", …" : ""}`,
    suggestion: meant === undefined ? `Remove \`${clip(name)}\`` : `Did you mean \`${meant}\`?`,
    weight: 3,
  };
}

export const requiredKeyword: Keyword = (context) => {
  if (context.schema.required === undefined) return undefined;
  const wanted = names(context, "required", context.schema.required);
  if (wanted.length === 0) return undefined;
  return needs(context, wanted);
};

function needs({ schema }: KeywordContext, wanted: readonly string[], because = ""): KeywordCheck {
  return (value, at, run) => {
    if (!isJsonObject(value)) return true;
    run.spend(wanted.length >> 2);
    let ok = true;
    for (const name of wanted) {
      if (Object.hasOwn(value, name)) continue;
      ok = run.fail({ up: at, key: name }, () => missingProperty(schema, name, value, because));
      if (run.done) return false;
    }
    return ok;
  };
}

function missingProperty(schema: JsonObject, name: string, value: JsonObject, because: string) {
  const declared = isJsonObject(schema.properties) ? schema.properties : {};
  const expected = valueSummary(Object.hasOwn(declared, name) ? (declared[name] as JsonObject) : undefined);
  const unknown = Object.keys(value).filter((key) => !Object.hasOwn(declared, key));
  const mistyped = nearestKeyword(name, unknown);
  const what = expected === undefined ? "" : ` (${expected})`;
  return {
    message: `is required${because}`,
    ...(expected === undefined ? {} : { expected }),
    suggestion: mistyped === undefined ? `Add \`${clip(name)}\`${what}` : `Rename \`${mistyped}\` to \`${clip(name)}\``,
    weight: 5,
  };
}

export const minProperties: Keyword = (context) => {
  const limit = count(context, "minProperties");
  return limit === undefined ? undefined : size(context, `at least ${limit}`, (keys) => keys >= limit);
};

export const maxProperties: Keyword = (context) => {
  const limit = count(context, "maxProperties");
  return limit === undefined ? undefined : size(context, `at most ${limit}`, (keys) => keys <= limit);
};

function size({ schema }: KeywordContext, words: string, holds: (keys: number) => boolean): KeywordCheck {
  return (value, at, run) => {
    if (!isJsonObject(value)) return true;
    const keys = Object.keys(value).length;
    run.spend(keys);
    if (holds(keys)) return true;
    const allowed = range(schema.minProperties, schema.maxProperties);
    return run.fail(at, () => ({
      message: `must have ${words} properties, not ${keys}`,
      expected: `${allowed} properties`,
    }));
  };
}

export const propertyNames: Keyword = (context) => {
  if (context.schema.propertyNames === undefined) return undefined;
  const check = context.check("propertyNames");
  return (value, at, run) => {
    if (!isJsonObject(value)) return true;
    let ok = true;
    for (const name of Object.keys(value)) {
      if (run.quietly(() => check(name, at, run, undefined))) continue;
      ok = run.fail({ up: at, key: name }, () => ({
        message: "has a name that is not allowed",
        expected: `names that are ${valueSummary(context.schema.propertyNames as JsonObject) ?? "allowed by propertyNames"}`,
      }));
      if (run.done) return false;
    }
    return ok;
  };
};

export const dependentRequired: Keyword = (context) => {
  const rules = Object.entries(namedKeyword(context, "dependentRequired") ?? {}).map(([trigger, wanted]) =>
    when(trigger, needs(context, names(context, "dependentRequired", wanted), ` when \`${clip(trigger)}\` is given`)),
  );
  return rules.length === 0 ? undefined : together(rules);
};

export const dependentSchemas: Keyword = (context) => {
  const rules = Object.keys(namedKeyword(context, "dependentSchemas") ?? {}).map((trigger) =>
    when(trigger, context.check("dependentSchemas", trigger)),
  );
  return rules.length === 0 ? undefined : together(rules);
};

/** Draft-07's one keyword for both. */
export const dependencies: Keyword = (context) => {
  const rules = Object.entries(namedKeyword(context, "dependencies") ?? {}).map(([trigger, rule]) => {
    if (!Array.isArray(rule)) return when(trigger, context.check("dependencies", trigger));
    return when(trigger, needs(context, names(context, "dependencies", rule), ` when \`${clip(trigger)}\` is given`));
  });
  return rules.length === 0 ? undefined : together(rules);
};

function when(trigger: string, rule: KeywordCheck): KeywordCheck {
  return (value, at, run, seen) => !isJsonObject(value) || !Object.hasOwn(value, trigger) || rule(value, at, run, seen);
}

function together(rules: readonly KeywordCheck[]): KeywordCheck {
  return (value, at, run, seen) => {
    let ok = true;
    for (const rule of rules) {
      run.spend(1);
      if (rule(value, at, run, seen)) continue;
      ok = false;
      if (run.done) return false;
    }
    return ok;
  };
}

function clip(name: string): string {
  return name.length > 40 ? `${name.slice(0, 40)}…` : name;
}
