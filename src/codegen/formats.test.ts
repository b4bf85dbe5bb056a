// Generated code decides about formats and `dependencies` as the validator does: the list of texts is the same.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { generateCode } from "../cli/generate.js";
import type { JsonObject } from "../mcp/index.js";
import { FORMAT_VECTORS } from "../schema/fixtures/format-vectors.js";
import type { ManifestTool } from "./contract.js";
import { writeFiles } from "./fixtures/compile.js";
import { ownValidator } from "./fixtures/sample.js";
import { compareTypeScript } from "./fixtures/typescript.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-formats-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const tools = [...new Set(FORMAT_VECTORS.map(([format]) => format))].map((format) =>
  tool(format, { properties: { text: { type: "string", format } } }),
);

describe("formats in generated code", () => {
  it("formats in generated code are those of the validator in TypeScript", async () => {
    const cases = FORMAT_VECTORS.map(([tool, text, valid]) => ({
      tool,
      side: "args" as const,
      value: { text },
      valid,
    }));
    const { wrong } = await compareTypeScript(dir, "vectors", tools, cases);
    expect(wrong).toEqual([]);
  });

  it("formats in generated code are those of the validator in Rust", ({ skip }) => {
    const version = spawnSync("rustc", ["--version"], { encoding: "utf8" });
    if (version.status !== 0) skip("skipped: rustc is not installed");
    const folder = join(dir, "rust");
    const formats = generateCode("rust", { name: "formats", tools }).files.filter(
      ({ path }) => path === "src/formats.rs",
    );
    mkdirSync(folder);
    writeFiles(folder, formats);
    const rows = FORMAT_VECTORS.map(([format, text]) => `    (${JSON.stringify(format)}, ${rustText(text)}),\n`);
    const main = `#[path = "src/formats.rs"]
mod formats;
const ROWS: &[(&str, &str)] = &[
${rows.join("")}];
fn main() {
    for (format, text) in ROWS {
        println!("{}", formats::format_fits(format, text));
    }
}
`;
    writeFileSync(join(folder, "main.rs"), main);
    const compiled = spawnSync("rustc", ["--edition", "2021", "-D", "warnings", "-o", "program", "main.rs"], {
      cwd: folder,
      encoding: "utf8",
    });
    expect(compiled.stderr).toBe("");
    const ran = spawnSync(join(folder, "program"), { encoding: "utf8" });
    const answers = ran.stdout.trimEnd().split("\n");
    const wrong = FORMAT_VECTORS.filter(([, , fits], i) => answers[i] !== String(fits));
    expect(wrong).toEqual([]);
  });
});

describe("dependencies in generated code", () => {
  it("dependencies in generated code hold in a schema that names no dialect, as in the validator", async () => {
    const rules = { dependencies: { card: ["name"], debit: { required: ["iban"] } } };
    const both = { dependentRequired: { card: ["cvc"] }, dependentSchemas: { debit: { required: ["bic"] } } };
    const closed = {
      dependencies: { a: { properties: { b: true } } },
      properties: { a: true },
      unevaluatedProperties: false,
    };
    const schemas: Record<string, object> = {
      undeclared: rules,
      beside: { ...rules, ...both },
      nested: { properties: { a: rules } },
      closed,
      declared: { $schema: "https://json-schema.org/draft/2020-12/schema", ...rules },
      old: { $schema: "http://json-schema.org/draft-07/schema#", ...rules },
    };
    const values: JsonObject[] = [
      {},
      { card: 1 },
      { card: 1, name: "x" },
      { card: 1, name: "x", cvc: 1 },
      { debit: 1 },
      { debit: 1, iban: 1 },
      { debit: 1, bic: 1 },
      { debit: 1, iban: 1, bic: 1 },
      { a: { card: 1 } },
      { a: 1, b: 1 },
      { a: 1, c: 1 },
    ];
    const named = Object.entries(schemas).map(([name, schema]) => tool(name, schema));
    const cases = named.flatMap(({ name, inputSchema }) => {
      const valid = ownValidator(inputSchema as never);
      return values.map((value) => ({ tool: name, side: "args" as const, value, valid: valid(value) }));
    });
    expect(cases.filter(({ tool, valid }) => tool === "undeclared" && !valid)).toHaveLength(3);
    const { wrong } = await compareTypeScript(dir, "dependencies", named, cases);
    expect(wrong).toEqual([]);
  });
});

function tool(name: string, schema: object): ManifestTool {
  const inputSchema = { type: "object", ...schema } as JsonObject;
  return { name, description: undefined, inputSchema, outputSchema: undefined };
}

/** A Rust string literal. */
function rustText(text: string): string {
  return `"${[...text].map((each) => `\\u{${(each.codePointAt(0) as number).toString(16)}}`).join("")}"`;
}
