// What a curated profile is: the tool's command line read by its own rules, so that an option which would run programs,
// write files or read a hostile config is refused by name and the rest is put together again unambiguously.

import type { ProfileName } from "../policy/document.js";

export interface Arranged {
  /** The complete arguments, safe options first. */
  readonly argv: readonly string[];
  /** Arguments that name files: each must lie inside a root. */
  readonly paths: readonly string[];
}

export interface ArgumentProblem {
  /** Which of the caller's arguments. */
  readonly index: number;
  readonly problem: string;
}

export interface Profile {
  readonly name: ProfileName;
  /** Variables with fixed values; a caller can never set them. */
  readonly env: Readonly<Record<string, string>>;
  /** Builds start programs that lie in the roots. */
  readonly execFromRoots: boolean;
  /** It only looks: none of the policy's directories is writable to it, nor to a program that it starts. */
  readonly readOnly: boolean;
  /** Why it cannot be run with `sandbox: off`: what reading arguments does not make harmless. */
  readonly needsSandbox: string | undefined;
  /** Programs that reserve far more address space than they use cannot live under an address-space limit. */
  readonly reservesAddressSpace: boolean;
  /** Says why this build of the program cannot be made safe, if so. */
  checkExecutable(realPath: string): string | undefined;
  arrange(args: readonly string[]): Arranged | ArgumentProblem;
  /** Asked of the program itself first, in the same sandbox: settings that name programs, to be overridden. */
  readonly settings?: {
    /** The arguments that list them, from those of the call. */
    list(argv: readonly string[]): readonly string[];
    /** Settings of git, each with the value that switches it off, from what was printed. */
    off(printed: string): readonly (readonly [key: string, value: string])[];
  };
}

export function isProblem(value: Arranged | ArgumentProblem): value is ArgumentProblem {
  return "problem" in value;
}
