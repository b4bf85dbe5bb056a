// The host and its test scenarios as plain JavaScript, for tests that need another process: another user, a crash.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
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
  const cache = join(project, "node_modules/.cache/portcullis-compiled");
  const out = join(cache, fingerprint());
  if (existsSync(join(out, "src/host/index.js"))) return out;
  const draft = `${out}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  const options = [
    "--noCheck",
    "--ignoreConfig",
    "--outDir",
    draft,
    "--rootDir",
    project,
    "--target",
    "es2023",
    "--module",
    "nodenext",
    "--types",
    "node",
  ];
  const tsc = join(project, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, ...options, ...ENTRIES.map((entry) => join(project, entry))]);
  chmodSync(draft, 0o755);
  try {
    renameSync(draft, out);
  } catch {
    // Another test process was quicker.
    rmSync(draft, { recursive: true, force: true });
  }
  prune(cache, out);
  return out;
}

const ENTRIES = [
  "src/host/index.ts",
  "src/host/sandbox/supervisor.ts",
  "test/host/support/scenarios.ts",
  "test/host/support/world.ts",
];

function fingerprint(): string {
  const hash = createHash("sha256");
  for (const directory of ["src/host", "test/host/support"]) {
    for (const name of readdirSync(join(project, directory), { recursive: true, encoding: "utf8" }).sort()) {
      if (/(?<!\.test)\.ts$/.test(name)) hash.update(name).update(readFileSync(join(project, directory, name)));
    }
  }
  return hash.digest("hex").slice(0, 16);
}

/** Results of earlier sources; what another test process may still use is young. */
function prune(cache: string, keep: string): void {
  for (const name of readdirSync(cache)) {
    const path = join(cache, name);
    if (path !== keep && Date.now() - statSync(path).mtimeMs > 3_600_000)
      rmSync(path, { recursive: true, force: true });
  }
}
