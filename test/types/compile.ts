// Snippets through the real compiler, all in one run, each in a file of its own.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../..");
export const TSC = join(ROOT, "node_modules", "typescript", "bin", "tsc");

export interface Complaint {
  /** Counted from the snippet's first line. */
  readonly line: number;
  readonly message: string;
}

/** A folder inside the package, so that imports find what they need; removed by the caller. */
export function snippetFolder(): string {
  mkdirSync(join(ROOT, ".test-results"), { recursive: true });
  const folder = mkdtempSync(join(ROOT, ".test-results", "types-"));
  const compilerOptions = { noUnusedLocals: false, noUnusedParameters: false };
  const config = { extends: relative(folder, join(ROOT, "tsconfig.json")), compilerOptions, include: ["*.ts"] };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
  return folder;
}

/** `names` are what the snippet may use of the world. */
export function inWorld(
  names: readonly string[],
  code: string,
  world = "../../test/types/world.js",
): { text: string; firstLine: number } {
  const head = [
    `import type { World } from "${world}";`,
    `export async function snippet({ ${names.join(", ")} }: World): Promise<void> {`,
  ];
  return { text: `${[...head, code, "}"].join("\n")}\n`, firstLine: head.length + 1 };
}

/** Declarations of the world and all it imports, as a package's user gets them. Gives the module to import. */
function declareWorld(folder: string): string {
  const how = ["--declaration", "--emitDeclarationOnly", "--rootDir", ROOT, "--outDir", join(folder, "declared")];
  const compilerOptions = { noEmit: false };
  const include = [relative(folder, join(ROOT, "test/types/world.ts"))];
  const config = { extends: relative(folder, join(ROOT, "tsconfig.json")), compilerOptions, include, exclude: [] };
  writeFileSync(join(folder, "declare.json"), JSON.stringify(config));
  tsc([...how, "-p", join(folder, "declare.json")], folder);
  return "./declared/test/types/world.js";
}

export function tsc(args: readonly string[], cwd: string): string {
  const done = spawnSync(process.execPath, [TSC, ...args, "--pretty", "false"], {
    cwd,
    encoding: "utf8",
    timeout: 120_000,
  });
  if (done.error) throw done.error;
  return `${done.stdout}${done.stderr}`;
}

/**
 * What the compiler says about each snippet, the lines that explain a message joined to it: against the sources, or
 * against the declarations made of them, which leave out the types of private parts.
 */
export function compileAll(
  names: readonly string[],
  snippets: readonly string[],
  against: "sources" | "declarations" = "sources",
): Complaint[][] {
  const folder = snippetFolder();
  try {
    const world = against === "declarations" ? declareWorld(folder) : undefined;
    const firstLines = snippets.map((code, at) => {
      const { text, firstLine } = inWorld(names, code, world);
      writeFileSync(join(folder, `s${at}.ts`), text);
      return firstLine;
    });
    const said = tsc(["--noEmit", "-p", folder], folder);
    const found: Complaint[][] = snippets.map(() => []);
    let last: { line: number; message: string } | undefined;
    for (const line of said.split("\n")) {
      const [, at, row, message] = /^s(\d+)\.ts\((\d+),\d+\): error (.*)$/.exec(line) ?? [];
      if (message !== undefined) {
        last = { line: Number(row) - (firstLines[Number(at)] as number) + 1, message };
        (found[Number(at)] as Complaint[]).push(last);
      } else if (line.startsWith("  ") && last) last.message += `\n${line.trim()}`;
      else if (line.trim() !== "") throw new Error(`the compiler said: ${line}`);
    }
    return found;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
