// What has no place in a message, found before it is sent and named by its path. A strict reader refuses such a text
// before it knows which request it was, and a lenient one would read something else than was meant: `JSON.stringify`
// makes null of NaN without a word.

export interface Unsendable {
  /** JSON Pointer; "" is the value itself. */
  readonly path: string;
  readonly reason: string;
}

/** Bounded by `maxDepth`, so a value that holds itself is found, too. */
export function unsendable(value: unknown, maxDepth: number): Unsendable | undefined {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() ? undefined : LONE_SURROGATE;
    case "number":
      return numberProblem(value);
    case "boolean":
      return undefined;
    case "object":
      if (value === null) return undefined;
      if (maxDepth <= 0) return here("is nested too deeply");
      return Array.isArray(value) ? inItems(value, maxDepth) : inMembers(value, maxDepth);
    default:
      return here(`a value of type ${typeof value} has no JSON form`);
  }
}

const LONE_SURROGATE = here("the text holds a lone surrogate, which has no UTF-8 form");

function numberProblem(value: number): Unsendable | undefined {
  if (Number.isSafeInteger(value)) return undefined;
  if (!Number.isFinite(value)) return here(`${value} has no JSON form`);
  // From 1e21 on numbers are written with an exponent, which promises no digits.
  if (!Number.isInteger(value) || Math.abs(value) >= 1e21) return undefined;
  return here(`the integer ${value} is beyond ±(2^53−1) and would lose digits; send it as a string`);
}

function inItems(items: readonly unknown[], maxDepth: number): Unsendable | undefined {
  for (let at = 0; at < items.length; at++) {
    const found = unsendable(items[at], maxDepth - 1);
    if (found) return under(String(at), found);
  }
  return undefined;
}

function inMembers(object: object, maxDepth: number): Unsendable | undefined {
  const { toJSON } = object as { toJSON?: unknown };
  if (typeof toJSON === "function") return unsendable(toJSON.call(object), maxDepth - 1);
  for (const key of Object.keys(object)) {
    if (!key.isWellFormed()) return under(key.toWellFormed(), LONE_SURROGATE);
    const member = (object as Record<string, unknown>)[key];
    // A member that is undefined is left out, as everyone expects.
    const found = member === undefined ? undefined : unsendable(member, maxDepth - 1);
    if (found) return under(key, found);
  }
  return undefined;
}

function here(reason: string): Unsendable {
  return { path: "", reason };
}

function under(key: string, { path, reason }: Unsendable): Unsendable {
  return { path: `/${key.replaceAll("~", "~0").replaceAll("/", "~1")}${path}`, reason };
}
