import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { policySchema, policySchemaText } from "./document.js";
import { parsePolicy } from "./load.js";

const published = new URL("../../../policy.schema.json", import.meta.url);
const validate = new Ajv2020({ strict: true, allErrors: true, strictTypes: false }).compile(policySchema());

test("policy.schema.json is what the code says (write it anew with UPDATE_SCHEMA=1) [M5]", async () => {
  if (process.env.UPDATE_SCHEMA === "1") {
    const { writeFileSync } = await import("node:fs");
    writeFileSync(published, policySchemaText());
  }
  expect(readFileSync(published, "utf8")).toBe(policySchemaText());
});

test("the example policy fits the schema as an editor reads it", () => {
  const example = parse(readFileSync(new URL("../../../examples/policy.example.yaml", import.meta.url), "utf8"));
  expect(validate(example), JSON.stringify(validate.errors)).toBe(true);
});

describe("schema and loader agree on what a document may look like", () => {
  const samples: [string, boolean][] = [
    ["version: 1\n", true],
    ["version: 1\nlimits: { maxReadBytes: 5_000_000 }\n", true],
    ["version: 2\n", false],
    ["{}\n", true],
    ["version: 1\nallowedRoot: []\n", false],
    ["version: 1\nsandbox: on\n", false],
    ["version: 1\ncommands: [{ id: x, exec: /bin/ls, args: { allow: [1] } }]\n", false],
    ["version: 1\ncommands: [{ exec: /bin/ls }]\n", false],
    ["version: 1\nlimits: { maxCmdConcurrency: 1000 }\n", false],
    ["version: 1\nrunAs: { uid: 0, gid: 0 }\n", false],
    ["version: 1\nrunAs: { uid: 1000, gid: 1000 }\n", true],
    ["version: 1\ncommands: [{ id: x, exec: /bin/ls, platform: [linux, macos] }]\n", true],
  ];
  test.each(samples)("%j: %s", (text, expected) => {
    expect(validate(parse(text))).toBe(expected);
    expect(parsePolicy(text, "policy.yaml").ok).toBe(expected);
  });
});
