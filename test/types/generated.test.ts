// What `portcullis gen ts` writes is what agents take: every tool of every manifest can be named, guarded and called.

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { generateCode } from "../../src/cli/generate.js";
import { hostileManifest } from "../../src/codegen/fixtures/hostile.js";
import { manifestFiles } from "../../src/codegen/fixtures/sample.js";
import { snippetFolder, tsc } from "./compile.js";

function use(types: string, names: readonly string[], module: string): string {
  const calls = names.map((name) => {
    const tool = JSON.stringify(name);
    return `  await agent.call(${tool}, await agent.guard(${tool}, {} as ${types}[${tool}]["args"])) satisfies ${types}[${tool}]["result"];`;
  });
  return [
    'import { createAgent, toolset } from "../../src/mcp/client/index.js";',
    `import type { ${types} } from "./${module}/types.js";`,
    `const tools = toolset<${types}>()({ names: ${JSON.stringify(names)} });`,
    "export async function all(): Promise<void> {",
    '  const agent = await createAgent("agent", tools, { app: "test" }).connect("http://127.0.0.1:1/");',
    ...calls,
    "}",
  ].join("\n");
}

it("generated tool maps compile as capabilities, and every tool in them can be called", { timeout: 120_000 }, () => {
  const folder = snippetFolder();
  try {
    const all = [...manifestFiles(), { name: "hostile", manifest: hostileManifest() }];
    for (const [at, { name, manifest }] of all.entries()) {
      const types = generateCode("ts", manifest, { name }).files.find(({ path }) => path === "types.ts")?.text ?? "";
      const title = /^export interface (\w+Tools) \{$/m.exec(types)?.[1] ?? "";
      const map = types.slice(types.indexOf(`export interface ${title} {`));
      const names = [...map.matchAll(/^ {2}("(?:[^"\\]|\\.)*"): \{ args: /gm)].map(([, text]) =>
        JSON.parse(text ?? ""),
      );
      expect(names.length, name).toBeGreaterThan(0);
      mkdirSync(join(folder, `m${at}`));
      writeFileSync(join(folder, `m${at}`, "types.ts"), types);
      writeFileSync(join(folder, `use${at}.ts`), use(title, names as string[], `m${at}`));
    }
    expect(tsc(["--noEmit", "-p", folder], folder)).toBe("");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
