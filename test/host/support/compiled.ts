// The host and its test scenarios as plain JavaScript, for tests that need another process: another user, a crash.

import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const project = join(dirname(fileURLToPath(import.meta.url)), "../../..");
let built: string | undefined;

/** Path of a compiled file, named from the project's root: `src/host/index.js`. */
export function compiled(file: string): string {
  built ??= compile();
  return join(built, file);
}

function compile(): string {
  const out = join(project, "node_modules/.cache", `portcullis-compiled-${process.pid}`);
  mkdirSync(out, { recursive: true });
  process.once("exit", () => rmSync(out, { recursive: true, force: true }));
  const options = [
    "--noCheck",
    "--ignoreConfig",
    "--outDir",
    out,
    "--rootDir",
    project,
    "--target",
    "es2023",
    "--module",
    "nodenext",
    "--types",
    "node",
  ];
  const sources = [
    "src/host/index.ts",
    "src/host/sandbox/warden.ts",
    "test/host/support/scenarios.ts",
    "test/host/support/world.ts",
  ];
  execFileSync(process.execPath, [
    join(project, "node_modules/typescript/bin/tsc"),
    ...options,
    ...sources.map((s) => join(project, s)),
  ]);
  chmodSync(out, 0o755);
  return out;
}
