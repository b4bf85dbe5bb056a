import { describe, expect, it } from "vitest";
import { generateCode } from "../cli/generate.js";

const properties = {
  text: { type: "string" },
  count: { type: "integer" },
  size: { type: "number" },
  on: { type: "boolean" },
  list: { type: "array", items: { type: "string" } },
  map: { type: "object", additionalProperties: { type: "integer" } },
  maybe: { type: ["string", "null"] },
};
const required = Object.keys(properties);

function typesOf(language: string, schema: unknown): string {
  const { files } = generateCode(language, { name: "s", tools: [{ name: "use", inputSchema: schema }] });
  return files.find(({ path }) => /types\.\w+$/i.test(path))?.text ?? "";
}

describe("the table of types", () => {
  it.each([
    [
      "ts",
      [
        "text: string;",
        "count: number;",
        "size: number;",
        "on: boolean;",
        "list: string[];",
        "map: { [name: string]: number };",
        "maybe: string | null;",
      ],
    ],
    [
      "rust",
      [
        "pub text: String,",
        "pub count: i64,",
        "pub size: f64,",
        "pub on: bool,",
        "pub list: Vec<String>,",
        "pub map: BTreeMap<String, i64>,",
        "pub maybe: OrNull<String>,",
      ],
    ],
    [
      "csharp",
      [
        "string Text",
        "long Count",
        "double Size",
        "bool On",
        "IReadOnlyList<string> List",
        "Dictionary<string, long> Map",
        "OrNull<string> Maybe",
      ],
    ],
  ])("the table of types holds in %s", (language, wanted) => {
    const text = typesOf(language, { type: "object", properties, required });
    for (const line of wanted) expect(text).toContain(line);
  });

  it("required is never optional, and absent from required always is [L1]", () => {
    const all = { type: "object", properties, required };
    const none = { type: "object", properties };
    expect(typesOf("ts", all)).not.toContain("?:");
    expect(typesOf("rust", all)).not.toMatch(/pub \w+: Option</);
    expect(typesOf("csharp", all)).not.toContain("= null");
    expect(typesOf("ts", none).match(/\?:/g)).toHaveLength(7);
    expect(typesOf("rust", none).match(/pub \w+: Option</g)).toHaveLength(7);
    expect(typesOf("csharp", none).match(/\? \w+ = null/g)).toHaveLength(7);
    expect(typesOf("rust", none)).toContain("pub maybe: Option<OrNull<String>>,");
  });

  it("puts required parameters first in a record", () => {
    const text = typesOf("csharp", { type: "object", properties: { a: {}, b: {} }, required: ["b"] });
    expect(text.indexOf(" B")).toBeLessThan(text.indexOf(" A = null"));
  });

  it("makes an enum of texts, and of alternatives a closed union", () => {
    const schema = {
      type: "object",
      properties: { e: { enum: ["a", "b-c"] }, u: { oneOf: [{ type: "string" }, { type: "integer" }] } },
    };
    expect(typesOf("ts", schema)).toContain('= "a" | "b-c";');
    expect(typesOf("rust", schema)).toMatch(/#\[serde\(rename = "b-c"\)\]\n {4}BC,/);
    expect(typesOf("rust", schema)).toMatch(/pub enum UseArgsU \{\n {4}String\(String\),\n {4}Integer\(i64\),\n\}/);
    expect(typesOf("csharp", schema)).toContain("public abstract record UseArgsU");
  });
});
