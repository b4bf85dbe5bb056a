// The modes: seven ways in which users serve tools.

import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { expect, vi } from "vitest";
import { startPostgres } from "../../src/storage/fixtures/postgres.js";
import { main, programOf } from "./first-hour.js";
import { root } from "./serving.js";
import { type Call, forbidding, type Mode, type Running } from "./stories.js";
import { type ClientEntry, type Gateway, textOf, type World } from "./story-world.js";

const OBSERVE = ["--observe", "--keep-arguments"];

const running = (gateway: Gateway, entries: readonly ClientEntry[] = [{ url: gateway.url }]): Running => ({
  entries,
  reach: ["--url", gateway.url],
  stop: gateway.stop,
});

/** Adds a file to the policies of the data directory. */
const forbidByFile =
  (directory: string) =>
  async (tool: string): Promise<() => Promise<void>> => {
    const file = join(directory, "meanwhile.cedar");
    writeFileSync(file, forbidding(tool));
    return async () => rmSync(file);
  };

/** A directory of the home directory, which servers share with their user. */
function sharedDirectory(world: World): string {
  const directory = join(world.home, "shared");
  mkdirSync(directory);
  return directory;
}

async function succeed(world: World, ...args: string[]): Promise<string> {
  const ran = await world.run(...args);
  expect(ran.code, `${args.join(" ")}: ${ran.stderr}`).toBe(0);
  return ran.stdout;
}

/** `npm start`, on a data directory that does not exist yet. */
export function demo(world: World): Mode {
  const titles = async (client: Client): Promise<string> =>
    JSON.stringify((await client.callTool({ name: "notes.list", arguments: {} })).content);
  return {
    app: "local",
    stateDir: world.data,
    flags: [],
    ledgers: ["ledger"],
    realCall: /^a real call: math\.add/,
    permitted: { tool: "math.add", arguments: { a: 20, b: 22 }, shows: '"sum":42' },
    denied: { tool: "shell.run", arguments: { command: "ls" }, rule: "no-shell" },
    approved: (name) => ({ tool: "notes.delete", arguments: { title: `demo/${name}` } }),
    effects: titles,
    start: async () => {
      const gateway = await world.serve(["--keep-arguments"], [join(root, "scripts/start.mjs")]);
      const client = await world.client({ url: gateway.url });
      for (const name of ["page", "link", "elicited"]) {
        await client.callTool({ name: "notes.write", arguments: { title: `demo/${name}`, text: "a note" } });
      }
      await client.close();
      return running(gateway);
    },
    observe: async () => running(await world.serve(OBSERVE)),
    forbid: forbidByFile(join(world.data, "policy")),
  };
}

/** The tools `look`, `change` and `destroy` under a prefix, which write what they did to a file. */
function loggedTools(prefix: string, log: string): Pick<Mode, "permitted" | "denied" | "approved" | "effects"> {
  const named = (tool: string, at: string): Call => ({ tool: `${prefix}${tool}`, arguments: { at } });
  return {
    permitted: { ...named("look", "home"), shows: "look ran at home" },
    denied: { ...named("destroy", "home"), rule: "nothing-is-destroyed" },
    approved: (name) => named("change", name),
    effects: async () => textOf(log),
  };
}

const NOTHING_DESTROYED = `@id("nothing-is-destroyed") forbid (principal, action in [Action::"destroy"], resource);\n`;

/** `portcullis serve MODULE`, in a data directory with one rule of the operator beside the starter policy. */
export function module(world: World): Mode {
  const log = join(sharedDirectory(world), "effects.log");
  const file = join(world.work, "tools.mjs");
  const policies = join(world.data, "policy");
  return {
    ...loggedTools("", log),
    app: "local",
    stateDir: world.data,
    flags: [],
    ledgers: ["ledger"],
    realCall: /^a real call: math\.add/,
    start: async () => {
      writeFileSync(
        file,
        `import { appendFileSync } from "node:fs";
import { createServer } from ${JSON.stringify(pathToFileURL(join(root, "dist/server.js")).href)};
const server = createServer("own");
for (const name of ["look", "change", "destroy"]) {
  const ran = ({ at }) => { appendFileSync(${JSON.stringify(log)}, name + " " + at + "\\n"); return name + " ran at " + at; };
  const annotations = { readOnlyHint: name === "look" };
  server.tool(name, name, { type: "object", properties: { at: { type: "string" } } }, ran, { noGuardrailRequired: true, annotations });
}
export default server;
`,
      );
      const gateway = await world.serve(["--keep-arguments"], [main, "serve", file]);
      writeFileSync(join(policies, "own.cedar"), NOTHING_DESTROYED);
      const client = await world.client({ url: gateway.url });
      // A tool that is always denied is not listed.
      await vi.waitFor(async () => expect((await client.listTools()).tools).toHaveLength(2), { timeout: 30_000 });
      return running(gateway);
    },
    observe: async () => running(await world.serve(OBSERVE, [main, "serve", file])),
    forbid: forbidByFile(policies),
  };
}

/** Servers from npm that were in the configuration of a client, with the policy that `import` writes. */
export function imported(world: World): Mode {
  const files = sharedDirectory(world);
  const memory = join(files, "memory.jsonl");
  const entity = (name: string) => ({ name, entityType: "person", observations: ["likes tea"] });
  return {
    app: "local",
    stateDir: world.data,
    flags: [],
    ledgers: ["ledger"],
    realCall: /^a real call to local\/memory: memory\.read_graph answered/,
    permitted: {
      tool: "filesystem.read_text_file",
      arguments: { path: join(files, "plan.txt") },
      shows: "water the plants",
    },
    denied: { tool: "memory.delete_entities", arguments: { entityNames: ["ada"] }, rule: "nothing-is-destroyed" },
    approved: (name) => ({ tool: "memory.create_entities", arguments: { entities: [entity(name)] } }),
    effects: async () => textOf(memory),
    start: async () => {
      writeFileSync(join(files, "plan.txt"), "water the plants\n");
      writeFileSync(memory, `${JSON.stringify({ type: "entity", ...entity("ada") })}\n`);
      const servers = {
        filesystem: { command: process.execPath, args: [programOf("filesystem"), files] },
        memory: { command: process.execPath, args: [programOf("memory")], env: { MEMORY_FILE_PATH: memory } },
      };
      mkdirSync(join(world.home, ".cursor"));
      writeFileSync(join(world.home, ".cursor/mcp.json"), JSON.stringify({ mcpServers: servers }));
      await succeed(world, "import", "--from", "cursor", "--yes");
      return running(await world.serve(["--keep-arguments"]));
    },
    observe: async () => running(await world.serve(OBSERVE)),
    forbid: forbidByFile(join(world.data, "policy")),
  };
}

const RULES = `@id("looking") permit (principal, action == Action::"notes.look", resource);
@id("change-when-approved") permit (principal, action == Action::"notes.change", resource);
@id("change-needs-approval") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"notes.change", resource) unless { context.approved };
@id("nothing-is-destroyed") forbid (principal, action == Action::"notes.destroy", resource);
`;

/** Declares applications with the story server and these rules, as `app apply` reads them. */
function declare(world: World, log: string, apps: readonly string[], rules = RULES): string {
  writeFileSync(join(world.work, "rules.cedar"), rules);
  const notes = {
    command: process.execPath,
    args: [join(import.meta.dirname, "story-server.mjs"), log],
    prefix: "notes",
    noGuardrail: ["*"],
  };
  const file = join(world.work, "portcullis.yaml");
  const applications = Object.fromEntries(apps.map((app) => [app, { servers: { notes }, policies: ["rules.cedar"] }]));
  writeFileSync(file, JSON.stringify({ applications }));
  return file;
}

/** Changes the declared rules and applies them to the store. */
const forbidInDocument =
  (world: World, file: string) =>
  async (tool: string): Promise<() => Promise<void>> => {
    const apply = async (rules: string): Promise<void> => {
      writeFileSync(join(world.work, "rules.cedar"), rules);
      await succeed(world, "app", "apply", file, "--yes");
    };
    await apply(`${RULES}${forbidding(tool)}`);
    return () => apply(RULES);
  };

/** Clients of these gateways send the key in KEY. */
const withKey = (...gateways: [Gateway, ...Gateway[]]): Running => ({
  entries: gateways.map(({ url }) => ({ url, headers: { Authorization: "Bearer ${KEY}" } })),
  reach: ["--url", gateways[0].url, "--key-env", "KEY"],
  stop: gateways[0].stop,
});

const addKey = (world: World, app: string): Promise<string> =>
  succeed(world, "key", "add", app, "--name", "writer", "--allow", "invoke(*)", "list");

/** Two applications, each with a key of its own; the stories are those of the first. */
export function applications(world: World): Mode {
  const log = join(sharedDirectory(world), "effects.log");
  const file = declare(world, log, ["blog", "shop"]);
  return {
    ...loggedTools("notes.", log),
    app: "blog",
    stateDir: world.data,
    flags: ["--app", "blog"],
    ledgers: ["ledger"],
    realCall: /^a real call to blog\/notes: notes\.look answered/,
    start: async () => {
      await succeed(world, "app", "apply", file, "--yes");
      world.env.KEY = (await addKey(world, "blog")).trim();
      await addKey(world, "shop");
      return withKey(await world.serve(["--keep-arguments"]));
    },
    observe: async () => withKey(await world.serve(OBSERVE)),
    forbid: forbidInDocument(world, file),
  };
}

/** Two processes on one port. */
export function workers(world: World): Mode {
  const log = join(sharedDirectory(world), "effects.log");
  const file = declare(world, log, ["local"]);
  return {
    ...loggedTools("notes.", log),
    app: "local",
    stateDir: world.data,
    flags: [],
    ledgers: ["ledger/worker-1", "ledger/worker-2"],
    realCall: /^a real call to local\/notes: notes\.look answered/,
    start: async () => {
      await succeed(world, "app", "apply", file, "--yes");
      const gateway = await world.serve(["--workers", "2", "--keep-arguments"]);
      const until = Date.now() + 60_000;
      // The second starts when the first serves.
      while (!existsSync(join(world.data, "ledger/worker-2/checkpoint")) && Date.now() < until) {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      return running(gateway);
    },
    observe: async () => {
      const ledgers = join(world.data, "ledgers");
      const serving = await world.serve([...OBSERVE, "--workers", "2", "--ledger", ledgers]);
      // A worker that is stopped while it starts leaves a ledger without a checkpoint, which `audit verify` reports.
      const isSigned = (): boolean => existsSync(join(ledgers, "worker-2", "checkpoint"));
      const until = Date.now() + 60_000;
      while (!isSigned() && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 50));
      return running(serving);
    },
    forbid: forbidInDocument(world, file),
  };
}

/** `portcullis host`, which a client starts on stdio. */
export function host(world: World): Mode {
  const code = join(world.home, "code");
  const state = join(world.data, "host");
  const entry = (...args: string[]): ClientEntry => ({
    command: process.execPath,
    args: [main, "host", "--log-level", "error", "--challenge-wait", "0.2", ...args],
  });
  const policy = join(state, "policy");
  return {
    app: "host",
    stateDir: state,
    flags: [],
    ledgers: ["host/0"],
    realCall: /^host: a real/,
    permitted: { tool: "fs.read", arguments: { path: join(code, "plan.txt") }, shows: "water the plants" },
    denied: {
      tool: "fs.write",
      arguments: { path: join(world.home, "outside.txt"), data: "x" },
      rule: "outsideWriteZones",
    },
    approved: (name) => ({
      tool: "fs.write",
      arguments: { path: join(code, `${name}.txt`), data: "written\n", overwrite: true },
    }),
    effects: async () =>
      ["page", "link", "elicited"].map((name) => textOf(join(code, `${name}.txt`))).join("") +
      textOf(join(world.home, "outside.txt")),
    start: async () => {
      mkdirSync(code);
      writeFileSync(join(code, "plan.txt"), "water the plants\n");
      const config = join(world.home, ".config/portcullis");
      mkdirSync(config, { recursive: true, mode: 0o700 });
      writeFileSync(
        join(config, "policy.yaml"),
        `version: 1
allowedRoots: ["${code}"]
writeRules: [{ path: "${code}", recursive: true, createIfMissing: true }]
sandbox: preferred
`,
        { mode: 0o600 },
      );
      // The first start writes the starter policy.
      await succeed(world, "ls", "--host");
      writeFileSync(
        join(policy, "ask.cedar"),
        `@id("write-needs-approval") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"fs.write", resource) unless { context.approved };\n`,
      );
      return { entries: [entry("--keep-arguments")], reach: ["--host"] };
    },
    observe: async () => ({ entries: [entry(...OBSERVE)], reach: [] }),
    forbid: forbidByFile(policy),
  };
}

/** Two gateways on one PostgreSQL. */
export function replicas(world: World): Mode {
  const log = join(sharedDirectory(world), "effects.log");
  const file = declare(world, log, ["local"]);
  return {
    ...loggedTools("notes.", log),
    app: "local",
    stateDir: world.data,
    flags: [],
    ledgers: ["ledgers/first", "ledgers/second"],
    realCall: /^a real call to local\/notes: notes\.look answered/,
    start: async () => {
      const postgres = await startPostgres();
      world.onClose(() => postgres.stop());
      world.env.PORTCULLIS_STORAGE = await postgres.database();
      await succeed(world, "app", "apply", file, "--yes");
      world.env.KEY = (await addKey(world, "local")).trim();
      const start = (name: string): Promise<Gateway> =>
        world.serve(["--keep-arguments", "--replica", name, "--ledger", join(world.data, "ledgers", name)]);
      const [first, second] = [await start("first"), await start("second")];
      return withKey(first, second);
    },
    observe: async () =>
      withKey(await world.serve([...OBSERVE, "--replica", "third", "--ledger", join(world.data, "ledgers", "third")])),
    forbid: forbidInDocument(world, file),
  };
}
