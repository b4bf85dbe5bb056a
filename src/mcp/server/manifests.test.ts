// Tools as real servers list them. Six small manifests stand beside this test; the rest is used where it can be had.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { JsonObject } from "../index.js";
import { catalog, openApi } from "./catalog.js";
import { examples } from "./examples.js";
import { compileDefinition } from "./tool.js";
import type { Tool, ToolDefinition } from "./types.js";

interface Manifest {
  package: string;
  version: string;
  license: string;
  tools: ToolDefinition[];
}

function load(folder: URL): Manifest[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(".json"))
    .map((file) => JSON.parse(readFileSync(new URL(file, folder), "utf8")) as Manifest);
}

const own = load(new URL("../../schema/fixtures/manifests/", import.meta.url));
const shared = new URL("../../../../shared/fixtures/manifests/", import.meta.url);
const all = existsSync(shared) ? load(shared) : [];

/** An empty enum on a required property: nothing can ever fit, so there is no example either. */
const UNSATISFIABLE = new Set(["netlify-coding-rules"]);

async function check(definition: ToolDefinition): Promise<void> {
  const compiled = compileDefinition(definition);
  const reordered = JSON.parse(JSON.stringify(definition), (_, value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).reverse())
      : value,
  ) as ToolDefinition;
  expect(compileDefinition(reordered).definitionHash).toBe(compiled.definitionHash);
  const made = examples(compiled.input, 3);
  if (!UNSATISFIABLE.has(definition.name)) expect(made.length).toBeGreaterThan(0);
  for (const example of made) expect(await compiled.validate(example as JsonObject)).toEqual({ ok: true });
  if (compiled.output === undefined) return;
  const results = examples(compiled.output, 2);
  expect(results.length).toBeGreaterThan(0);
  for (const example of results) expect(await compiled.validateOutput(example)).toEqual({ ok: true });
}

describe.each(
  own.map((manifest) => [`${manifest.package} ${manifest.version} (${manifest.license})`, manifest] as const),
)("%s", (_, { tools }) => {
  it.each(tools.map((tool) => [tool.name, tool] as const))("%s compiles, and its examples fit", (__, tool) =>
    check(tool),
  );

  it("makes a catalog and an OpenAPI document", () => {
    const offered = tools.map(
      (definition) => ({ ...compileDefinition(definition), tags: [], metadata: {} }) as unknown as Tool,
    );
    expect(catalog(offered).tools).toHaveLength(tools.length);
    expect(Object.keys(openApi(offered).paths as JsonObject)).toHaveLength(tools.length);
  });
});

describe("every manifest at hand", () => {
  it.skipIf(all.length === 0)(
    all.length === 0
      ? "is skipped: the folder ../shared/fixtures/manifests is not there"
      : `${all.length} servers, ${all.reduce((sum, { tools }) => sum + tools.length, 0)} tools: each compiles, and its examples fit`,
    async () => {
      for (const { tools } of all) for (const tool of tools) await check(tool);
      expect(all.reduce((sum, { tools }) => sum + tools.length, 0)).toBeGreaterThan(1_000);
    },
  );
});
