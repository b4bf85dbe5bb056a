import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { compileTypeScript, writeFiles } from "./fixtures/compile.js";
import { hostileManifest, REPORTED } from "./fixtures/hostile.js";
import { randomCases, randomTools } from "./fixtures/random.js";
import { type Case, casesFor, ownValidator, sampledTools } from "./fixtures/sample.js";
import { generate } from "./generate.js";
import type { ManifestTool } from "./manifest.js";

const EVERY = 4;
const EACH = 25;
const RANDOM = 300;

const dir = mkdtempSync(join(tmpdir(), "portcullis-differential-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

type Side = "args" | "result";

/** Compiles the decoders of a manifest and compares them with verdicts; hands back where they differ. */
async function compare(name: string, tools: readonly ManifestTool[], cases: readonly Case[]) {
  const folder = join(dir, name);
  const { files, reports } = generate("ts", { name, tools });
  writeFiles(folder, files);
  expect(compileTypeScript(folder, true)).toBe("");
  const load = (file: string): Promise<unknown> => import(pathToFileURL(join(folder, file)).href);
  const { CHECKS } = (await load("decode.js")) as { CHECKS: Map<string, Record<Side, number>> };
  const { decode } = (await load("check.js")) as { decode: (what: string, node: number, value: unknown) => unknown };
  const wrong: unknown[] = [];
  let accepted = 0;
  for (const { tool, side, value, valid } of cases) {
    const before = JSON.stringify(value);
    let after: string | undefined;
    let reason = "";
    try {
      after = JSON.stringify(decode(tool, CHECKS.get(tool)?.[side] as number, value));
      accepted++;
    } catch (error) {
      if ((error as { code?: string }).code !== "DECODE") throw error;
      reason = (error as Error).message;
    }
    if ((after !== undefined) !== valid || (after !== undefined && after !== before))
      wrong.push({ tool, side, value, valid, reason });
  }
  const unsupported = new Set(reports.filter(({ level }) => level === "unsupported").map(({ tool }) => tool));
  console.log(
    JSON.stringify({
      tools: tools.length,
      cases: cases.length,
      accepted,
      unsupported: unsupported.size,
      wrong: wrong.length,
    }),
  );
  return { wrong, accepted };
}

describe("generated TypeScript decoders", () => {
  it("accept and reject what a validator does, and hand back what came in", async () => {
    const tools = sampledTools(EVERY);
    const cases = casesFor(tools, EACH, 1);
    const { wrong, accepted } = await compare("sample", tools, cases);
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(accepted).toBeGreaterThan(cases.length / 20);
    expect(accepted).toBeLessThan(cases.length * 0.95);
  });

  it("do so for every keyword of both dialects", async () => {
    const { tools } = hostileManifest() as unknown as { tools: ManifestTool[] };
    const judged = tools.filter(({ name }) => !REPORTED.has(name));
    const cases = casesFor(judged, 200, 2, ownValidator);
    const { wrong } = await compare("hostile", judged, cases);
    expect(wrong.slice(0, 5)).toEqual([]);
  });

  it("do so for random schemas", async () => {
    const tools = randomTools(RANDOM, 5);
    const { wrong } = await compare("random", tools, randomCases(tools, 40, 6));
    expect(wrong.slice(0, 5)).toEqual([]);
  });
});
