#!/usr/bin/env node
// The FileManager example: from its manifest to code, to a program that runs.
//   node examples/filemanager/run.mjs ts       needs typescript
//   node examples/filemanager/run.mjs rust     needs cargo; the Rust client talks to the TypeScript server
//   node examples/filemanager/run.mjs csharp   needs the .NET 8 SDK or later; without it, only generates
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const here = import.meta.dirname;
const generated = join(here, ".generated");
const main = join(here, "../../dist/cli/main.js");
const steps = { ts: typescript, rust, csharp };
const language = process.argv[2] ?? "ts";
if (!Object.hasOwn(steps, language)) throw new Error(`choose ${Object.keys(steps).join(", ")}, not ${language}`);
steps[/** @type {keyof typeof steps} */ (language)]();

/**
 * Generates into a folder and puts the handlers of the example there.
 * @param {string} target @param {string} own @param {string} into
 */
function generate(target, own, into) {
  const folder = join(generated, own);
  rmSync(folder, { recursive: true, force: true });
  run(process.execPath, [main, "gen", target, join(here, "manifest.json"), "-o", folder]);
  const sources = join(generated, into);
  for (const file of readdirSync(join(here, own))) copyFileSync(join(here, own, file), join(sources, file));
  return folder;
}

function typescript() {
  const folder = buildTypeScript();
  run(process.execPath, [join(folder, "main.js")]);
}

function buildTypeScript() {
  const folder = generate("ts", "typescript", "typescript");
  const compilerOptions = { target: "es2022", module: "nodenext", strict: true, types: ["node"], skipLibCheck: true };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }));
  const require = createRequire(import.meta.url);
  run(process.execPath, [join(dirname(require.resolve("typescript/package.json")), "bin/tsc"), "-p", folder]);
  return folder;
}

function rust() {
  const folder = generate("rust", "rust", "rust/src");
  run("cargo", ["build", "--quiet"], folder);
  const target = process.env.CARGO_TARGET_DIR ?? join(folder, "target");
  const program = join(target, "debug/file-manager");
  const root = mkdtempSync(join(tmpdir(), "filemanager-"));
  mkdirSync(root, { recursive: true });
  try {
    run(program, ["handlers", root]);
    run(program, ["client", process.execPath, join(buildTypeScript(), "main.js"), "--serve", root]);
    // And to itself: the handlers as a server.
    run(program, ["client", program, "serve", root]);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function csharp() {
  const folder = generate("csharp", "csharp", "csharp");
  if (spawnSync("dotnet", ["--version"], { cwd: folder }).status !== 0) {
    return console.log(`C#: generated in ${folder}; install the .NET SDK to run it`);
  }
  run("dotnet", ["build", "--nologo", "--verbosity", "quiet", "-p:OutputType=Exe"], folder);
  const program = readdirSync(join(folder, "bin/Debug")).map((framework) =>
    join(folder, "bin/Debug", framework, "FileManager.dll"),
  )[0];
  const root = mkdtempSync(join(tmpdir(), "filemanager-"));
  try {
    run("dotnet", [program, "client", "dotnet", program, "serve", root]);
    run("dotnet", [program, "client", process.execPath, join(buildTypeScript(), "main.js"), "--serve", root]);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

/** @param {string} command @param {string[]} args @param {string} [cwd] */
function run(command, args, cwd) {
  const { status, error } = spawnSync(command, args, { cwd, stdio: "inherit" });
  if (status !== 0) throw new Error(`${command} ${args[0]} failed: ${error?.message ?? `exit ${status}`}`);
}
