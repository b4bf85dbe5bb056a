// Generates with the runtime files of the package: the module `codegen` itself does no I/O.

import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type ContractOptions,
  type Generated,
  generate as generateWith,
  type Runtime,
  runtimeDirectory,
} from "../codegen/index.js";

export function generateCode(language: string, manifest: unknown, options: ContractOptions = {}): Generated {
  return generateWith(language, manifest, readRuntime(language), options);
}

export function readRuntime(language: string): Runtime {
  const directory = fileURLToPath(runtimeDirectory(language));
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = files.map(({ parentPath, name }) => relative(directory, join(parentPath, name))).sort();
  return new Map(paths.map((path) => [path.replaceAll(sep, "/"), readFileSync(join(directory, path), "utf8")]));
}
