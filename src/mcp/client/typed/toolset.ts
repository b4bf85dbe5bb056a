// Types are gone at run time, so the names are written down once more, where the compiler checks them.

import type { Name, ToolMap, Toolset } from "./types.js";

/** Tools at most in one set; more than that no compiler checks in reasonable time, so sets are made per server. */
const MAX_TOOLS = 20_000;

type Known<Tool, Tools> = Tool extends keyof Tools ? Tool : { "not a tool of this map": Tool };
type Listed<Tool, Tools> = Tool extends Tools ? Tool : { "not among the names of this set": Tool };

type Chosen<Tools, Tool extends keyof Tools, Open extends string> = [Open] extends [never]
  ? [keyof Tools] extends [Tool]
    ? Tools
    : Pick<Tools, Tool>
  : WithoutGuardrail<Tools, Tool, Open>;

/** `Tool` of `Tools`, where those in `Open` need no guardrail. Named, so that messages stay short. */
type WithoutGuardrail<Tools, Tool extends keyof Tools, Open extends string> = {
  [Each in Tool]: Each extends Open ? Tools[Each] & { noGuardrailRequired: true } : Tools[Each];
};

/**
 * `toolset<Tools>()({ names: ["fs.read", "fs.write"], noGuardrailRequired: ["fs.read"] })`
 * In two steps, because the compiler either takes all type arguments from the caller or none.
 */
export function toolset<Tools extends ToolMap<Tools>>() {
  return <const Tool extends string = Name<Tools>, const Open extends string = never>(declared: {
    names: readonly (Name<Tools> | Known<Tool, Tools>)[];
    /** Tools that run without a guardrail: said by their author or, of a third party's tools, by you, the operator. */
    noGuardrailRequired?: readonly Listed<Open, NoInfer<Tool>>[];
  }): Toolset<Chosen<Tools, Tool & keyof Tools, Open>> => {
    const names = checkedNames("names", declared.names);
    const open = checkedNames("noGuardrailRequired", declared.noGuardrailRequired ?? []);
    for (const name of open) {
      if (!names.has(name)) throw new TypeError(`noGuardrailRequired: \`${name}\` is not among the names of this set`);
    }
    const set = { names: Object.freeze([...names]), noGuardrailRequired: Object.freeze([...open]) };
    made.add(set);
    return Object.freeze(set) as unknown as Toolset<Chosen<Tools, Tool & keyof Tools, Open>>;
  };
}

const made = new WeakSet<object>();

/** Whether `toolset` made it; an object that only looks like one was never checked. */
export function isToolset(value: unknown): value is Toolset<Record<string, unknown>> {
  return typeof value === "object" && value !== null && made.has(value);
}

function checkedNames(field: string, names: unknown): Set<string> {
  if (!Array.isArray(names)) throw new TypeError(`${field}: give an array of tool names`);
  if (names.length > MAX_TOOLS) throw new RangeError(`${field}: ${names.length} tools, and ${MAX_TOOLS} is the limit`);
  for (const name of names) {
    if (typeof name !== "string" || name === "") throw new TypeError(`${field}: \`${String(name)}\` is no tool name`);
  }
  return new Set(names as string[]);
}
