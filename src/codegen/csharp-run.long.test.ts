// Generated C# under .NET: the formatter, the error table, the FileManager example as server and client, and its protocol.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { generateCode, readRuntime } from "../cli/generate.js";
import { ERRORS } from "../mcp/index.js";
import { writeFiles } from "./fixtures/compile.js";
import { compileCSharp, DOTNET_ENV, type Dotnet, findDotnet } from "./fixtures/dotnet.js";
import { expectErrorRows } from "./fixtures/error-rows.js";
import { runtimeDirectory } from "./generate.js";

const ROOT = join(import.meta.dirname, "../..");
const dir = mkdtempSync(join(tmpdir(), "portcullis-csharp-run-"));
const found = findDotnet(true);
const dotnet = found as Dotnet;
const env = { ...process.env, ...DOTNET_ENV } as Record<string, string>;
const started: ChildProcess[] = [];
afterEach(() => {
  for (const child of started.splice(0)) child.kill("SIGKILL");
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** Compiles a generated project with files of ours into a program. */
function build(name: string, manifest: unknown, own: readonly string[]): string {
  const folder = join(dir, name);
  writeFiles(folder, generateCode("csharp", manifest).files);
  const replaced = new Set(own.map((file) => file.split("/").at(-1)));
  const sources = readdirSync(folder).filter((file) => file.endsWith(".cs") && !replaced.has(file));
  const out = join(folder, `${name}.dll`);
  const files = [...sources.map((file) => join(folder, file)), ...own];
  expect(compileCSharp(dotnet, new Map([[name, { files, out }]])).get(name)).toEqual([]);
  return out;
}

describe.skipIf(typeof found === "string")(
  `generated C# under .NET${typeof found === "string" ? ` (skipped: ${found})` : ""}`,
  () => {
    it("has a runtime that Roslyn's formatter leaves as it is", () => {
      const runtime = fileURLToPath(runtimeDirectory("csharp"));
      const table = join(dir, "ErrorTable.cs");
      writeFileSync(
        table,
        generateCode("csharp", { tools: [] }).files.find(({ path }) => path === "ErrorTable.cs")?.text ?? "",
      );
      const files = [...[...readRuntime("csharp").keys()].map((path) => join(runtime, path)), table];
      expect(files.length).toBeGreaterThan(6);
      expect(compileCSharp(dotnet, new Map([["runtime", { files, format: true }]])).get("runtime")).toEqual([]);
    });

    it("has the gateway's error table, row by row [L3]", () => {
      const main = join(dir, "PrintErrors.cs");
      writeFileSync(
        main,
        `using System; using System.Text.Json; using ServerMcp;
foreach (McpErrorCode code in Enum.GetValues<McpErrorCode>())
{
    McpErrorRow row = McpErrors.Table[code];
    JsonElement wire = JsonSerializer.SerializeToElement(new McpException(code, "why").ToWire());
    Console.WriteLine(JsonSerializer.Serialize(new object[] { code.ToString(), row.Code, row.Legacy, row.Modern, row.HttpStatus, row.Retryable, row.ForModel, row.Message }));
    if (McpException.FromWire(wire).Code != code || wire.GetProperty("code").GetInt32() != row.Legacy) throw new Exception(wire.ToString());
}
`,
      );
      const program = build("errors", { tools: [] }, [main]);
      const { stdout, stderr } = spawnSync(dotnet.program, [program], { encoding: "utf8", env });
      expect(stderr).toBe("");
      expectErrorRows(stdout);
    });

    describe("the FileManager example", () => {
      const example = join(ROOT, "examples/filemanager");
      const manifest = JSON.parse(readFileSync(join(example, "manifest.json"), "utf8")) as { tools: object[] };
      const root = join(dir, "files");
      let program: string;
      beforeAll(() => {
        mkdirSync(root);
        program = build(
          "FileManager",
          manifest,
          readdirSync(join(example, "csharp")).map((file) => join(example, "csharp", file)),
        );
      });

      const client = (...target: string[]) =>
        spawnSync(dotnet.program, [program, "client", ...target], { encoding: "utf8", env, timeout: 60_000 });

      async function serveHttp(): Promise<string> {
        const child = spawn(dotnet.program, [program, "http", root], { env, stdio: ["ignore", "pipe", "inherit"] });
        started.push(child);
        for await (const line of createInterface({ input: child.stdout })) return line;
        throw new Error("the server ended without an address");
      }

      it("runs as a client of itself on standard input and output [L6]", () => {
        expect(client(dotnet.program, program, "serve", root)).toMatchObject({
          status: 0,
          stdout: "C# client: ok\n",
          stderr: "",
        });
        expect(readFileSync(join(root, "c.txt"), "utf8")).toBe("hello");
      });

      it("runs as a client of itself by HTTP [L6]", async () => {
        expect(client(await serveHttp())).toMatchObject({ status: 0, stdout: "C# client: ok\n", stderr: "" });
      });

      it.each(["stdio", "http"])("serves the official client by %s [L3]", async (kind) => {
        const transport =
          kind === "stdio"
            ? new StdioClientTransport({ command: dotnet.program, args: [program, "serve", root], env })
            : new StreamableHTTPClientTransport(new URL(await serveHttp()));
        const official = new Client({ name: "test", version: "1" });
        await official.connect(transport as never);
        try {
          const { tools } = await official.listTools();
          expect(tools).toMatchObject(manifest.tools.map((tool) => tool));
          const written = await official.callTool({
            name: "writeFile",
            arguments: { path: "o.txt", content: "grüße" },
          });
          expect(written.structuredContent).toEqual({ bytes_written: 7 });
          const missing = await official.callTool({ name: "readFile", arguments: { encoding: "utf8" } });
          expect(missing).toMatchObject({
            isError: true,
            _meta: { "portcullis/error": { code: "INVALID_ARGS", retryable: false } },
          });
          await expect(official.callTool({ name: "nothing", arguments: {} })).rejects.toMatchObject({
            code: ERRORS.ToolNotFound.legacy,
            data: { code: "TOOL_NOT_FOUND" },
          });
          await expect(official.callTool({ name: "readFile", arguments: { path: "../x" } })).rejects.toMatchObject({
            code: ERRORS.AuthorizationError.legacy,
            data: { code: "FORBIDDEN" },
          });
        } finally {
          await official.close();
        }
      });

      it("answers nothing but ping before initialize, and denies sessions and origins that it does not know [L3]", async () => {
        const url = await serveHttp();
        const post = async (message: object, headers: Record<string, string> = {}) => {
          const response = await fetch(url, {
            method: "POST",
            headers: { "content-type": "application/json", ...headers },
            body: JSON.stringify(message),
          });
          return { status: response.status, body: (await response.json()) as unknown };
        };
        const call = {
          jsonrpc: "2.0",
          id: 1,
          method: "tools/call",
          params: { name: "writeFile", arguments: { path: "w.txt", content: "x" } },
        };
        expect(await post(call)).toMatchObject({
          body: { id: 1, error: { code: -32600, data: { code: "WRONG_PHASE" } } },
        });
        expect(await post({ jsonrpc: "2.0", id: 2, method: "ping" })).toMatchObject({
          status: 200,
          body: { result: {} },
        });
        expect(await post(call, { "mcp-session-id": "unknown" })).toMatchObject({
          status: 404,
          body: { error: { data: { code: "SESSION_NOT_FOUND" } } },
        });
        expect(await post(call, { origin: "https://example.com" })).toMatchObject({
          status: 403,
          body: { error: { data: { code: "FORBIDDEN" } } },
        });
        expect(readdirSync(root)).not.toContain("w.txt");
      });

      it("the FileManager example is a client of the TypeScript example [L6]", () => {
        const run = spawnSync(process.execPath, [join(example, "run.mjs"), "ts"], { encoding: "utf8" });
        expect(run.stderr).toBe("");
        const main = join(example, ".generated/typescript/main.js");
        expect(client(process.execPath, main, "--serve", root)).toMatchObject({ status: 0, stdout: "C# client: ok\n" });
      });
    });
  },
);
