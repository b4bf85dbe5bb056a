import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { compileTypeScript, writeFiles } from "./fixtures/compile.js";
import { casesFor, sampledTools } from "./fixtures/sample.js";
import { generate } from "./generate.js";

const EVERY = 4;
const EACH = 25;

const dir = mkdtempSync(join(tmpdir(), "portcullis-differential-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe("generated TypeScript decoders", () => {
  it("accept and reject what a validator does, and hand back what came in", async () => {
    const tools = sampledTools(EVERY);
    const { files, reports } = generate("ts", { name: "sample", tools });
    writeFiles(dir, files);
    expect(compileTypeScript(dir, true)).toBe("");
    const { CHECKS } = (await import(pathToFileURL(join(dir, "decode.js")).href)) as {
      CHECKS: Map<string, { args: number; result: number }>;
    };
    const { decode } = (await import(pathToFileURL(join(dir, "check.js")).href)) as {
      decode: (what: string, node: number, value: unknown) => unknown;
    };
    const cases = casesFor(tools, EACH, 1);
    const wrong: unknown[] = [];
    let accepted = 0;
    for (const { tool, side, value, valid } of cases) {
      const before = JSON.stringify(value);
      let after: string | undefined;
      try {
        after = JSON.stringify(decode(tool, CHECKS.get(tool)?.[side] as number, value));
        accepted++;
      } catch (error) {
        if ((error as { code?: string }).code !== "DECODE") throw error;
      }
      if ((after !== undefined) !== valid || (after !== undefined && after !== before))
        wrong.push({ tool, side, value, valid });
    }
    const unsupported = new Set(reports.filter(({ level }) => level === "unsupported").map(({ tool }) => tool));
    console.log(JSON.stringify({ tools: tools.length, cases: cases.length, accepted, unsupported: unsupported.size }));
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(accepted).toBeGreaterThan(cases.length / 20);
    expect(accepted).toBeLessThan(cases.length * 0.95);
  });
});
