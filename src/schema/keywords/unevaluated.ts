// Keywords for what no other keyword has looked at. They run last, on what the others noted.

import { isJsonObject, type JsonValue } from "../../mcp/index.js";
import type { Keyword } from "./context.js";
import { unknownProperty } from "./object.js";

export const unevaluatedProperties: Keyword = (context) => {
  if (context.schema.unevaluatedProperties === undefined) return undefined;
  const closed = context.schema.unevaluatedProperties === false;
  const check = context.check("unevaluatedProperties");
  return (value, at, run, seen) => {
    if (!isJsonObject(value) || seen === undefined || seen.allProperties) return true;
    let ok = true;
    for (const name of Object.keys(value)) {
      run.spend(1);
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

export const unevaluatedItems: Keyword = (context) => {
  if (context.schema.unevaluatedItems === undefined) return undefined;
  const check = context.check("unevaluatedItems");
  return (value, at, run, seen) => {
    if (!Array.isArray(value) || seen === undefined || seen.allItems) return true;
    let ok = true;
    for (const [index, item] of value.entries()) {
      run.spend(1);
      if (index < seen.items || seen.indexes.has(index) || run.inside(check, item, index, at)) continue;
      ok = false;
      if (run.done) return false;
    }
    seen.allItems = true;
    return ok;
  };
};
