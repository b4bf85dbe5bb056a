// Where the programs of the sandbox are: the one that runs commands, and the launcher of servers. Compiled, they lie beside this
// file. Run from source (tests), Node 20 cannot read TypeScript, so the compiler puts the few files they need next to the other
// tool caches, once per change.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

let found: string | undefined;

export function supervisorEntry(): string {
  return join(sandboxDirectory(), "supervisor.js");
}

export function launcherEntry(): string {
  return join(sandboxDirectory(), "server/launcher.js");
}

function sandboxDirectory(): string {
  const here = fileURLToPath(import.meta.url);
  found ??= here.endsWith(".ts") ? compile(dirname(here)) : dirname(here);
  return found;
}

function compile(sandbox: string): string {
  const source = join(sandbox, "../..");
  const project = join(source, "..");
  const cache = join(project, "node_modules/.cache/portcullis-supervisor", fingerprint(join(source, "host")));
  const compiled = join(cache, "host/sandbox");
  if (existsSync(compiled)) return compiled;
  const draft = `${cache}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  const options = [
    "--noCheck",
    "--ignoreConfig",
    "--outDir",
    draft,
    "--rootDir",
    source,
    "--target",
    "es2023",
    "--module",
    "nodenext",
    "--types",
    "node",
  ];
  try {
    execFileSync(process.execPath, [
      join(project, "node_modules/typescript/bin/tsc"),
      ...options,
      join(sandbox, "supervisor.ts"),
      join(sandbox, "server/launcher.ts"),
    ]);
    renameSync(draft, cache);
    prune(dirname(cache), cache);
  } catch (error) {
    rmSync(draft, { recursive: true, force: true });
    // Another test process may have been quicker.
    if (!existsSync(compiled)) throw error;
  }
  return compiled;
}

const KEPT_MS = 3_600_000;

/** Results of earlier sources; what another process may still use is young. */
function prune(directory: string, keep: string): void {
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    if (path !== keep && Date.now() - statSync(path).mtimeMs > KEPT_MS) rmSync(path, { recursive: true, force: true });
  }
}

function fingerprint(directory: string): string {
  const hash = createHash("sha256");
  for (const name of readdirSync(directory, { recursive: true, encoding: "utf8" }).sort()) {
    if (name.endsWith(".ts") && !name.endsWith(".test.ts"))
      hash.update(name).update(readFileSync(join(directory, name)));
  }
  return hash.digest("hex").slice(0, 16);
}
