import { existsSync, readdirSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join, relative, resolve, sep } from "node:path";
import { describe, expect, it } from "vitest";
import { MODULES, moduleOf } from "./modules.js";

/** Entry points of the package, outside every module. */
const ENTRIES = new Set(["index.ts", "server.ts"]);

function sources(root: string): string[] {
  return (
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.endsWith(".ts") && !/\.(test|contract)\.ts$/.test(entry.name))
      // Fixtures are used by tests alone.
      .filter((entry) => !/[\\/]fixtures([\\/]|$)/.test(entry.parentPath))
      .map((entry) => join(entry.parentPath, entry.name))
  );
}

const SPECIFIER =
  /(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s*["']([^"']+)["']|(?:^|\n)\s*import\s*["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']\s*\)/g;

function importsOf(text: string): string[] {
  return [...text.matchAll(SPECIFIER)].map((match) => (match[1] ?? match[2] ?? match[3]) as string);
}

/** Everything that breaks the map. Takes the tree as data, so that the check itself can be tested. */
export function violations(files: ReadonlyMap<string, string>): string[] {
  const found: string[] = [];
  for (const [file, text] of files) {
    const module = moduleOf(file);
    if (module === undefined) {
      if (!ENTRIES.has(file)) found.push(`${file} belongs to no module of the map`);
      continue;
    }
    for (const specifier of importsOf(text)) {
      if (specifier.startsWith(".")) found.push(...checkImport(file, module, specifier));
      else if (MODULES[module]?.pure && isBuiltin(specifier)) {
        found.push(`${file}: pure module ${module} imports ${specifier}`);
      }
    }
  }
  return found;
}

function checkImport(file: string, module: string, specifier: string): string[] {
  const target = join(dirname(file), specifier).split(sep).join("/");
  const targetModule = moduleOf(target);
  if (targetModule === undefined) return [`${file}: a module imports the package's own entry point ${target}`];
  if (targetModule === module) return [];
  if (!MODULES[module]?.imports.includes(targetModule)) return [`${file}: ${module} may not import ${targetModule}`];
  if (MODULES[targetModule]?.open || target === `${targetModule}/index.js`) return [];
  return [`${file}: ${targetModule} is entered by its index.ts, not by ${target}`];
}

const EXPORTED =
  /^export (?:declare |abstract |async )*(?:function\*?|class|const enum|const|let|interface|type|enum) ([\w$]+)/gm;

/** The names that a file declares and exports, each once, whatever its overloads. */
function declaredExports(text: string): Set<string> {
  return new Set([...text.matchAll(EXPORTED)].map(([, name]) => name as string));
}

/** The edges that the files really have, as `from → to`. */
function edges(files: ReadonlyMap<string, string>): Set<string> {
  const found = new Set<string>();
  for (const [file, text] of files) {
    const module = moduleOf(file);
    for (const specifier of importsOf(text)) {
      if (module === undefined || !specifier.startsWith(".")) continue;
      const target = moduleOf(join(dirname(file), specifier).split(sep).join("/"));
      if (target !== undefined && target !== module) found.add(`${module} → ${target}`);
    }
  }
  return found;
}

function isBuiltin(specifier: string): boolean {
  return specifier.startsWith("node:") || builtinModules.includes(specifier.split("/")[0] as string);
}

function tree(root: string): Map<string, string> {
  const files = new Map<string, string>();
  for (const file of sources(root)) files.set(relative(root, file).split(sep).join("/"), readFileSync(file, "utf8"));
  return files;
}

/** The modules that a module reaches through the map, itself only through a cycle. */
function reach(module: string, seen = new Set<string>()): Set<string> {
  for (const next of MODULES[module]?.imports ?? []) {
    if (seen.has(next)) continue;
    seen.add(next);
    reach(next, seen);
  }
  return seen;
}

describe("the import map", () => {
  const src = resolve(import.meta.dirname, "../src");
  const files = tree(src);

  it("the import map is followed by every source file", () => {
    expect(violations(files)).toEqual([]);
  });

  it("the import map lists exactly the edges that exist", () => {
    const listed = Object.entries(MODULES).flatMap(([name, { imports }]) => imports.map((to) => `${name} → ${to}`));
    expect(listed.toSorted()).toEqual([...edges(files)].toSorted());
  });

  it("the import map has no cycle", () => {
    expect(Object.keys(MODULES).filter((name) => reach(name).has(name))).toEqual([]);
  });

  it.each([
    ["a permit is minted", /\bPermit\.mint\(/, "policy/decide.ts"],
    ["a permit is spent", /\bPermit\.spend\(/, "pipeline/execute.ts"],
    ["a gate is asked to decide", /\bgate\.decide\(/, "pipeline/call.ts"],
    ["a decision is recorded", /kind: "decision"( as const)?,/, "pipeline/record.ts"],
    ["an outcome is recorded", /\.appendOutcome\(/, "pipeline/record.ts"],
  ])("the code has one place where %s [U8]", (_, pattern, place) => {
    const found = [...files].flatMap(([file, text]) => (pattern.test(text) ? file : []));
    expect(found).toEqual([place]);
  });

  it("the commands parse, call and print in 3,500 lines, and src has 640 files at most", () => {
    const commands = [...files].filter(([file]) => file.startsWith("cli/"));
    expect(commands.length).toBeGreaterThan(20);
    expect(commands.reduce((sum, [, text]) => sum + text.split("\n").length, 0)).toBeLessThanOrEqual(3_500);
    expect(files.size).toBeLessThanOrEqual(640);
  });

  it("no name is exported by two files of src", () => {
    const owners = new Map<string, string[]>();
    for (const [file, text] of files) {
      // What is written for users' programs is text here.
      if (file.startsWith("codegen/runtimes/") || file === "codegen/targets/typescript.ts") continue;
      for (const name of declaredExports(text)) owners.set(name, [...(owners.get(name) ?? []), file]);
    }
    expect(owners.size).toBeGreaterThan(1_000);
    expect([...owners].filter(([, found]) => found.length > 1)).toEqual([]);
  });

  it("keeps the pipeline, one function, on one screen", () => {
    const text = files.get("pipeline/call.ts") ?? "";
    const lines = /^export async function call\(.*?^}$/ms.exec(text)?.[0].split("\n").length;
    expect(lines).toBeGreaterThan(20);
    expect(lines).toBeLessThanOrEqual(60);
  });

  it("the import map names directories that exist, each with one entry file unless it is open", () => {
    for (const [name, { open }] of Object.entries(MODULES)) {
      const entry = name === "cli" ? "main.ts" : open ? "." : "index.ts";
      expect(existsSync(join(src, name, entry)), `src/${name}/${entry}`).toBe(true);
    }
  });

  it("the import map is the table of ARCHITECTURE.md", () => {
    const page = readFileSync(resolve(import.meta.dirname, "../ARCHITECTURE.md"), "utf8");
    for (const [name, { imports }] of Object.entries(MODULES)) {
      const row = page.split("\n").find((line) => line.startsWith(`| \`${name}\` `));
      expect(row, `the row of ${name}`).toBeDefined();
      expect(row?.split("|").at(-2)?.trim()).toBe(imports.length === 0 ? "–" : imports.join(", "));
    }
  });

  it.each([
    ["policy/a.ts", 'import { x } from "../gateway/index.js";', "policy may not import gateway"],
    ["policy/a.ts", 'import { x } from "../mcp/json.js";', "entered by its index.ts"],
    ["policy/cedar/a.ts", 'import type { x } from "../../mcp/transports/index.js";', "may not import mcp/transports"],
    ["attic/a.ts", "", "belongs to no module"],
    ["loose.ts", "", "belongs to no module"],
    ["mcp/a.ts", 'import { readFileSync } from "node:fs";', "pure module mcp imports node:fs"],
    ["lattice/a.ts", 'import fs from "fs/promises";', "pure module lattice imports fs/promises"],
    ["mcp/a.ts", 'const fs = await import("node:fs");', "pure module mcp imports node:fs"],
    ["mcp/client/a.ts", 'export { x } from "../../server.js";', "imports the package's own entry point"],
  ])("the check of imports rejects %s with %s", (file, text, problem) => {
    expect(violations(new Map([[file, text]])).join()).toContain(problem);
  });

  it("the check of imports accepts imports that the map lists", () => {
    const fine = new Map([
      ["policy/a.ts", 'import { x } from "../mcp/index.js";\nimport { y } from "./b.js";\nimport "node:fs";'],
      ["cli/a.ts", 'import { z } from "../runtime/store/open.js";'],
      ["lattice/a.ts", 'import { z } from "refa";'],
      ["server.ts", 'import { call } from "./pipeline/index.js";'],
    ]);
    expect(violations(fine)).toEqual([]);
  });
});

describe("ARCHITECTURE.md", () => {
  const root = resolve(import.meta.dirname, "..");
  const page = readFileSync(join(root, "ARCHITECTURE.md"), "utf8");

  it("ARCHITECTURE.md names only files and directories that exist", () => {
    expect(missingPaths(root, page)).toEqual([]);
    expect(pathsIn(page).length).toBeGreaterThan(30);
  });

  it("ARCHITECTURE.md is checked for paths in code spans and in links", () => {
    const text = "`src/mcp/index.ts` `src/transport/` [a](src/protocol/a.ts) [b](https://example.com/c) `npm test`";
    expect(missingPaths(root, text)).toEqual(["src/transport/", "src/protocol/a.ts"]);
  });

  it("ARCHITECTURE.md answers ten questions", () => {
    const section = page.split("## Ten questions")[1]?.split("\n## ")[0] ?? "";
    expect(section.split("\n").filter((line) => /^\| .*\? \| .+ \|$/.test(line))).toHaveLength(10);
  });
});

/** Paths of the repository in code spans and links: they begin with one of its directories, or end in `.md`. */
function pathsIn(text: string): string[] {
  return [...text.matchAll(/`([^`\s]+)`|\]\(([^)#\s]+)\)/g)]
    .map((match) => (match[1] ?? match[2]) as string)
    .filter((path) => /^(src|test|scripts|docs|bench|examples|\.github)\/|^[\w-]+\.md$/.test(path));
}

function missingPaths(root: string, text: string): string[] {
  return pathsIn(text).filter((path) => !existsSync(join(root, path)));
}
