// FileManager from end to end: the generated module, the handlers, a server in front of them and an agent that may only
// read. With `--serve <folder>` it serves that folder on standard input and output instead.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, createAgent, toolset } from "portcullis/client";
import { createServer, permitAll, structured } from "portcullis/server";
import { FileManagerCaller } from "./caller.js";
import { DEFINITIONS, TOOL_NAMES } from "./definitions.js";
import { handlers } from "./handlers.js";
import { dispatch } from "./server.js";
import type { FileManagerTools } from "./types.js";

function serverFor(root: string) {
  const server = createServer("FileManager", { policy: permitAll });
  for (const { name, description = "", inputSchema, outputSchema } of DEFINITIONS) {
    server.tool(
      name,
      description,
      inputSchema,
      async (args) => structured((await dispatch(handlers, name, args, { root })) as Record<string, never>),
      { noGuardrailRequired: true, ...(outputSchema !== undefined && { output: outputSchema }) },
    );
  }
  return server;
}

const [mode, folder] = process.argv.slice(2);
if (mode === "--serve" && folder !== undefined) {
  await serverFor(folder).listen({ transport: "stdio" });
} else {
  const root = await mkdtemp(join(tmpdir(), "filemanager-"));
  const server = serverFor(root);
  try {
    await callerReadsAndWrites(server);
    await readerOnlyReads(server);
    console.log("TypeScript: ok");
  } finally {
    await server.close();
    await rm(root, { recursive: true, force: true });
  }
}

async function callerReadsAndWrites(server: ReturnType<typeof serverFor>): Promise<void> {
  const client = await connect(server.handler);
  const files = new FileManagerCaller(client);
  assert.deepEqual(await files.writeFile({ path: "a.txt", content: "grüße" }), { bytes_written: 7 });
  await files.writeFile({ path: "a.txt", content: "!", append: true });
  assert.deepEqual(await files.readFile({ path: "a.txt" }), { content: "grüße!", size_bytes: 8 });
  assert.equal((await files.readFile({ path: "a.txt", encoding: "base64" })).content, "Z3LDvMOfZSE=");
  await assert.rejects(files.readFile({ path: "../../etc/passwd" }), { code: "TOOL_FAILURE" });
  // @ts-expect-error an encoding that the schema does not list; the decoder refuses it before anything is sent
  await assert.rejects(files.readFile({ path: "a.txt", encoding: "utf16" }), { code: "INVALID_ARGS" });
  await client.close();
}

async function readerOnlyReads(server: ReturnType<typeof serverFor>): Promise<void> {
  const tools = toolset<FileManagerTools>()({ names: TOOL_NAMES });
  const owner = await createAgent("owner", tools, {
    app: "files",
    guardrails: { writeFile: ({ arguments: { path } }) => (path.endsWith(".txt") ? undefined : "only texts") },
  }).connect(server.handler);
  const reader = owner.delegate("reader", ["readFile"], { guardrails: { readFile: () => undefined } });

  const write = await owner.guard("writeFile", { path: "b.txt", content: "hello" });
  assert.equal((await owner.call("writeFile", write)).bytes_written, 5);
  await assert.rejects(owner.call("writeFile", write), "a token is good for one call");
  await assert.rejects(owner.guard("writeFile", { path: "b.sh", content: "" }), { name: "GuardrailBlocked" });

  const read = await reader.guard("readFile", { path: "b.txt" });
  assert.equal((await reader.call("readFile", read)).content, "hello");
  // @ts-expect-error the reader does not hold writeFile
  await assert.rejects(reader.guard("writeFile", { path: "b.txt", content: "" }));
  await owner.close();
}
