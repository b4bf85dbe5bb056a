import { buildContract, type ContractOptions } from "./contract.js";
import { CodegenError, type Report } from "./report.js";
import { csharp } from "./targets/csharp.js";
import { rust } from "./targets/rust.js";
import type { GeneratedFile, Output, Runtime, Target } from "./targets/target.js";
import { typescript } from "./targets/typescript.js";

const TARGETS: Readonly<Record<string, Target>> = { ts: typescript, rust, csharp };

export const LANGUAGES: readonly string[] = Object.keys(TARGETS);

export interface Generated {
  readonly files: readonly GeneratedFile[];
  /** Everything in the schemas that the code does not honour exactly. */
  readonly reports: readonly Report[];
  readonly fields: Output["fields"];
  readonly tools: number;
}

function targetFor(language: string): Target {
  const target = Object.hasOwn(TARGETS, language) ? TARGETS[language] : undefined;
  if (target !== undefined) return target;
  throw new CodegenError("CODEGEN_TARGET", `there is no target \`${language}\`; choose ${LANGUAGES.join(", ")}`);
}

/** Where the files are that `generate` takes as the runtime of a language. This module reads nothing itself. */
export function runtimeDirectory(language: string): URL {
  return new URL(`./runtimes/${targetFor(language).runtime}/`, import.meta.url);
}

/** The same manifest, runtime and options always make the same files. */
export function generate(
  language: string,
  manifest: unknown,
  runtime: Runtime,
  options: ContractOptions = {},
): Generated {
  const target = targetFor(language);
  const contract = buildContract(manifest, target.reserved, options);
  const { files, reports, fields } = target.emit(contract, runtime);
  return { files, reports: [...contract.reports, ...reports], fields, tools: contract.tools.length };
}
