// Loads koffi, the library for system calls that Node does not offer. Only its prebuilt packages are dependencies (one per
// platform and architecture, each with its glibc and musl build): the package `koffi` itself has an install script, which
// compiles from source where it finds no build. Without a prebuilt package callers fall back, and report it.

import { createRequire } from "node:module";

type Call = (...args: unknown[]) => number;
export interface Koffi {
  /** Null for what the process has loaded already. */
  load(path: string | null): { func(name: string, result: string, args: string[]): Call };
  errno(): number;
  address(value: Buffer): bigint;
}

let koffi: Koffi | null | undefined;

export function loadKoffi(): Koffi | undefined {
  if (koffi === undefined) {
    try {
      koffi = createRequire(import.meta.url)(`@koromix/koffi-${process.platform}-${process.arch}`) as Koffi;
    } catch {
      koffi = null;
    }
  }
  return koffi ?? undefined;
}
