// Profiles of imported servers.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { applicationProblems, type ServerEntry } from "../../storage/index.js";
import { planImport } from "./import.js";
import { importedSandbox } from "./sandbox.js";

let base: string;
let home: string;
beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-imported-")));
  home = join(base, "home");
  mkdirSync(join(home, "files"), { recursive: true });
  mkdirSync(join(home, "work", ".portcullis"), { recursive: true });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const of = (entry: ServerEntry, env: Record<string, string> = {}) =>
  importedSandbox(entry, { home, env, dir: join(home, "work", ".portcullis"), platform: "linux" });

const node = (...args: string[]): ServerEntry => ({ command: "node", args });
const PACKAGES = "/opt/servers/node_modules/@modelcontextprotocol";

describe("the profile of an imported server", () => {
  it("an imported server writes what its entry names, and reaches the hosts that it is known to need [G8]", () => {
    const files = join(home, "files");
    writeFileSync(join(files, "notes.txt"), "");
    const sandbox = (entry: ServerEntry) => of(entry).entry.sandbox;
    const offline = { mode: "preferred", network: "off" };
    expect(sandbox(node(`${PACKAGES}/server-filesystem/dist/index.js`, files))).toEqual({ ...offline, write: [files] });
    expect(sandbox(node(`${PACKAGES}/server-everything/dist/index.js`))).toEqual(offline);
    const memory = {
      ...node(`${PACKAGES}/server-memory/dist/index.js`),
      env: { MEMORY_FILE_PATH: `${files}/new.jsonl` },
    };
    expect(sandbox(memory)).toEqual({ ...offline, write: [files] });
    expect(sandbox({ command: "python3", args: ["-m", "mcp_server_git", `--repository=${files}`] })).toEqual({
      ...offline,
      write: [files],
    });
    const database = { command: "mcp-server-sqlite", args: ["--db-path", `${files}/a.db`] };
    expect(sandbox(database)).toEqual({ ...offline, write: [files] });
    expect(sandbox({ command: "mcp-server-fetch" })).toEqual({ mode: "preferred", network: "public" });
    writeFileSync(join(files, "key.json"), "");
    const keyed = { command: "x", env: { SERVICE_API_KEY: `${files}/key.json` } };
    expect(sandbox(keyed)).toEqual({ mode: "preferred", read: [`${files}/key.json`], network: "public" });
    expect(sandbox(node("/opt/x/index.js", `${files}/notes.txt`))).toEqual({
      mode: "preferred",
      write: [files],
      network: "public",
    });
  });

  it("an imported package is fetched from its registry, with no credential of the user", () => {
    const npx = { command: "npx", args: ["-y", "@modelcontextprotocol/server-github@1.2.3"] };
    const npm = { npm_config_registry: "https://packages.example.com:8443/npm/" };
    expect(of(npx, npm).entry).toMatchObject({
      env: npm,
      sandbox: { network: ["api.github.com", "packages.example.com:8443"] },
    });
    expect(of({ command: "uvx", args: ["mcp-server-time"] }).entry.sandbox).toMatchObject({
      network: ["pypi.org", "files.pythonhosted.org"],
    });
    writeFileSync(join(home, ".npmrc"), "//packages.example.com/:_authToken=abc\n");
    const { entry, reason } = of(npx);
    expect(entry).toEqual(npx);
    expect(reason).toMatch(/settings of your own \(\/\/packages.example.com\/ in/);
  });

  it.each<[string, ServerEntry, RegExp]>([
    ["starts containers", { command: "docker", args: ["run", "x"] }, /socket of its engine/],
    ["is a shell script", { command: "sh", args: ["-c", "x"] }, /what sh runs is not known/],
    ["names a relative path", { command: "x", args: ["./data"] }, /depends on the directory/],
    ["names a directory that is missing", { command: "x", args: ["/absent/directory"] }, /does not exist/],
    ["names the home directory", { command: "x", args: ["{home}"] }, /more than one program's files/],
    ["names a directory with the gateway's own", { command: "x", args: ["{home}/work"] }, /data directory/],
  ])("an imported server that %s has no profile, and the import states why", (_what, entry, reason) => {
    const named = { ...entry, args: entry.args?.map((each) => each.replace("{home}", home)) };
    const got = of(named);
    expect(got.entry).toEqual(named);
    expect(got.reason).toMatch(reason);
  });

  it("a second import keeps the sandbox that the operator decided on", async () => {
    const entry: ServerEntry = { command: "x", noGuardrail: ["*"] };
    const found = { name: "s", file: "f", fields: {}, dialect: "plain", path: [], project: undefined } as never;
    const collected = {
      files: [],
      servers: [{ name: "s", found, entry: of(entry).entry, lifted: [], notes: [], problems: [] }],
      ...{ skipped: [], missing: [], unset: new Map(), shadowed: [], otherProjects: [], warnings: [] },
    };
    const known = (sandbox: ServerEntry["sandbox"]) => ({
      application: { revision: 1, document: { servers: { s: { ...entry, sandbox } } } } as never,
      secret: async () => undefined,
    });
    const { document, servers } = await planImport("local", collected, known("off"));
    expect(document.servers?.s?.sandbox).toBe("off");
    expect(servers[0]?.action).toBe("same");
    const first = await planImport("local", collected, known(undefined));
    expect(first.document.servers?.s?.sandbox).toEqual({ mode: "preferred", network: "public" });
    expect(applicationProblems(first.document)).toEqual([]);
  });
});
