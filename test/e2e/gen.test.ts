// Code from a server's tools, asked for at the command line; and the FileManager example, as a reader would run it.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { compileTypeScript } from "../../src/codegen/fixtures/compile.js";
import { portcullis, root } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-gen-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const manifest = join(root, "examples/filemanager/manifest.json");

describe("portcullis gen", () => {
  it.each([
    ["ts", "types.ts", "export interface ReadFileArgs"],
    ["rust", "src/types.rs", "pub struct ReadFileArgs"],
    ["csharp", "Types.cs", "public sealed record ReadFileArgs"],
  ])("portcullis gen writes %s from a manifest", (language, file, text) => {
    const { code, stdout } = portcullis(["gen", language, manifest, "-o", join(dir, language)]);
    expect(code).toBe(0);
    expect(stdout).toContain("files for 2 tools");
    expect(readFileSync(join(dir, language, file), "utf8")).toContain(text);
  });

  it("portcullis gen asks a server that it starts, and the result compiles", () => {
    const out = join(dir, "live");
    const file = join(dir, "server.mjs");
    writeFileSync(
      file,
      `import { createServer, permitAll } from ${JSON.stringify(pathToFileURL(join(root, "dist/server.js")).href)};
       const schema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
       const server = createServer("live one", { policy: permitAll }).tool("say.it", "Says", schema, ({ text }) => text);
       await server.listen({ transport: "stdio" });`,
    );
    const { code, stderr } = portcullis(["gen", "ts", "-o", out, "--", process.execPath, file]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(readFileSync(join(out, "types.ts"), "utf8")).toMatch(
      /export interface LiveOneTools \{\n.*Says.*\n {2}"say.it": \{ args: SayItArgs; result: unknown \};/,
    );
    expect(compileTypeScript(out)).toBe("");
  });

  it("portcullis gen never overwrites handlers", () => {
    const out = join(dir, "kept");
    portcullis(["gen", "ts", manifest, "-o", out]);
    writeFileSync(join(out, "handlers.ts"), "// mine\n");
    const { stdout } = portcullis(["--json", "gen", "ts", manifest, "-o", out]);
    expect(JSON.parse(stdout)).toMatchObject({ tools: 2, kept: ["handlers.ts"] });
    expect(readFileSync(join(out, "handlers.ts"), "utf8")).toBe("// mine\n");
  });

  it("portcullis gen reports what it does not support, and fails for it with --strict", () => {
    const file = join(dir, "odd.json");
    writeFileSync(
      file,
      JSON.stringify({ tools: [{ name: "t", inputSchema: { properties: { a: { $ref: "https://example.com/x" } } } }] }),
    );
    const { code, stderr } = portcullis(["gen", "rust", file, "-o", join(dir, "odd"), "--strict"]);
    expect(code).toBe(1);
    expect(stderr).toContain('unsupported "t" "/inputSchema/properties/a/$ref"');
  });

  it("portcullis gen names what is wrong with a source", () => {
    expect(portcullis(["gen", "ts", join(dir, "nowhere.json")]).code).toBe(64);
    writeFileSync(join(dir, "bad.json"), '{"tools":[{"name":"a"},{"name":"a"}]}');
    const { code, stderr } = portcullis(["gen", "ts", join(dir, "bad.json"), "-o", join(dir, "bad")]);
    expect(code).toBe(1);
    expect(stderr).toContain("lists the tool `a` twice");
  });
});

describe("the FileManager example", () => {
  const run = (language: string) =>
    spawnSync(process.execPath, [join(root, "examples/filemanager/run.mjs"), language], {
      encoding: "utf8",
      timeout: 240_000,
      env: { ...process.env, NO_COLOR: "1" },
    });

  it("the FileManager example runs from end to end in TypeScript [L6]", () => {
    const { status, stdout, stderr } = run("ts");
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toContain("TypeScript: ok");
  });

  it("the FileManager example is generated in C# (the long tests compile it) [L6]", () => {
    expect(run("csharp").status).toBe(0);
    expect(existsSync(join(root, "examples/filemanager/.generated/csharp/FileManager.csproj"))).toBe(true);
  });
});
