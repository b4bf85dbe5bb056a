import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { generateCode } from "../cli/generate.js";
import { compileTypeScript, writeFiles } from "./fixtures/compile.js";
import { HOSTILE, hostileManifest, REPORTED } from "./fixtures/hostile.js";
import { MANIFESTS, manifestFiles } from "./fixtures/sample.js";
import { LANGUAGES } from "./generate.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-codegen-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe("code from real manifests", () => {
  const all = manifestFiles();

  it.each(LANGUAGES)(
    "code from real manifests is generated for %s, twice the same, with hardly an opaque field",
    (language) => {
      const total = { tools: 0, typed: 0, opaque: 0, unsupported: 0 };
      for (const [i, { name, manifest }] of all.entries()) {
        const first = generateCode(language, manifest, { name });
        if (i % 4 === 0) {
          const again = generateCode(language, structuredClone(manifest), { name });
          expect(JSON.stringify(again) === JSON.stringify(first), name).toBe(true);
        }
        total.tools += first.tools;
        total.typed += first.fields.typed;
        total.opaque += first.fields.opaque;
        total.unsupported += new Set(
          first.reports.filter(({ level }) => level === "unsupported").map(({ tool }) => tool),
        ).size;
      }
      console.log(
        `${language}: ${JSON.stringify(total)} from ${existsSync(MANIFESTS) ? "all manifests" : "the few kept here"}`,
      );
      expect(total.opaque / total.typed).toBeLessThan(0.02);
      expect(total.unsupported / total.tools).toBeLessThan(0.02);
    },
  );

  it("compiles as strict TypeScript [L1]", () => {
    const folder = join(dir, "real");
    for (const { name, manifest } of all) writeFiles(join(folder, name), generateCode("ts", manifest, { name }).files);
    expect(compileTypeScript(folder)).toBe("");
  });
});

describe("capabilities", () => {
  // The compiler at hand makes one assembly of everything, so that it cannot show what another one is refused.
  it("capabilities are made by no other C# assembly: nothing that carries authority has a constructor for others", () => {
    const { files } = generateCode("csharp", { name: "files", tools: [{ name: "read" }] }, { unguarded: ["read"] });
    const text = files.flatMap(({ path, text }) => (/^(?:Capability|Tools)\.cs$/.test(path) ? [text] : [])).join("\n");
    const classes = [...text.matchAll(/public (?:sealed |abstract )class (\w+)/g)].map(([, name]) => name as string);
    const made = Object.fromEntries(
      classes.map((name) => [
        name,
        text.match(new RegExp(`\\w+(?= ${name}\\()`, "g"))?.filter((word) => word !== "new"),
      ]),
    );
    expect(made).toMatchObject({
      ToolCap: ["internal"],
      Read: ["private"],
      Agent: ["internal"],
      GuardrailEvidence: ["internal"],
      GuardrailOutcome: ["internal"],
      CallbackRunner: ["internal"],
    });
    expect(text).toContain("internal abstract TOutput Decode(");
    expect(text).not.toContain("InternalsVisibleTo");
  });

  it("capabilities are sealed in Rust: only the crate itself says that a type is a tool (the long tests compile attempts)", () => {
    const text = (path: string): string =>
      generateCode("rust", { name: "files", tools: [{ name: "read" }] }).files.find((file) => file.path === path)
        ?.text ?? "";
    expect(text("src/capability.rs")).toContain("pub trait ToolCap: sealed::Tool + ");
    expect(text("src/capability.rs")).toContain("pub(crate) mod sealed {");
    expect(text("src/tools.rs")).toContain("impl sealed::Tool for Read {}");
  });
});

describe("code from a hostile manifest", () => {
  it("compiles as strict TypeScript", () => {
    const folder = join(dir, "hostile");
    writeFiles(folder, generateCode("ts", hostileManifest()).files);
    expect(compileTypeScript(folder)).toBe("");
  });

  it.each(LANGUAGES)("shows %s nothing hidden", (language) => {
    for (const { path, text } of generateCode(language, hostileManifest()).files) {
      if (path.endsWith(".json")) continue;
      expect(
        // oxlint-disable-next-line no-control-regex -- those are what is looked for
        text.match(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g),
        path,
      ).toBeNull();
    }
  });

  it("reports every part that is not honoured, and where it is [L1]", () => {
    const { reports } = generateCode("ts", hostileManifest());
    const hard = reports.filter(({ level }) => level === "unsupported");
    expect(new Set(hard.map(({ tool }) => tool))).toEqual(REPORTED);
    expect(hard).toContainEqual(
      expect.objectContaining({
        tool: "missing-ref",
        path: "/inputSchema/properties/b/$ref",
        message: expect.stringContaining("nothing is fetched"),
      }),
    );
    expect(reports).toContainEqual(
      expect.objectContaining({ level: "note", tool: "annotations", path: "/inputSchema/properties/a/nullable" }),
    );
    const rust = generateCode("rust", hostileManifest()).reports.filter(({ level }) => level === "unsupported");
    expect(rust).toContainEqual(
      expect.objectContaining({ tool: "backref", message: expect.stringContaining("refers back") }),
    );
  });
});

describe("a manifest that cannot be generated from", () => {
  const deep = (depth: number): unknown => (depth === 0 ? {} : { items: deep(depth - 1) });

  it.each([
    [{}, "a list `tools`"],
    [{ tools: [{ inputSchema: {} }] }, "tools[0] of the manifest has no name"],
    [{ tools: [{ name: "a" }, { name: "a" }] }, "lists the tool `a` twice"],
    [{ tools: [{ name: "a", inputSchema: "x" }] }, "`inputSchema` of the tool `a` is not a schema"],
    [{ tools: [{ name: "a", inputSchema: deep(200) }] }, "nested deeper than 128 levels (maxDepth)"],
    [
      { tools: [{ name: "a", inputSchema: { enum: Array.from({ length: 60_000 }, (_, i) => i) } }] },
      "more than 50000 values (maxValues)",
    ],
  ])("says what is wrong with it: %#", (manifest, problem) => {
    expect(() => generateCode("ts", manifest)).toThrow(problem);
  });

  it("names the languages there are", () => {
    expect(() => generateCode("cobol", HOSTILE)).toThrow("there is no target `cobol`; choose ts, rust, csharp");
  });

  it("leaves no tool unguarded that does not exist", () => {
    expect(() => generateCode("rust", { tools: [] }, { unguarded: ["x"] })).toThrow("there is no tool `x`");
  });
});

it("asks serde_json for floats that come back as they were sent", () => {
  const manifest = { tools: [{ name: "a", inputSchema: { type: "object", properties: { x: { type: "number" } } } }] };
  const cargo = generateCode("rust", manifest, { name: "a" }).files.find(({ path }) => path === "Cargo.toml");
  // Without it 122.416294033786585 is read as 122.4162940337866.
  expect(cargo?.text).toContain('serde_json = { version = "1", features = ["float_roundtrip"] }');
});
