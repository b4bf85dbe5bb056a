// Cedar itself, as WebAssembly. It is loaded at the first use (about 30 ms), and replaced when a call traps: an
// instance that ran out of stack answers nothing but traps from then on.

import { createRequire } from "node:module";
import type { DetailedError, PolicyJson, SchemaJson } from "@cedar-policy/cedar-wasm/nodejs";

type Cedar = typeof import("@cedar-policy/cedar-wasm/nodejs");
export type CedarSchema = SchemaJson<string>;
export type { DetailedError, PolicyJson };

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
  instance ??= load();
  try {
    return use(instance);
  } catch (error) {
    // A trap, or JavaScript's own stack running out below it.
    if (!(error instanceof Error) || (error.name !== "RuntimeError" && error.name !== "RangeError")) throw error;
    instance = undefined;
    throw new CedarTrapped();
  }
}

function load(): Cedar {
  const path = require.resolve("@cedar-policy/cedar-wasm/nodejs");
  delete require.cache[path];
  generation++;
  return require(path) as Cedar;
}
