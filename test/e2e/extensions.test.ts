// What an operator adds to a gateway, with several processes: guardrails of a document (a JavaScript file and a tool of an
// MCP server), own tool modules, core.* of another gateway, the policy.yaml of a host, catalog and tools by HTTP. Each call is
// made several times, so that every process answers some of them.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { startPostgres } from "../../src/storage/fixtures/postgres.js";
import { type Deployment, deploy } from "./gateway-world.js";
import { root } from "./serving.js";
import { type ClientEntry, type Gateway, textOf, World } from "./story-world.js";

const IN_A_ROW = 6;
const SERVER = pathToFileURL(join(root, "dist/server.js")).href;

type Start = (world: World, args: readonly string[]) => Promise<Gateway[]>;

const MODES: readonly (readonly [string, Start])[] = [
  ["two workers", async (world, args) => [await world.serve(["--workers", "2", ...args])]],
  [
    "two replicas on PostgreSQL",
    async (world, args) => {
      const start = (name: string): Promise<Gateway> =>
        world.serve(["--replica", name, "--ledger", join(world.data, "ledgers", name), ...args]);
      return [await start("first"), await start("second")];
    },
  ],
];

describe.each(MODES)("%s", (mode, start) => {
  const world = new World();
  const files = join(world.home, "files");
  // A directory of the home directory, which servers share with their user.
  const log = join(world.home, "shared/effects.log");
  let core: Deployment;
  let gateways: Gateway[] = [];
  let clients: Client[] = [];

  beforeAll(async () => {
    if (mode.includes("PostgreSQL")) {
      const postgres = await startPostgres();
      world.onClose(() => postgres.stop());
      world.env.PORTCULLIS_STORAGE = await postgres.database();
    }
    core = await deploy("permit (principal, action, resource);", { modules: ["framework"] });
    await core.put("platform", { config: { theme: "dark" }, permissions: ["core.framework.getConfigValue"] });
    world.env.CORE_KEY = await core.key("platform", "app-server");
    mkdirSync(files);
    mkdirSync(join(world.home, "shared"));
    writeFileSync(join(files, "plan.txt"), "water the plants\n");
    writeFileSync(join(world.home, "outside.txt"), "not for agents\n");
    writeFileSync(join(world.work, "policy.yaml"), POLICY(files));
    writeFileSync(join(world.work, "rules.cedar"), "permit (principal, action, resource);");
    writeFileSync(join(world.work, "scanner.mjs"), SCANNER(log));
    writeFileSync(join(world.work, "mine.mjs"), MINE);
    mkdirSync(join(world.data, "guardrails"), { recursive: true, mode: 0o700 });
    writeFileSync(join(world.data, "guardrails/words.mjs"), WORDS);
    const program = (file: string, ...args: string[]) => ({ command: process.execPath, args: [file, ...args] });
    const local = {
      servers: {
        notes: { ...program(join(import.meta.dirname, "story-server.mjs"), log), prefix: "notes" },
        scanner: { ...program(join(world.work, "scanner.mjs")), prefix: "scanner", noGuardrail: ["check"] },
        platform: { url: core.url, auth: { type: "bearer", token: "${env:CORE_KEY}" }, noGuardrail: ["*"] },
      },
      routes: { core: { server: "platform", strip: false } },
      guardrails: [
        { id: "words", tool: "notes.*", module: "words.mjs" },
        { id: "scan", tool: "notes.*", call: "scanner.check" },
      ],
      config: { name: "ann" },
      permissions: ["mine.*", "core.*"],
      policies: ["rules.cedar"],
    };
    const laptop = {
      hostPolicy: "policy.yaml",
      permissions: ["core.filesystem.*", "core.linux.*"],
      policies: ["rules.cedar"],
    };
    const document = join(world.work, "portcullis.yaml");
    writeFileSync(document, JSON.stringify({ applications: { local, laptop } }));
    const applied = await world.run("app", "apply", document, "--yes");
    expect(applied.code, applied.stderr).toBe(0);
    for (const [name, app] of [
      ["KEY", "local"],
      ["LAPTOP_KEY", "laptop"],
    ] as const) {
      const made = await world.run("key", "add", app, "--name", "writer", "--allow", "invoke(*)", "list");
      world.env[name] = made.stdout.trim();
    }
    gateways = await start(world, ["--modules", "filesystem,linux,./mine.mjs"]);
    clients = await Promise.all(entries("KEY").map((entry) => world.client(entry)));
    // A worker that starts later reads the tools of its servers itself.
    await vi.waitFor(() => everywhere("notes.look", { at: "home" }, "look ran at home"), {
      timeout: 60_000,
      interval: 200,
    });
  }, 240_000);
  afterAll(async () => {
    await world.close();
    await core?.close();
  });

  const entries = (key: string): ClientEntry[] =>
    gateways.map(({ url }) => ({ url, headers: { Authorization: `Bearer \${${key}}` } }));

  /** The same answer from every process. */
  async function everywhere(tool: string, args: Record<string, unknown>, shows: string, at = clients): Promise<void> {
    for (const client of at) {
      for (let i = 0; i < IN_A_ROW; i++) {
        const answer = await client.callTool({ name: tool, arguments: args });
        expect(JSON.stringify(answer)).toContain(shows);
      }
    }
  }

  it(`with ${mode}, a guardrail of the document that is a JavaScript file blocks the call before the tool [L8 L10]`, async () => {
    await everywhere("notes.change", { at: "no" }, "writer may not notes.change");
    expect(textOf(log)).not.toContain("change no");
    await everywhere("notes.change", { at: "yes" }, "change ran at yes");
    expect(textOf(log)).toContain("change yes");
  });

  it(`with ${mode}, a guardrail of the document that is a tool of an MCP server blocks the call before the tool [L8]`, async () => {
    await everywhere("notes.change", { at: "a secret" }, "the scanner found a secret");
    expect(textOf(log)).not.toContain("change a secret");
    expect(textOf(log)).toContain("scanned a secret");
  });

  it(`with ${mode}, tools of an own module are served beside the built-in ones, to the application that permits them [H1]`, async () => {
    await everywhere("mine.greet", {}, "local greets ann");
    const laptop = await Promise.all(entries("LAPTOP_KEY").map((entry) => world.client(entry)));
    for (const client of laptop) {
      const names = (await client.listTools()).tools.map(({ name }) => name);
      expect(names.filter((name) => name.startsWith("mine"))).toEqual([]);
      await expect(client.callTool({ name: "mine.greet", arguments: {} })).rejects.toThrow("there is no tool");
    }
  });

  it(`with ${mode}, core.* is routed to the Core server, which knows the caller as this gateway [H1 H2]`, async () => {
    await everywhere("core.framework.getConfigValue", { key: "theme" }, "dark");
  });

  it(`with ${mode}, the policy.yaml of a host holds for core.filesystem and core.linux [H10]`, async () => {
    const laptop = await Promise.all(entries("LAPTOP_KEY").map((entry) => world.client(entry)));
    const outside = join(world.home, "outside.txt");
    await everywhere("core.filesystem.readFile", { path: join(files, "plan.txt") }, "water the plants", laptop);
    await everywhere("core.filesystem.readFile", { path: outside }, "outsideAllowedRoots", laptop);
    await everywhere("core.linux.executeCommand", { command: "cat", args: [join(files, "plan.txt")] }, "water", laptop);
    await everywhere("core.linux.executeCommand", { command: "touch", args: [outside] }, "unknownCommand", laptop);
    expect(textOf(outside)).toBe("not for agents\n");
  });

  it(`with ${mode}, POST /tools/{name} returns the result of an upstream tool, and the catalog is the application's [G3]`, async () => {
    const headers = {
      authorization: `Bearer ${world.env.KEY}`,
      "content-type": "application/json",
      connection: "close",
    };
    for (const { url } of gateways) {
      for (let i = 0; i < IN_A_ROW; i++) {
        const called = await fetch(new URL("/tools/notes.look", url), {
          method: "POST",
          headers,
          body: '{"at":"home"}',
        });
        expect([called.status, await called.json()]).toEqual([
          200,
          expect.objectContaining({ content: [{ type: "text", text: "look ran at home" }] }),
        ]);
        const blocked = await fetch(new URL("/tools/notes.change", url), {
          method: "POST",
          headers,
          body: '{"at":"no"}',
        });
        expect(await blocked.text()).toContain("writer may not notes.change");
        const catalog = JSON.stringify(await (await fetch(new URL("/catalog.json", url), { headers })).json());
        expect(catalog).toContain('"notes.look"');
        expect(catalog).not.toContain("core.filesystem");
      }
      const printed = await world.run("catalog", "--url", url, "--key-env", "LAPTOP_KEY");
      expect(printed.stdout, printed.stderr).toContain("core.filesystem.readFile");
      expect(printed.stdout).not.toContain("notes.look");
    }
    expect(textOf(log)).not.toContain("change no");
  });
});

const POLICY = (directory: string): string => `version: 1
allowedRoots: ["${directory}"]
commands:
  - { id: cat, exec: /bin/cat, args: { patterns: [{ value: ".*" }] } }
`;

const WORDS = `export default ({ agent, tool, arguments: { at } }) => (at === "no" ? agent + " may not " + tool : undefined);`;

const MINE = `import { defineTool } from ${JSON.stringify(SERVER)};
export default ({ id, config }) => [defineTool({
  name: "mine.greet", description: "greets", input: { type: "object" }, noGuardrailRequired: true,
  handler: () => id + " greets " + config.name,
})];
`;

const SCANNER = (log: string): string => `import { appendFileSync } from "node:fs";
import { createServer, permitAll, structured } from ${JSON.stringify(SERVER)};
const server = createServer({ name: "scanner", version: "1.0.0" }, { policy: permitAll });
server.tool("check", "checks a call", { type: "object" }, ({ arguments: { at } }) => {
  appendFileSync(${JSON.stringify(log)}, "scanned " + at + "\\n");
  return structured(at.includes("secret") ? { allow: false, reason: "the scanner found a secret" } : { allow: true });
}, { noGuardrailRequired: true });
await server.listen({ transport: "stdio" });
`;
