import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { readRuntime } from "../cli/generate.js";
import { compileTypeScript, writeFiles } from "./fixtures/compile.js";
import { suite } from "./fixtures/suite.js";
import { typescript } from "./targets/typescript.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-suite-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe("the JSON Schema test suite", () => {
  it("the JSON Schema test suite is judged by the generated TypeScript as it says", async () => {
    const { contract, cases, unsupported } = suite();
    const { files } = typescript.emit(contract, readRuntime("ts"));
    const needed = ["check.ts", "error-table.ts", "errors.ts", "table.ts"];
    writeFiles(
      dir,
      files.filter(({ path }) => needed.includes(path)),
    );
    expect(compileTypeScript(dir, true)).toBe("");
    const { check } = (await import(pathToFileURL(join(dir, "check.js")).href)) as {
      check: (node: number, value: unknown) => unknown;
    };
    const places = placesIn(files.find(({ path }) => path === "decode.ts")?.text ?? "");
    const wrong = cases.filter(
      ({ tool, value, valid }) => (check(places.get(tool) as number, value) === undefined) !== valid,
    );
    console.log(JSON.stringify({ cases: cases.length, unsupported, wrong: wrong.length }));
    expect(wrong.map(({ name }) => name)).toEqual([]);
    expect({ cases: cases.length, unsupported }).toEqual({ cases: 2_100, unsupported: 48 });
  });
});

function placesIn(decoders: string): Map<string, number> {
  return new Map(
    [...decoders.matchAll(/\["(s\d+)", \{ args: (\d+)/g)].map(([, tool, place]) => [tool as string, Number(place)]),
  );
}
