// The package's types as a careful user compiles them: every door, the strictest options, library types checked too.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { tsc } from "./compile.js";

const ROOT = resolve(import.meta.dirname, "../..");

describe("the types of the package", () => {
  it("the types of the package compile under the strictest compiler options", { timeout: 120_000 }, () => {
    if (!existsSync(join(ROOT, "dist", ".built"))) throw new Error("there is no build: run `npm run build` first");
    const { name, exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    const doors = Object.keys(exports).filter((path) => !path.endsWith(".json"));
    const lines = doors.map((path, at) => `export * as door${at} from "${join(name, path).replaceAll("\\", "/")}";`);
    mkdirSync(join(ROOT, ".test-results"), { recursive: true });
    const folder = mkdtempSync(join(ROOT, ".test-results", "consumer-"));
    try {
      writeFileSync(join(folder, "uses.ts"), `${lines.join("\n")}\n`);
      const compilerOptions = {
        strict: true,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        noPropertyAccessFromIndexSignature: true,
        noImplicitOverride: true,
        verbatimModuleSyntax: true,
        isolatedModules: true,
        skipLibCheck: false,
        target: "es2022",
        module: "nodenext",
        types: ["node"],
        noEmit: true,
      };
      writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["uses.ts"] }));
      expect(tsc(["-p", folder], folder)).toBe("");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
