import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { generateCode, readRuntime } from "../cli/generate.js";
import { awkwardManifest } from "./fixtures/awkward.js";
import { writeFiles } from "./fixtures/compile.js";
import { compileCSharp, type Dotnet, findDotnet } from "./fixtures/dotnet.js";
import { hostileManifest } from "./fixtures/hostile.js";
import { randomTools } from "./fixtures/random.js";
import { manifestFiles } from "./fixtures/sample.js";

/** Every n-th manifest; all of them are some three minutes of one core. */
const EVERY = Number(process.env.CODEGEN_CSHARP_EVERY ?? 1);

const dir = mkdtempSync(join(tmpdir(), "portcullis-csharp-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const dotnet = findDotnet(true);

function project(name: string, manifest: unknown): string[] {
  const folder = join(dir, name);
  writeFiles(folder, generateCode("csharp", manifest, name === "Misused" ? {} : { name }).files);
  return readdirSync(folder)
    .filter((file) => file.endsWith(".cs"))
    .map((file) => join(folder, file));
}

/** A tool for each word of the runtime that could be a type: none of them may hide what the runtime means by it. */
function wordsOfRuntime(): { name: string }[] {
  const words = [...readRuntime("csharp").values()].flatMap((text) => text.match(/\b[A-Z]\w+/g) ?? []);
  return [...new Set(words)].map((name) => ({ name }));
}

describe.skipIf(typeof dotnet === "string")(
  `generated C#${typeof dotnet === "string" ? ` (skipped: ${dotnet})` : ""}`,
  () => {
    it("compiles for every manifest, a hostile one included, without a warning [L3]", () => {
      const groups = new Map([
        ["hostile", { files: project("hostile", hostileManifest()) }],
        ["awkward", { files: project("awkward", awkwardManifest()) }],
        ["random", { files: project("random", { tools: randomTools(150, 21) }) }],
        ["named like the runtime", { files: project("words", { tools: wordsOfRuntime() }) }],
      ]);
      for (const [i, { name, manifest }] of manifestFiles().entries()) {
        if (i % EVERY === 0) groups.set(name, { files: project(name, manifest) });
      }
      const problems = compileCSharp(dotnet as Dotnet, groups);
      console.log(JSON.stringify({ projects: groups.size }));
      expect([...problems].filter(([, found]) => found.length > 0)).toEqual([]);
    });

    it("refuses what the types forbid [L3]", () => {
      const files = project("FileManager", {
        name: "FileManager",
        tools: [
          { name: "readFile", inputSchema: {} },
          { name: "writeFile", inputSchema: {} },
        ],
      });
      const misuse: Record<string, [code: string, error: string]> = {
        "a call outside the set": ["reader.InvokeTool(forWriting);", "CS0311"],
        "a delegation of what is not held": ['reader.Delegate("x", WriteFile.Cap);', "CS0311"],
        "a call without evidence": ["owner.InvokeTool(new WriteFileArgs());", "CS0411"],
        "evidence of one's own making": ["new GuardrailEvidence<WriteFile, WriteFileArgs, object>();", "CS7036"],
        "a call before the handshake": [
          "new McpHandshake(transport).CallToolAsync(WriteFile.Cap.Name, default, default);",
          "CS1061",
        ],
        "an agent on a connection that has not agreed on anything": [
          'FileManagerCapabilities.Root("x", new McpHandshake(transport));',
          "CS1503",
        ],
        "a session of one's own making": ["new McpSession(transport);", "CS7036"],
        "no guardrail where one is needed": [
          "UncheckedInvocation.For(owner, WriteFile.Cap, new WriteFileArgs());",
          "CS0311",
        ],
      };
      const body = (statement: string): string => `#nullable enable
using System.Threading.Tasks;
namespace FileManagerMcp
{
    public static class Misuse
    {
        public static void Try(
            Agent<IFileManagerAll> owner, Agent<IHasCap<ReadFile>> reader, GuardrailEvidence<WriteFile, WriteFileArgs, object> forWriting,
            IMcpTransport transport)
        {
            ${statement}
        }
    }
}
`;
      const groups = new Map<string, { files: string[] }>();
      for (const [name, [statement]] of Object.entries<[string, string]>({
        ...misuse,
        "what is allowed": [
          '_ = owner.InvokeTool(forWriting); _ = new McpHandshake(transport).InitializeAsync("x", "1");',
          "",
        ],
      })) {
        const file = join(dir, `${name.replaceAll(" ", "-")}.cs`);
        writeFileSync(file, body(statement));
        groups.set(name, { files: [...files, file] });
      }
      const problems = compileCSharp(dotnet as Dotnet, groups);
      expect(problems.get("what is allowed")).toEqual([]);
      for (const [name, [, error]] of Object.entries(misuse))
        expect(problems.get(name)?.join("\n"), name).toContain(error);
    });
  },
);
