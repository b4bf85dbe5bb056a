import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { generateCode } from "../cli/generate.js";
import type { ManifestTool } from "./contract.js";
import { compileTypeScript, writeFiles } from "./fixtures/compile.js";
import { hostileManifest, REPORTED } from "./fixtures/hostile.js";
import { randomCases, randomTools } from "./fixtures/random.js";
import { casesFor, ownValidator, sampledTools } from "./fixtures/sample.js";
import { compareTypeScript } from "./fixtures/typescript.js";

/** One in this many tools; the long test takes more than 300. */
const EVERY = 20;
const EACH = 25;
const RANDOM = 300;

const dir = mkdtempSync(join(tmpdir(), "portcullis-differential-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe("generated TypeScript decoders", () => {
  it("generated TypeScript decoders accept and reject what a validator does, and hand back what came in [L1]", async () => {
    const tools = sampledTools(EVERY);
    const cases = casesFor(tools, EACH, 1);
    const { wrong, accepted } = await compareTypeScript(dir, "sample", tools, cases);
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(accepted).toBeGreaterThan(cases.length / 20);
    expect(accepted).toBeLessThan(cases.length * 0.95);
  });

  it("generated TypeScript decoders agree with a validator for every keyword of both dialects [L1]", async () => {
    const { tools } = hostileManifest() as unknown as { tools: ManifestTool[] };
    const judged = tools.filter(({ name }) => !REPORTED.has(name));
    const cases = casesFor(judged, 200, 2, ownValidator);
    const { wrong } = await compareTypeScript(dir, "hostile", judged, cases);
    expect(wrong.slice(0, 5)).toEqual([]);
  });

  it("generated TypeScript decoders agree with a validator for random schemas", async () => {
    const tools = randomTools(RANDOM, 5);
    const { wrong } = await compareTypeScript(dir, "random", tools, randomCases(tools, 40, 6));
    expect(wrong.slice(0, 5)).toEqual([]);
  });

  it("generated TypeScript decoders take no longer for a pattern that makes others backtrack", async () => {
    const folder = join(dir, "slow");
    const inputSchema = { type: "object", properties: { a: { type: "string", pattern: "^(a+)+$" } } };
    writeFiles(folder, generateCode("ts", { name: "slow", tools: [{ name: "t", inputSchema }] }).files);
    expect(compileTypeScript(folder, true)).toBe("");
    const { check } = (await import(pathToFileURL(join(folder, "check.js")).href)) as {
      check: (node: number, value: unknown) => { message: string } | undefined;
    };
    // A matcher that backtracks would not end; one that runs out of steps would give another message.
    expect(check(0, { a: `${"a".repeat(10_000)}!` })?.message).toContain("must match");
    expect(check(0, { a: "a".repeat(10_000) })).toBeUndefined();
  });
});
