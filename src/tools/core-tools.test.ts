// The whole way: two applications with the same tools behind the real gateway, with real storage, git and sandbox.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { localIdentity } from "../auth/index.js";
import { createGateway, toolSummaries } from "../gateway/index.js";
import { Sandbox } from "../host/index.js";
import { type Client, connect } from "../mcp/client/index.js";
import { isJsonObject, type JsonObject } from "../mcp/index.js";
import { ServerBuilder } from "../mcp/server/index.js";
import { createGate, loadPolicy } from "../policy/index.js";
import { openStorage, type Storage } from "../storage/index.js";
import { createTelemetry } from "../telemetry/index.js";
import { createDialer, createOutbound } from "../upstream/index.js";
import {
  applicationValues,
  type CoreApplication,
  coreChecks,
  coreTools,
  historyOf,
  repositoryDirectory,
} from "./index.js";
import { eventStream, openaiStream, type ProviderServer, startProvider } from "./llm/fixtures/provider-server.js";
import { gitIsMissing } from "./state/fixtures/git.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "core-")));
const outbound = createOutbound(createDialer({ allow: ["127.0.0.1"] }));
const closing: (() => unknown)[] = [];
let storage: Storage;
let provider: ProviderServer;
let blog: Client;
let shop: Client;

beforeAll(async () => {
  storage = await openStorage(`sqlite:${join(base, "state.db")}`, { maxValues: 3 });
  provider = await startProvider();
  blog = await client("blog");
  shop = await client("shop");
});
afterAll(async () => {
  for (const close of closing.reverse()) await close();
  await outbound.close();
  await provider.close();
  await storage.close();
  rmSync(base, { recursive: true, force: true });
});

/** As a gateway wires it for one application. */
async function client(id: string): Promise<Client> {
  const directory = join(base, "folders", id);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "note"), `note of ${id}`);
  await storage.applications.put(id, {}, "test");
  const app: CoreApplication = {
    id,
    config: { name: id },
    state: { repository: repositoryDirectory(join(base, "repositories"), id) },
    llm: { provider: "openai", baseUrl: `${provider.origin}/v1`, apiKey: "${secret:key}", models: ["m"] },
    filesystem: {
      allowedRoots: [directory],
      writeRules: [{ path: directory, recursive: true, createIfMissing: true }],
    },
    linux: { commands: [{ id: "cat", exec: "/bin/cat", args: { patterns: [{ value: ".*" }] } }] },
  };
  const telemetry = createTelemetry({ log: { level: "emergency" }, env: {} });
  const sandbox = new Sandbox();
  closing.push(() => sandbox.close());
  const services = {
    log: telemetry.log,
    values: applicationValues(storage.values, id),
    history: historyOf(storage.repositories, id),
    fetch: outbound.fetch,
    resolve: (text: string) => text.replace("${secret:key}", `key-of-${id}`),
    sandbox,
    protectedPaths: [join(base, "repositories"), join(base, "state.db")],
  };
  const server = new ServerBuilder({ name: "core", version: "1" });
  for (const tool of coreTools(app, services)) server.tool(tool);
  const policy = loadPolicy([{ file: "all", text: "permit (principal, action, resource);" }], toolSummaries(server));
  const endpoint = createGateway({
    server,
    gate: createGate({ policy, checks: coreChecks(app, services) }),
    identify: localIdentity({ app: id, agent: "agent" }),
    telemetry,
  });
  const connected = await connect(endpoint);
  closing.push(() => connected.close());
  return connected;
}

async function call(from: Client, name: string, args: JsonObject): Promise<JsonObject> {
  const { structuredContent } = await from.callTool(`core.${name}`, args);
  return isJsonObject(structuredContent) ? structuredContent : {};
}

const missing = gitIsMissing();

describe("behind the gateway", () => {
  it("an application has the tools of the modules that it has settings for [H1]", async () => {
    const names = (await blog.listTools()).map(({ name }) => name).sort();
    expect(names).toEqual([
      "core.filesystem.deleteDirectory",
      "core.filesystem.deleteFile",
      "core.filesystem.listDirectory",
      "core.filesystem.makeDirectory",
      "core.filesystem.move",
      "core.filesystem.readFile",
      "core.filesystem.stat",
      "core.filesystem.writeFile",
      "core.framework.getConfigValue",
      "core.framework.logFrameworkMessage",
      "core.linux.executeCommand",
      "core.llm.generate",
      "core.state.applyDiffToDefinitionFile",
      "core.state.deleteDefinitionFile",
      "core.state.deleteRuntimeValue",
      "core.state.getDefinitionFileContent",
      "core.state.getDefinitionFileHistory",
      "core.state.getFileContent",
      "core.state.getRuntimeValue",
      "core.state.setDefinitionFileContent",
      "core.state.setRuntimeValue",
    ]);
    const log = createTelemetry({ log: { level: "emergency" }, env: {} }).log;
    expect(coreTools({ id: "bare" }, { log }).map(({ definition }) => definition.name)).toEqual([
      "core.framework.getConfigValue",
      "core.framework.logFrameworkMessage",
    ]);
  });

  it("each sees its own settings, values, files and folders, and only those [H6]", async ({ skip }) => {
    if (missing) return skip(missing);
    for (const [from, id] of [
      [blog, "blog"],
      [shop, "shop"],
    ] as const) {
      expect(await call(from, "framework.getConfigValue", { key: "name" })).toMatchObject({ value: id });
      expect(await call(from, "framework.logFrameworkMessage", { message: "hello" })).toEqual({ logged: true });
      expect(await call(from, "state.setRuntimeValue", { key: "k", value: id })).toMatchObject({ version: 1 });
      await call(from, "state.setDefinitionFileContent", { path: "f", content: id });
      expect(await call(from, "filesystem.readFile", { path: "note" })).toMatchObject({ data: `note of ${id}` });
      const run = await call(from, "linux.executeCommand", { command: "cat", args: ["note"] });
      expect(run).toMatchObject({ stdout: `note of ${id}`, exitCode: 0 });
    }
    expect(await call(blog, "state.getRuntimeValue", { key: "k" })).toMatchObject({ value: "blog" });
    expect(await call(blog, "state.getFileContent", { path: "f" })).toMatchObject({ content: "blog" });
    expect(await call(shop, "state.getFileContent", { path: "f" })).toMatchObject({ content: "shop" });
  });

  it("a model's answer streams as progress and is whole in the result, with this application's key [H8]", async () => {
    provider.answer(eventStream(openaiStream(["one ", "two ", "three"])));
    const heard: (string | undefined)[] = [];
    const args = { messages: [{ role: "user", content: "count" }] };
    const result = await shop.callTool("core.llm.generate", args, { onProgress: ({ message }) => heard.push(message) });
    expect(heard).toEqual(["one ", "two ", "three"]);
    expect(result.content).toEqual([{ type: "text", text: "one two three" }]);
    expect(result.structuredContent).toMatchObject({ text: "one two three", finishReason: "stop" });
    expect(provider.heard.at(-1)?.headers.authorization).toBe("Bearer key-of-shop");
  });

  it("what the application's lists refuse is denied by the gate, with the rule [H9]", async () => {
    const outside = blog.callTool("core.filesystem.readFile", { path: "../shop/note" });
    await expect(outside).resolves.toMatchObject({
      isError: true,
      structuredContent: { code: "POLICY_DENY", rule: "outsideAllowedRoots" },
    });
    const unknown = blog.callTool("core.linux.executeCommand", { command: "/bin/sh", args: ["-c", "id"] });
    await expect(unknown).resolves.toMatchObject({
      isError: true,
      structuredContent: { code: "POLICY_DENY", rule: "unknownCommand" },
    });
  });

  it("a store that is full says so", async () => {
    for (const key of ["a", "b", "c"]) await blog.callTool("core.state.setRuntimeValue", { key, value: 1 });
    await expect(blog.callTool("core.state.setRuntimeValue", { key: "d", value: 1 })).resolves.toMatchObject({
      isError: true,
      structuredContent: { rule: "maxValues" },
    });
    const late = blog.callTool("core.state.setRuntimeValue", { key: "a", value: 2, expectedVersion: 9 });
    await expect(late).resolves.toMatchObject({ isError: true, structuredContent: { rule: "conflict", version: 1 } });
  });
});
