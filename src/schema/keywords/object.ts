// Keywords for objects. Only own properties count: `toString` is not a property of `{}`.

import { isJsonObject, type JsonObject, type JsonValue, nearest } from "../../mcp/index.js";
import { type KeywordCheck, STEPS_PER_NOTE } from "../run.js";
import { valueSummary } from "../words.js";
import { type Keyword, type KeywordContext, namedKeyword, names, sizeKeywords } from "./context.js";

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
    const keys = run.keysOf(value);
    run.spend(keys.length * (seen === undefined ? 1 : STEPS_PER_NOTE));
    for (const name of keys) {
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

/** Names among which the one that was meant is looked for. */
const MAX_MEANT = 1_000;

function unknownProperty(name: string, known: readonly string[], value: JsonObject) {
  const free = known.slice(0, MAX_MEANT).filter((other) => !Object.hasOwn(value, other));
  const meant = nearest(name, free);
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
    run.spend(wanted.length >> 1);
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
  const unknown = Object.keys(value)
    .slice(0, MAX_MEANT)
    .filter((key) => !Object.hasOwn(declared, key));
  const mistyped = nearest(name, unknown);
  const what = expected === undefined ? "" : ` (${expected})`;
  return {
    message: `is required${because}`,
    ...(expected === undefined ? {} : { expected }),
    suggestion: mistyped === undefined ? `Add \`${clip(name)}\`${what}` : `Rename \`${mistyped}\` to \`${clip(name)}\``,
    weight: 5,
  };
}

export const [minProperties, maxProperties] = sizeKeywords(
  ["minProperties", "maxProperties", "properties"],
  (value, run) => {
    if (!isJsonObject(value)) return undefined;
    return run.keysOf(value).length;
  },
);

export const propertyNames: Keyword = (context) => {
  if (context.schema.propertyNames === undefined) return undefined;
  const check = context.check("propertyNames");
  return (value, at, run) => {
    if (!isJsonObject(value)) return true;
    let ok = true;
    for (const name of run.keysOf(value)) {
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

/** Runs last, on what the other keywords noted. */
export const unevaluatedProperties: Keyword = (context) => {
  if (context.schema.unevaluatedProperties === undefined) return undefined;
  const closed = context.schema.unevaluatedProperties === false;
  const check = context.check("unevaluatedProperties");
  return (value, at, run, seen) => {
    if (!isJsonObject(value) || seen === undefined || seen.allProperties) return true;
    let ok = true;
    for (const name of run.keysOf(value)) {
      if (seen.properties.has(name)) continue;
      const passed = closed
        ? run.fail({ up: at, key: name }, () => unknownProperty(name, [], value))
        : run.inside(check, value[name] as JsonValue, name, at);
      if (passed) continue;
      ok = false;
      if (run.done) return false;
    }
    seen.allProperties = true;
    return ok;
  };
};
