import { LatticeError } from "./errors.js";
import { isObject, type SchemaValue } from "./inclusion/document.js";
import { type Inclusion, type InclusionOptions, includesType } from "./inclusion/includes.js";
import { typeOf, type ValueType } from "./inclusion/type.js";

/** One tool: its name, what it may be called with, and what it may answer. */
export interface Capability {
  readonly name: string;
  readonly arguments: ValueType;
  readonly result: ValueType;
}

/** Capabilities by name; "all" is every tool that could exist, with any arguments. */
export type CapabilitySet = "all" | ReadonlyMap<string, Capability>;

export const TOP: CapabilitySet = "all";
export const BOTTOM: CapabilitySet = new Map();

/** Arguments are a JSON object where a tool says nothing else: the protocol sends no other kind. */
const ANY_ARGUMENTS: SchemaValue = { type: "object" };
const MAX_TOOLS = 100_000;

/** Caps(S): the capability set of a server, from its answer to `tools/list`. */
export function capabilitiesOf(manifest: unknown): CapabilitySet {
  return capabilitiesFrom(toolsIn(manifest), (error) => {
    throw error;
  });
}

export function toolsIn(manifest: unknown): readonly unknown[] {
  const tools = isObject(manifest) ? manifest.tools : undefined;
  if (Array.isArray(tools)) return tools;
  throw new LatticeError("LATTICE_MANIFEST", "a manifest must be an object with a list `tools`, as tools/list answers");
}

/** The capabilities of those tools that are as they should be; `problem` hears of the others. */
export function capabilitiesFrom(
  tools: readonly unknown[],
  problem: (error: LatticeError, tool: number) => void,
): ReadonlyMap<string, Capability> {
  if (tools.length > MAX_TOOLS) {
    throw new LatticeError(
      "LATTICE_TOO_LARGE",
      `a manifest may list at most ${MAX_TOOLS} tools, this one has ${tools.length}`,
    );
  }
  const set = new Map<string, Capability>();
  for (const [i, tool] of tools.entries()) {
    try {
      const capability = capabilityOf(tool, i);
      if (set.has(capability.name)) {
        throw new LatticeError(
          "LATTICE_DUPLICATE",
          `the manifest lists the tool \`${capability.name}\` twice; names must be unique`,
        );
      }
      set.set(capability.name, capability);
    } catch (error) {
      if (!(error instanceof LatticeError)) throw error;
      problem(error, i);
    }
  }
  return set;
}

function capabilityOf(tool: unknown, i: number): Capability {
  if (!isObject(tool) || typeof tool.name !== "string" || tool.name === "") {
    throw new LatticeError("LATTICE_MANIFEST", `tools[${i}] of the manifest has no name`);
  }
  return {
    name: tool.name,
    arguments: typeOf(schemaAt(tool, "inputSchema") ?? ANY_ARGUMENTS),
    result: typeOf(schemaAt(tool, "outputSchema") ?? true),
  };
}

function schemaAt(tool: { readonly [key: string]: unknown }, key: string): SchemaValue | undefined {
  const schema = tool[key];
  if (schema === undefined || typeof schema === "boolean" || isObject(schema)) return schema;
  throw new LatticeError(
    "LATTICE_MANIFEST",
    `\`${key}\` of the tool \`${String(tool.name)}\` is not a schema: expected an object`,
  );
}

/** What both sets permit: names in both, arguments and results in both. */
export function meet(a: CapabilitySet, b: CapabilitySet, options: InclusionOptions = {}): CapabilitySet {
  if (a === "all") return b;
  if (b === "all") return a;
  const set = new Map<string, Capability>();
  for (const [name, mine] of a) {
    const theirs = b.get(name);
    if (theirs === undefined) continue;
    set.set(name, {
      name,
      arguments: meetTypes(mine.arguments, theirs.arguments, options),
      result: meetTypes(mine.result, theirs.result, options),
    });
  }
  return set;
}

/** What either set permits. This is composition of agents, never delegation. */
export function join(a: CapabilitySet, b: CapabilitySet, options: InclusionOptions = {}): CapabilitySet {
  if (a === "all" || b === "all") return "all";
  const set = new Map(a);
  for (const [name, theirs] of b) {
    const mine = a.get(name);
    set.set(
      name,
      mine === undefined
        ? theirs
        : {
            name,
            arguments: joinTypes(mine.arguments, theirs.arguments, options),
            result: joinTypes(mine.result, theirs.result, options),
          },
    );
  }
  return set;
}

/** Effective(O → S) = Caps(S) ∩ Scope(O): an agent cannot grant what it does not hold. */
export function effective(
  capsOfSubagent: CapabilitySet,
  scopeOfOrchestrator: CapabilitySet,
  options: InclusionOptions = {},
) {
  return meet(capsOfSubagent, scopeOfOrchestrator, options);
}

/** The intersection, kept as both parts unless one is proved to lie within the other. */
export function meetTypes(a: ValueType, b: ValueType, options: InclusionOptions = {}): ValueType {
  if (includesType(a, b, withoutWitness(options)).answer === "yes") return a;
  if (includesType(b, a, withoutWitness(options)).answer === "yes") return b;
  return { is: "all", of: [...partsOf(a, "all"), ...partsOf(b, "all")] };
}

/** The union, kept as both parts unless one is proved to lie within the other. */
export function joinTypes(a: ValueType, b: ValueType, options: InclusionOptions = {}): ValueType {
  if (includesType(a, b, withoutWitness(options)).answer === "yes") return b;
  if (includesType(b, a, withoutWitness(options)).answer === "yes") return a;
  return { is: "any", of: [...partsOf(a, "any"), ...partsOf(b, "any")] };
}

/** Only a proof simplifies; a counterexample would be found for nothing. */
function withoutWitness(options: InclusionOptions): InclusionOptions {
  return { ...options, limits: { maxCandidates: 1, ...options.limits } };
}

function partsOf(type: ValueType, is: "all" | "any"): readonly ValueType[] {
  return type.is === is ? type.of : [type];
}

/** The answer of an order; where it is not yes, the first tool and part that stand against it. */
export type Comparison =
  | { readonly answer: "yes" }
  | {
      readonly answer: "no" | "unknown";
      readonly tool: string;
      readonly part: "name" | "arguments" | "result";
      /** A value that one side accepts and the other rejects, when a part is to blame. */
      readonly witness?: unknown;
      readonly why: string;
    };

/**
 * Authority: `less` permits nothing that `more` does not permit. Covariant in the arguments: an agent with fewer
 * arguments, or fewer results, has less. Delegation and allow lists use this order.
 */
export function compareAuthority(less: CapabilitySet, more: CapabilitySet, options: InclusionOptions = {}): Comparison {
  return compare(less, more, (a, b) => [
    ["arguments", includesType(a.arguments, b.arguments, options)],
    ["result", includesType(a.result, b.result, options)],
  ]);
}

/**
 * Substitutability: a server offering `offered` can stand in where `wanted` is expected. Contravariant in the arguments
 * and covariant in the results: it takes at least what was taken, and answers no more than was answered.
 */
export function compareSubstitutability(
  offered: CapabilitySet,
  wanted: CapabilitySet,
  options: InclusionOptions = {},
): Comparison {
  return compare(wanted, offered, (w, o) => [
    ["arguments", includesType(w.arguments, o.arguments, options)],
    ["result", includesType(o.result, w.result, options)],
  ]);
}

/** Unknown is treated as no. */
export function hasAtMostAuthority(less: CapabilitySet, more: CapabilitySet, options: InclusionOptions = {}): boolean {
  return compareAuthority(less, more, options).answer === "yes";
}

export function canSubstitute(offered: CapabilitySet, wanted: CapabilitySet, options: InclusionOptions = {}): boolean {
  return compareSubstitutability(offered, wanted, options).answer === "yes";
}

type Parts = (a: Capability, b: Capability) => readonly (readonly ["arguments" | "result", Inclusion])[];

function compare(inner: CapabilitySet, outer: CapabilitySet, parts: Parts): Comparison {
  if (outer === "all") return { answer: "yes" };
  if (inner === "all") {
    return { answer: "no", tool: "*", part: "name", why: "one side is every tool, the other a list of tools" };
  }
  let doubt: Comparison | undefined;
  for (const [name, mine] of inner) {
    const theirs = outer.get(name);
    if (theirs === undefined)
      return { answer: "no", tool: name, part: "name", why: `the tool \`${name}\` is on one side only` };
    for (const [part, inclusion] of parts(mine, theirs)) {
      if (inclusion.answer === "no") {
        const why = `the ${part} of \`${name}\` differ by the value ${JSON.stringify(inclusion.witness)}`;
        return { answer: "no", tool: name, part, witness: inclusion.witness, why };
      }
      if (inclusion.answer === "unknown") doubt ??= { answer: "unknown", tool: name, part, why: inclusion.why };
    }
  }
  return doubt ?? { answer: "yes" };
}
