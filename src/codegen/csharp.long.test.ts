import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { awkwardManifest } from "./fixtures/awkward.js";
import { writeFiles } from "./fixtures/compile.js";
import { hostileManifest } from "./fixtures/hostile.js";
import { randomTools } from "./fixtures/random.js";
import { compileCSharp, findRoslyn, type Roslyn } from "./fixtures/roslyn.js";
import { manifestFiles } from "./fixtures/sample.js";
import { generate } from "./generate.js";

/** Every n-th manifest; all of them are some three minutes of one core. */
const EVERY = Number(process.env.CODEGEN_CSHARP_EVERY ?? 1);

const dir = mkdtempSync(join(tmpdir(), "portcullis-csharp-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const roslyn = findRoslyn(true);

function project(name: string, manifest: unknown): string[] {
  const folder = join(dir, name);
  writeFiles(folder, generate("csharp", manifest, name === "Misused" ? {} : { name }).files);
  return readdirSync(folder)
    .filter((file) => file.endsWith(".cs"))
    .map((file) => join(folder, file));
}

describe.skipIf(typeof roslyn === "string")(
  `generated C#${typeof roslyn === "string" ? ` (skipped: ${roslyn})` : ""}`,
  () => {
    it("compiles for every manifest, a hostile one included, without a warning", () => {
      const groups = new Map([
        ["hostile", project("hostile", hostileManifest())],
        ["awkward", project("awkward", awkwardManifest())],
        ["random", project("random", { tools: randomTools(150, 21) })],
      ]);
      for (const [i, { name, manifest }] of manifestFiles().entries()) {
        if (i % EVERY === 0) groups.set(name, project(name, manifest));
      }
      const problems = compileCSharp(roslyn as Roslyn, groups);
      console.log(JSON.stringify({ projects: groups.size }));
      expect([...problems].filter(([, found]) => found.length > 0)).toEqual([]);
    });

    it("compiles the FileManager example with its handlers", () => {
      const example = join(import.meta.dirname, "../../examples/filemanager");
      const manifest: unknown = JSON.parse(readFileSync(join(example, "manifest.json"), "utf8"));
      const files = project("FileManager", manifest).filter((file) => !file.endsWith("Handlers.cs"));
      const own = readdirSync(join(example, "csharp")).map((file) => join(example, "csharp", file));
      const problems = compileCSharp(roslyn as Roslyn, new Map([["example", [...files, ...own]]]));
      expect(own).toHaveLength(2);
      expect(problems.get("example")).toEqual([]);
    });

    it("refuses what the types forbid", () => {
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
            Agent<IFileManagerAll> owner, Agent<IHasCap<ReadFile>> reader, GuardrailEvidence<WriteFile, WriteFileArgs, object> forWriting)
        {
            ${statement}
        }
    }
}
`;
      const groups = new Map<string, string[]>();
      for (const [name, [statement]] of Object.entries<[string, string]>({
        ...misuse,
        "what is allowed": ["_ = owner.InvokeTool(forWriting);", ""],
      })) {
        const file = join(dir, `${name.replaceAll(" ", "-")}.cs`);
        writeFileSync(file, body(statement));
        groups.set(name, [...files, file]);
      }
      const problems = compileCSharp(roslyn as Roslyn, groups);
      expect(problems.get("what is allowed")).toEqual([]);
      for (const [name, [, error]] of Object.entries(misuse))
        expect(problems.get(name)?.join("\n"), name).toContain(error);
    });
  },
);
