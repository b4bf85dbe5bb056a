// The host as plain JavaScript, for tests that need another process: another user, another Node, a crash.

import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const project = join(dirname(fileURLToPath(import.meta.url)), "../../..");
let built: string | undefined;

/** Path of the compiled `host/index.js`. */
export function compiledHost(): string {
  built ??= compile();
  return built;
}

function compile(): string {
  const out = join(project, "node_modules/.cache", `portcullis-host-${process.pid}`);
  mkdirSync(out, { recursive: true });
  const options = [
    "--noCheck",
    "--ignoreConfig",
    "--outDir",
    out,
    "--rootDir",
    join(project, "src"),
    "--target",
    "es2023",
    "--module",
    "nodenext",
    "--types",
    "node",
  ];
  execFileSync(process.execPath, [
    join(project, "node_modules/typescript/bin/tsc"),
    ...options,
    join(project, "src/host/index.ts"),
    join(project, "src/host/sandbox/warden.ts"),
  ]);
  return join(out, "host/index.js");
}
