// How long the compiler takes over agents with many tools, as a ratio to ten tools in the same run:
//   npm run build && node bench/types.mjs [tools …]
// Every tool is guarded and called once, half of them are delegated, and the child is passed where less is asked for.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const types = new URL("mcp/client/index.js", new URL(process.env.PORTCULLIS_DIST ?? "../dist/", import.meta.url));
const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
const ROUNDS = 3;
const given = process.argv.slice(2).map(Number);
const sizes = [...new Set([10, ...(given.length > 0 ? given : [1_000, 2_000, 4_000])])];

function source(tools, types) {
  const names = Array.from({ length: tools }, (_, i) => `server${i % 20}.tool_${i}`);
  const map = names.map(
    (name, i) =>
      `  "${name}": { args: { path: string; f${i}?: number; more?: { a: string; b: number[] } }; result: { r${i}: string } };`,
  );
  const list = (some) => `[${some.map((name) => JSON.stringify(name)).join(", ")}]`;
  const uses = names.map(
    (name, i) =>
      `{ const token = await root.guard("${name}", { path: "a", f${i}: 1 }); (await root.call("${name}", token)).r${i} satisfies string; }`,
  );
  return [
    `import { type Agent, createAgent, toolset } from "${types}";`,
    `interface Tools {\n${map.join("\n")}\n}`,
    `const all = toolset<Tools>()({ names: ${list(names)}, noGuardrailRequired: ${list(names.slice(0, 5))} });`,
    'const root = await createAgent("root", all, { app: "bench" }).connect("http://127.0.0.1:1/");',
    ...uses,
    `const child = root.delegate("child", ${list(names.slice(0, tools / 2))});`,
    `const less: Agent<"child", Pick<Tools, "${names[0]}">, "active"> = child;`,
    "void less;",
  ].join("\n");
}

mkdirSync(join(root, ".test-results"), { recursive: true });
const folder = mkdtempSync(join(root, ".test-results", "bench-types-"));
try {
  for (const size of sizes) {
    const at = join(folder, String(size));
    mkdirSync(at);
    writeFileSync(join(at, "use.ts"), source(size, relative(at, fileURLToPath(types))));
    writeFileSync(
      join(at, "tsconfig.json"),
      JSON.stringify({ extends: relative(at, join(root, "tsconfig.json")), include: ["*.ts"] }),
    );
  }
  const times = new Map(sizes.map((size) => [size, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const size of sizes) {
      const started = performance.now();
      const ran = spawnSync(
        process.execPath,
        [tsc, "--noEmit", "-p", join(folder, String(size)), "--pretty", "false"],
        {
          encoding: "utf8",
        },
      );
      if (ran.status !== 0) throw new Error(`${size} tools do not compile: ${ran.stdout.slice(0, 2_000)}`);
      times.get(size).push(performance.now() - started);
    }
  }
  const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
  const base = median(times.get(10));
  for (const size of sizes) {
    const ms = median(times.get(size));
    console.log(
      `${String(size).padStart(6)} tools  ${(ms / 1000).toFixed(2)} s  ${(ms / base).toFixed(1)} × ten tools`,
    );
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
