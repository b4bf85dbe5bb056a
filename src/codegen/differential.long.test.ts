import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { randomCases, randomTools } from "./fixtures/random.js";
import { casesFor, sampledTools } from "./fixtures/sample.js";
import { compareTypeScript } from "./fixtures/typescript.js";

/** Every n-th tool; 4 are more than 300 tools. */
const EVERY = Number(process.env.CODEGEN_EVERY ?? 4);
const EACH = Number(process.env.CODEGEN_VALUES ?? 100);
const RANDOM = Number(process.env.CODEGEN_RANDOM ?? 400) * 5;

const dir = mkdtempSync(join(tmpdir(), "portcullis-differential-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe("generated TypeScript decoders, over many tools", () => {
  it("generated TypeScript decoders of many tools accept and reject what a validator does, and hand back what came in", async () => {
    const tools = sampledTools(EVERY);
    const cases = casesFor(tools, EACH, 7);
    const { wrong, accepted } = await compareTypeScript(dir, "sample", tools, cases);
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(accepted).toBeGreaterThan(cases.length / 20);
  });

  it("generated TypeScript decoders agree with a validator for many random schemas", async () => {
    const tools = randomTools(RANDOM, 31);
    const { wrong } = await compareTypeScript(dir, "random", tools, randomCases(tools, EACH, 32));
    expect(wrong.slice(0, 5)).toEqual([]);
  });
});
