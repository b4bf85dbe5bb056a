// Cedar itself, as WebAssembly. It is loaded at the first use (about 30 ms), and replaced when a call traps: an
// instance that ran out of stack answers nothing but traps from then on.

import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";
import type { DetailedError, PolicyJson, SchemaJson } from "@cedar-policy/cedar-wasm/nodejs";

type Cedar = typeof import("@cedar-policy/cedar-wasm/nodejs");
export type CedarSchema = SchemaJson<string>;
export type { DetailedError, PolicyJson };

/**
 * Cedar reads policies at the start and at changes: a few calls of code that is large. To optimize that code costs five
 * times what the calls themselves cost, so it is compiled by the baseline compiler only. V8 compiles a function at its
 * first call, so the flags hold during each call, and other WebAssembly (the HTTP parser) is compiled as usual.
 * The names of flags belong to a version of V8; an unknown one is reported on stderr, so other versions keep theirs.
 */
const hasFlags = process.versions.v8.startsWith("11.3.");
const BASELINE = "--no-wasm-tier-up --no-wasm-dynamic-tiering";
const OPTIMIZED = "--wasm-tier-up --wasm-dynamic-tiering";
// V8 11.3 aborted test processes after many calls of Cedar: "unreachable code" in
// `Deoptimizer::DoComputeBuiltinContinuation`, where calls of WebAssembly that are inlined into JavaScript are continued.
if (hasFlags) setFlagsFromString("--no-turbo-inline-js-wasm-calls");

const require = createRequire(import.meta.url);
let instance: Cedar | undefined;
let generation = 0;

export class CedarTrapped extends Error {
  constructor() {
    super("Cedar ran out of stack; the policy is nested too deeply");
    this.name = "CedarTrapped";
  }
}

/** Counts the instances so far: what was prepared in an older one is gone. */
export function cedarGeneration(): number {
  return generation;
}

export function withCedar<T>(use: (cedar: Cedar) => T): T {
  if (hasFlags) setFlagsFromString(BASELINE);
  try {
    instance ??= load();
    return use(instance);
  } catch (error) {
    // A trap, or JavaScript's own stack running out below it.
    if (!(error instanceof Error) || (error.name !== "RuntimeError" && error.name !== "RangeError")) throw error;
    instance = undefined;
    throw new CedarTrapped();
  } finally {
    if (hasFlags) setFlagsFromString(OPTIMIZED);
  }
}

function load(): Cedar {
  const path = require.resolve("@cedar-policy/cedar-wasm/nodejs");
  delete require.cache[path];
  generation++;
  return require(path) as Cedar;
}
