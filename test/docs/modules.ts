// A page's TypeScript as modules that can be checked and run. A snippet continues the one before it; one that declares
// a name anew begins a new module. Lines keep their numbers, so that a complaint about a module names the page's line.

import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { run } from "./process.js";
import type { Snippet } from "./snippets.js";

export interface Module {
  readonly page: string;
  readonly line: number;
  /** Of the file, without its extension. */
  readonly name: string;
  readonly code: string;
}

const IMPORT = /^import\s+(type\s+)?([^"';]+?)\s+from\s+"([^"]+)";[ \t]*$/gm;
const DECLARATION =
  /^(?:export\s+)?(?:async\s+)?(?:const|let|var|function|class|interface|type)\s+(?:([\w$]+)|[{[]([^}\]]*)[}\]])/gm;

export function modulesOf(snippets: readonly Snippet[]): Module[] {
  const modules: Module[] = [];
  let lines: string[] = [];
  let declared = new Set<string>();
  let imported = new Map<string, string>();
  for (const { page, line, code } of snippets) {
    const names = declarations(code);
    const imports = importsOf(code);
    const clashes =
      names.some((name) => declared.has(name) || imported.has(name)) ||
      [...imports].some(([name, from]) => declared.has(name) || (imported.get(name) ?? from) !== from);
    if (modules.length === 0 || clashes) {
      lines = [];
      declared = new Set();
      imported = new Map();
      const name = `${page.replaceAll(/[^\w]+/g, "-")}-${line}`;
      modules.push({ page, line, name, code: "" });
    }
    while (lines.length < line - 1) lines.push("");
    lines.push(...withoutKnownImports(code, imported).trimEnd().split("\n"));
    for (const name of names) declared.add(name);
    for (const [name, from] of imports) imported.set(name, from);
    modules.push({ ...(modules.pop() as Module), code: `${lines.join("\n")}\n` });
  }
  return modules;
}

function declarations(code: string): string[] {
  return [...code.matchAll(DECLARATION)].flatMap(([, name, pattern]) =>
    name === undefined ? namesIn(pattern ?? "") : [name],
  );
}

/** `a, b: c, type D, e as f` → a, c, D, f. */
function namesIn(list: string): string[] {
  return list
    .split(",")
    .map((part) => /([\w$]+)\s*(?:=.*)?$/.exec(part.trim())?.[1] ?? "")
    .filter((name) => name !== "");
}

function importsOf(code: string): Map<string, string> {
  const names = new Map<string, string>();
  for (const [, , clause = "", from = ""] of code.matchAll(IMPORT)) {
    for (const name of namesIn(clause.replaceAll(/[{}]/g, ","))) names.set(name, from);
  }
  return names;
}

/** A name may be imported once in a module; the lines stay. */
function withoutKnownImports(code: string, imported: ReadonlyMap<string, string>): string {
  return code.replaceAll(IMPORT, (statement, type: string | undefined, clause: string, from: string) => {
    const breaks = "\n".repeat(statement.split("\n").length - 1);
    const isKnown = (part: string): boolean => namesIn(part).every((name) => imported.get(name) === from);
    const braces = /\{([^}]*)\}/.exec(clause);
    if (!braces) return isKnown(clause) ? breaks : statement;
    const left = (braces[1] as string).split(",").filter((part) => part.trim() !== "" && !isKnown(part));
    if (left.length === 0) return breaks;
    return `import ${type ?? ""}{ ${left.map((part) => part.trim()).join(", ")} } from "${from}";${breaks}`;
  });
}

/**
 * Checks all modules together and leaves a runnable file beside each. The folder has to lie inside the package, so that
 * `portcullis/…` leads to the package itself. Gives the complaints, each with the page and its line.
 */
export function compile(root: string, folder: string, modules: readonly Module[]): Map<string, string[]> {
  mkdirSync(folder, { recursive: true });
  for (const { name, code } of modules) writeFileSync(join(folder, `${name}.ts`), code);
  const unused = { noUnusedLocals: false, noUnusedParameters: false };
  const compilerOptions = { noEmit: false, rootDir: ".", outDir: ".", inlineSourceMap: true, ...unused };
  const base = relative(folder, join(root, "tsconfig.json"));
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ extends: base, compilerOptions, include: ["*.ts"] }));
  const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
  const done = spawnSync(process.execPath, [tsc, "-p", folder, "--pretty", "false"], { cwd: folder, encoding: "utf8" });
  const complaints = new Map<string, string[]>();
  for (const line of `${done.stdout}${done.stderr}`.split("\n")) {
    if (line.trim() === "") continue;
    const [, name = "", at, problem] = /^(.+?)\.ts\((\d+),\d+\): (.*)$/.exec(line) ?? [];
    const module = modules.find((each) => each.name === name);
    const list = complaints.get(name) ?? [];
    list.push(module ? `${module.page}:${at}: ${problem}` : line);
    complaints.set(name, list);
  }
  return complaints;
}

/** Ends well, or throws with what it said. A module that leaves something open never ends: it is stopped. */
export async function runModule(folder: string, module: Module, cwd: string, timeoutMs: number): Promise<string> {
  const source = "--enable-source-maps";
  const ended = await run([process.execPath, source, join(folder, `${module.name}.js`)], { cwd, timeoutMs });
  const where = `${module.page}:${module.line}`;
  if (ended.timedOut) {
    throw new Error(`${where} was still running after ${timeoutMs} ms: close what it opened\n${ended.output}`);
  }
  if (ended.code !== 0) throw new Error(`${where} ended with exit code ${ended.code}\n${ended.output}`);
  return ended.output;
}
