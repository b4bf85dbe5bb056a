// The configurations that clients really have, on every system, read and turned into entries; and edited with care.

import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { applicationProblems, hasCredentialForm, isCredentialName } from "../../storage/index.js";
import { type CollectedServers, collectServers } from "./collect.js";
import { planConnect, planDisconnect } from "./connect-plan.js";
import { edited } from "./edit.js";
import { planImport } from "./import.js";
import { CLIENTS, type ClientName, CONNECTABLE, placesOf } from "./places.js";

let home: string;
let cwd: string;
beforeEach(() => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-clients-")));
  cwd = join(home, "project");
  mkdirSync(cwd);
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

const put = (file: string, text: string): string => {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
};
const from = (client: string, env: Record<string, string> = {}, only?: string[]): Promise<CollectedServers> =>
  collectServers({ from: client, only, mayAsk: false }, { platform: "linux", env: { HOME: home, ...env }, home, cwd });
const entries = ({ servers }: CollectedServers) => Object.fromEntries(servers.map(({ name, entry }) => [name, entry]));
const secrets = ({ servers }: CollectedServers) =>
  Object.fromEntries(servers.flatMap(({ lifted }) => lifted.map(({ name, value }) => [name, value])));
const OURS = { noGuardrail: ["*"] };

describe("where clients keep their configuration", () => {
  it("knows the configuration files of every client on every system", () => {
    const at = (platform: NodeJS.Platform, env = {}) =>
      CLIENTS.flatMap((client) => placesOf(client, { platform, env, home: "/h", cwd: "/p" }).map(({ file }) => file));
    expect(at("darwin")).toEqual([
      "/h/Library/Application Support/Claude/claude_desktop_config.json",
      "/h/.claude.json",
      "/p/.mcp.json",
      "/h/Library/Application Support/Code/User/mcp.json",
      "/p/.vscode/mcp.json",
      "/h/.cursor/mcp.json",
      "/p/.cursor/mcp.json",
      "/h/.codex/config.toml",
      "/p/.codex/config.toml",
      "/h/.codeium/windsurf/mcp_config.json",
      "/h/.config/zed/settings.json",
      "/p/.zed/settings.json",
      "/h/.gemini/settings.json",
      "/p/.gemini/settings.json",
      "/h/.continue/config.yaml",
    ]);
    expect(at("linux", { XDG_CONFIG_HOME: "/x", CODEX_HOME: "/c", CLAUDE_CONFIG_DIR: "/d" })).toEqual([
      "/x/Claude/claude_desktop_config.json",
      "/d/.claude.json",
      "/p/.mcp.json",
      "/x/Code/User/mcp.json",
      "/p/.vscode/mcp.json",
      "/h/.cursor/mcp.json",
      "/p/.cursor/mcp.json",
      "/c/config.toml",
      "/p/.codex/config.toml",
      "/h/.codeium/windsurf/mcp_config.json",
      "/x/zed/settings.json",
      "/p/.zed/settings.json",
      "/h/.gemini/settings.json",
      "/p/.gemini/settings.json",
      "/h/.continue/config.yaml",
    ]);
    const windows = placesOf("claude-desktop", {
      platform: "win32",
      env: { APPDATA: "C:\\Users\\a\\AppData\\Roaming" },
      home: "C:\\Users\\a",
      cwd: "C:\\p",
    });
    expect(windows[0]?.file).toBe("C:\\Users\\a\\AppData\\Roaming\\Claude\\claude_desktop_config.json");
  });

  it("lists the files that it looked for when there is none", async () => {
    await expect(from("cursor")).rejects.toThrow("no configuration of cursor");
    await expect(from("nothing.json")).rejects.toThrow("there is no file nothing.json");
  });
});

describe("an import", () => {
  it("imports Claude Code's servers of the user, the project and .mcp.json; the nearest of a name counts", async () => {
    put(
      join(home, ".claude.json"),
      JSON.stringify({
        numStartups: 3,
        mcpServers: {
          a: { type: "stdio", command: "user" },
          only: { command: "${A_SHELL:-sh}", args: ["${userHome}"] },
        },
        projects: {
          [cwd]: { mcpServers: { b: { type: "http", url: "https://b.example/${PATH_OF_B}" } } },
          "/other": { mcpServers: { never: { command: "no" } } },
        },
      }),
    );
    put(join(cwd, ".mcp.json"), JSON.stringify({ mcpServers: { a: { command: "./project", args: ["x"] } } }));
    const collected = await from("claude-code", { PATH_OF_B: "mcp" });
    expect(entries(collected)).toEqual({
      a: { command: "./project", args: ["x"], cwd, prefix: "a", ...OURS },
      only: { command: "sh", args: [home], prefix: "only", ...OURS },
      b: { url: "https://b.example/mcp", prefix: "b", ...OURS },
    });
    expect(collected.skipped.map(({ name, why }) => `${name} ${why}`)).toEqual([
      "a another of this name is nearer to the project and counts",
    ]);
  });

  it("imports VS Code's servers with comments, inputs, variables and an env file", async () => {
    put(join(cwd, ".env"), "# mine\nSERVICE_TOKEN='t0k'\nREGION=eu\n");
    put(
      join(cwd, ".vscode/mcp.json"),
      `{
        // asked for once
        "inputs": [{ "type": "promptString", "id": "api-key", "password": true }, { "id": "zone", "default": "b" }],
        "servers": {
          "My Server": {
            "type": "stdio", "command": "node", "args": ["\${workspaceFolder}/s.js", "--zone", "\${input:zone}"],
            "env": { "WHERE": "\${input:api-key}", "PORT": 3 }, "envFile": "\${workspaceFolder}/.env",
          },
          "web": { "type": "sse", "url": "https://w.example/sse", "headers": { "X-Api-Key": "\${env:WEB_KEY}" } },
        },
      }`,
    );
    const collected = await from("vscode", { PORTCULLIS_INPUT_API_KEY: "typed", WEB_KEY: "w3b" });
    expect(entries(collected)).toEqual({
      "My-Server": {
        command: "node",
        args: [`${cwd}/s.js`, "--zone", "b"],
        env: {
          SERVICE_TOKEN: "${secret:My-Server.SERVICE_TOKEN}",
          REGION: "eu",
          WHERE: "${secret:My-Server.WHERE}",
          PORT: "3",
        },
        cwd,
        prefix: "My-Server",
        ...OURS,
      },
      web: {
        url: "https://w.example/sse",
        transport: "sse",
        headers: { "X-Api-Key": "${secret:web.X-Api-Key}" },
        prefix: "web",
        ...OURS,
      },
    });
    expect(secrets(collected)).toEqual({
      "My-Server.SERVICE_TOKEN": "t0k",
      "My-Server.WHERE": "typed",
      "web.X-Api-Key": "w3b",
    });
  });

  it("imports Codex's servers with tables, headers from variables and timeouts", async () => {
    put(
      join(home, ".codex/config.toml"),
      `model = "x"
[mcp_servers.docs]
command = "npx"
args = ["-y", "docs", "\${not} expanded"]
tool_timeout_sec = 90
env_vars = ["REGION"]
env = { API_TOKEN = "abc" }
[mcp_servers."the web"]
url = "https://web.example/mcp"
bearer_token_env_var = "WEB_TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Tenant" = "TENANT" }
enabled = false
enabled_tools = ["a"]
`,
    );
    const collected = await from("codex", { REGION: "eu", WEB_TOKEN: "wt", TENANT: "ten" });
    expect(entries(collected)).toEqual({
      docs: {
        command: "npx",
        args: ["-y", "docs", "${not} expanded"],
        env: { API_TOKEN: "${secret:docs.API_TOKEN}", REGION: "eu" },
        prefix: "docs",
        timeoutMs: 90_000,
        ...OURS,
      },
      "the-web": {
        url: "https://web.example/mcp",
        headers: { "X-Region": "eu", "X-Tenant": "${secret:the-web.X-Tenant}" },
        auth: { type: "bearer", token: "${secret:the-web.WEB_TOKEN}" },
        prefix: "the-web",
        ...OURS,
        disabled: true,
      },
    });
    expect(collected.servers[1]?.notes).toEqual(["`enabled_tools` is left out"]);
  });

  it("keeps every argument without a credential byte for byte [H5]", async () => {
    const args = ["run", "-i", "node:20", "localhost:5432", "-v", "C:\\Users\\me:/data", "-p", "8080:80", "a:  b"];
    const file = put(join(cwd, "c.json"), JSON.stringify({ mcpServers: { s: { command: "docker", args } } }));
    expect((await from(file)).servers[0]?.entry.args).toEqual(args);
    const word = fc
      .stringMatching(/^[a-z0-9]{0,9}[:= .,;/\\][ a-z0-9:]{0,9}$/)
      .filter((text) => !isCredentialName(text));
    await fc.assert(
      fc.asyncProperty(fc.array(word, { minLength: 1, maxLength: 6 }), async (words) => {
        put(file, JSON.stringify({ mcpServers: { s: { command: "x", args: words } } }));
        expect((await from(file)).servers[0]?.entry.args).toEqual(words);
      }),
      { numRuns: 100 },
    );
  });

  it("reports every variable and input that is not set", async () => {
    const file = put(
      join(cwd, "some.json"),
      JSON.stringify({
        servers: {
          a: {
            command: "x",
            args: ["${NOWHERE}", "${env:NEITHER}", "${input:who}", "${command:x.y}"],
            env: { A: "${B:-}" },
          },
          b: { command: "x", env: { STOLEN: "${secret:other.TOKEN}" } },
        },
      }),
    );
    expect((await from(file)).missing).toEqual([
      "a: the variable NOWHERE is not set; set it and import again",
      "a: the variable NEITHER is not set; set it and import again",
      "a: the input who has no value; set PORTCULLIS_INPUT_WHO and import again",
      "a: unknown variable ${command:x.y}: write its value",
      "b: ${secret:other.TOKEN} refers to a secret of Portcullis; a client's configuration cannot",
    ]);
  });

  it("imports a file that begins with a byte order mark and refuses one that is not valid UTF-8", async () => {
    const text = '{"mcpServers":{"x":{"command":"x"}}}';
    const file = put(join(cwd, "c.json"), `\uFEFF${text}`);
    expect(entries(await from(file))).toEqual({ x: { command: "x", prefix: "x", ...OURS } });
    const toml = put(join(cwd, "c.toml"), '\uFEFF[mcp_servers.x]\ncommand = "x"\n');
    expect(Object.keys(entries(await from(toml)))).toEqual(["x"]);
    writeFileSync(file, Buffer.from(`\uFEFF${text}`, "utf16le"));
    await expect(from(file)).rejects.toThrow("is not written in UTF-8");
  });

  it("reports which of two servers with one name counts", async () => {
    const file = put(
      join(cwd, "c.json"),
      '{"other": {"a": 1, "a": 2},\n"mcpServers": {\n  "a": {"command": "x"},\n  "b": {"command": "z"},\n  "a": {"command": "y"}\n}}',
    );
    const collected = await from(file);
    expect(collected.servers[0]?.entry.command).toBe("y");
    expect(collected.warnings).toEqual([`${file}:3 \`a\` is there 2 times; the last, in line 5, counts`]);
    put(file, '{"mcpServers": {"a": {"command": "x"}},\n "mcpServers": {"a": {"command": "y"}}}');
    expect((await from(file)).warnings).toEqual([
      `${file}:1 \`mcpServers\` is there 2 times; the last, in line 2, counts`,
    ]);
  });

  it("imports the other servers when a disabled one cannot be imported", async () => {
    put(
      join(home, ".codex/config.toml"),
      '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.off]\nurl = "https://x.example"\nbearer_token_env_var = "NOT_SET"\nenabled = false\n',
    );
    const { servers, missing, skipped } = await from("codex");
    expect([servers.map(({ name }) => name), missing]).toEqual([["a"], []]);
    expect(skipped.map(({ name, why }) => `${name}: ${why}`)).toEqual([
      "off: it is disabled, and the variable NOT_SET is not set; set it and import again",
    ]);
  });

  it("refuses texts that would be read as references in the store", async () => {
    const file = put(join(cwd, "c.json"), JSON.stringify({ mcpServers: { a: { command: "x", args: ["${TRICK}"] } } }));
    const collected = await from(file, { TRICK: "${secret:other.TOKEN}" });
    expect(collected.servers[0]?.problems).toEqual(["`args.0` would be read as a reference to a secret or a variable"]);
    put(join(home, ".codex/config.toml"), '[mcp_servers.a]\ncommand = "x"\nargs = ["${secret:other.TOKEN}"]\n');
    expect((await from("codex")).servers[0]?.problems).toHaveLength(1);
  });

  it("skips entries that start a gateway, and reports fields that make no server", async () => {
    const file = put(
      join(cwd, "c.json"),
      JSON.stringify({
        mcpServers: {
          portcullis: { url: "http://127.0.0.1:7420/mcp" },
          gate: { command: "npx", args: ["-y", "portcullis@0.1.0", "serve", "--stdio"] },
          both: { command: "x", url: "https://x.example" },
          odd: { type: "carrier-pigeon", url: "https://x.example" },
        },
      }),
    );
    const { skipped, servers } = await from(file);
    expect(skipped.map(({ name }) => name)).toEqual(["portcullis", "gate"]);
    expect(servers.map(({ problems }) => problems[0])).toEqual([
      "it needs either `command` or `url`",
      "unknown transport `carrier-pigeon`",
    ]);
  });
});

describe("credentials", () => {
  const hidden = "s3cr3t-Value";
  it.each<[string, object, object]>([
    [
      "env by name",
      { command: "x", env: { GITHUB_TOKEN: hidden } },
      { env: { GITHUB_TOKEN: "${secret:s.GITHUB_TOKEN}" } },
    ],
    ["env by form", { command: "x", env: { X: "ghp_0123456789abcdef" } }, { env: { X: "${secret:s.X}" } }],
    [
      "a flag and its value",
      { command: "x", args: ["--api-key", hidden] },
      { args: ["--api-key", "${secret:s.api-key}"] },
    ],
    ["a flag with its value", { command: "x", args: [`--token=${hidden}`] }, { args: ["--token=${secret:s.token}"] }],
    [
      "a header as an argument",
      { command: "x", args: ["--header", `Authorization: Bearer ${hidden}`] },
      { args: ["--header", "Authorization: Bearer ${secret:s.Authorization}"] },
    ],
    [
      "a connection string",
      { command: "x", args: [`postgres://me:${hidden}@db/x`] },
      { args: ["postgres://me:${secret:s.url-password}@db/x"] },
    ],
    [
      "a variable for a container",
      { command: "docker", args: ["run", "-e", `DB_PASSWORD=${hidden}`, "--env=API_KEY=k1-Value", "img:20"] },
      {
        args: ["run", "-e", "DB_PASSWORD=${secret:s.DB_PASSWORD}", "--env=API_KEY=${secret:s.API_KEY}", "img:20"],
      },
    ],
    [
      "a script",
      { command: "sh", args: ["-c", "TOKEN=sk-ant-api03-aaaaaaaaaaaa exec foo"] },
      { args: ["-c", "TOKEN=${secret:s.TOKEN} exec foo"] },
    ],
    [
      "inside a value of the environment",
      { command: "x", env: { HTTP_HEADERS: `{"Authorization":"Bearer ${hidden}"}` } },
      { env: { HTTP_HEADERS: "${secret:s.HTTP_HEADERS}" } },
    ],
    [
      "a header",
      { url: "https://x.example", headers: { Authorization: `Bearer ${hidden}` } },
      { headers: { Authorization: "Bearer ${secret:s.Authorization}" } },
    ],
    [
      "a url's parameter",
      { url: `https://x.example/mcp?a=1&api_key=${hidden}` },
      { url: "https://x.example/mcp?a=1&api_key=${secret:s.api_key}" },
    ],
    [
      "a url's path",
      { url: "https://x.example/s/Zm9vYmFy1YmF6cXV4Mzk0NTY3ODkw/mcp" },
      { url: "https://x.example/s/${secret:s.url-path}/mcp" },
    ],
  ])("%s: lifted, and nothing of it stays [H5]", async (_what, fields, expected) => {
    const file = put(join(cwd, "c.json"), JSON.stringify({ mcpServers: { s: fields } }));
    const collected = await from(file);
    expect(collected.servers[0]?.entry).toMatchObject(expected);
    for (const value of Object.values(secrets(collected))) {
      expect(JSON.stringify(entries(collected)).includes(value)).toBe(false);
    }
    const { document } = await planImport("local", collected, {
      application: undefined,
      secret: async () => undefined,
    });
    expect(applicationProblems(document)).toEqual([]);
  });

  it("recognizes credentials and not paths, packages, names and sentences", () => {
    for (const plain of [
      "/home/a/projects/2024/report-1",
      "@modelcontextprotocol/server-memory",
      "claude-sonnet-4-20250514",
      "eu-central-1",
      "some-long-model-name-v2-large",
      "a sentence with 3 words and more of them",
    ]) {
      expect(hasCredentialForm(plain), plain).toBe(false);
    }
    for (const name of ["MEMORY_FILE_PATH", "PORT", "LOG_LEVEL", "AUTHOR", "REGION", "COMPASS", "PINNED"])
      expect(isCredentialName(name), name).toBe(false);
    for (const name of [
      "OPENAI_API_KEY",
      "apiKey",
      "accessKey",
      "DB_PASSWORD",
      "SMTP_PASS",
      "PIN",
      "GH_PAT",
      "SENTRY_DSN",
      "--auth",
    ]) {
      expect(isCredentialName(name), name).toBe(true);
    }
  });
});

describe("an edit", () => {
  const OUR = { command: "portcullis", args: ["serve"] };

  it("edits JSON and keeps comments, order and layout of everything else", () => {
    const text =
      '{\n\t// first\n\t"z": [1,2],\n\t"mcpServers": {\n\t\t"a": { "command": "x" }, // about a\n\t\t"b": {"command":"y"}\n\t},\n\t"k": {"odd"  :  1}\n}\n';
    const out = edited(text, "f", false, [
      { path: ["mcpServers", "portcullis"], value: OUR },
      { path: ["mcpServers", "b"], value: undefined },
    ]);
    expect(out).toContain('\t// first\n\t"z": [1,2],');
    expect(out).toContain('\t\t"a": { "command": "x" } // about a\n\t},');
    expect(out).toContain('"k": {"odd"  :  1}\n}\n');
    expect(out).toContain('\n\t\t"portcullis": {\n\t\t\t"command"');
    expect(out).not.toContain('"y"');
  });

  it("keeps a byte order mark and removes all properties of a name", () => {
    const text =
      '\uFEFF{\n  "mcpServers": {\n    "a": {"command": "x"},\n    "a": {"command": "y"},\n    "b": {}\n  }\n}\n';
    const out = edited(text, "f", false, [{ path: ["mcpServers", "a"], value: undefined }]);
    expect(out).toBe('\uFEFF{\n  "mcpServers": {\n    "b": {}\n  }\n}\n');
    const toml = edited('\uFEFF[mcp_servers.a]\ncommand = "x"\n', "f", true, [
      { path: ["mcp_servers", "a"], value: undefined },
    ]);
    expect(toml).toBe("\uFEFF");
  });

  it("removes a TOML table with its subtables and refuses other layouts", () => {
    const text =
      '# mine\nmodel = "x" # why\n\n[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.env]\nA = "1"\n\n[mcp_servers."b c"]\ncommand = "y"\n\n[other]\nk = [1,\n 2]\n';
    const out = edited(text, "f", true, [
      { path: ["mcp_servers", "portcullis"], value: OUR },
      { path: ["mcp_servers", "a"], value: undefined },
    ]);
    expect(out).toBe(
      '# mine\nmodel = "x" # why\n\n[mcp_servers."b c"]\ncommand = "y"\n\n[other]\nk = [1,\n 2]\n\n[mcp_servers.portcullis]\ncommand = "portcullis"\nargs = [ "serve" ]\n',
    );
    const inline = 'mcp_servers = { a = { command = "x" } }\n';
    expect(() => edited(inline, "f", true, [{ path: ["mcp_servers", "a"], value: undefined }])).toThrow(
      "cannot be edited safely",
    );
    const quoted = '[x]\ntext = """\n[mcp_servers.a]\n"""\n[mcp_servers.a]\ncommand = "x"\n';
    expect(() => edited(quoted, "f", true, [{ path: ["mcp_servers", "a"], value: undefined }])).toThrow();
  });
});

describe("connect and disconnect", () => {
  const SAMPLES: Record<Exclude<ClientName, "continue">, string> = {
    "claude-desktop": '{\n  "mcpServers": {\n    "a": { "command": "x", "env": { "T_KEY": "1" } }\n  }\n}',
    "claude-code": '{"numStartups":1,"mcpServers":{"a":{"type":"stdio","command":"x"}}}',
    vscode: '{\r\n  // c\r\n  "servers": { "a": { "type": "stdio", "command": "x" }, },\r\n}\r\n',
    cursor: '{ "mcpServers": { "a": { "command": "x" }, "b": { "url": "https://b.example" } } }\n',
    codex: 'model = "m"\n[mcp_servers.a]\ncommand = "x"\n[tui]\ntheme = "t"\n',
    windsurf: '{"mcpServers":{"a":{"command":"x"}}}',
    zed: '// mine\n{ "theme":  "x", "context_servers": { "a": { "command": "x" } } }\n',
    gemini: '{ "theme": "x", "mcpServers": { "a": { "command": "x" } } }\n',
  };
  const surroundings = () => ({ platform: "linux" as const, env: { HOME: home }, home, cwd });
  const connectTo = async (client: ClientName) => {
    const file = placesOf(client, surroundings())[0]?.file as string;
    const collected = await from(client);
    const behind = Object.fromEntries(
      collected.servers.filter(({ name }) => name === "a").map(({ name, entry }) => [name, entry]),
    );
    const stateDir = join(home, "state");
    return planConnect({
      stateDir,
      client,
      file,
      entry: { command: "p", args: ["serve"] },
      servers: collected.servers,
      behind,
    });
  };

  it.each(CONNECTABLE)("connects %s and disconnects it byte for byte [H5]", async (client) => {
    const file = put(placesOf(client, surroundings())[0]?.file as string, SAMPLES[client]);
    const plan = await connectTo(client);
    expect(plan.taken).toEqual(["a"]);
    expect(plan.around.map(({ name }) => name)).toEqual(client === "cursor" ? ["b"] : []);
    plan.carryOut();
    const connected = readFileSync(file, "utf8");
    expect(connected).toContain("portcullis");
    expect(connected).not.toMatch(/command"?\s*[:=]\s*"x"/);
    expect((await connectTo(client)).isEmpty).toBe(true);
    const back = planDisconnect(join(home, "state"), client);
    expect(back?.files).toEqual([{ file, isExact: true }]);
    back?.carryOut();
    expect(readFileSync(file, "utf8")).toBe(SAMPLES[client]);
    expect(planDisconnect(join(home, "state"), client)).toBeUndefined();
  });

  it.each(CONNECTABLE)("disconnects %s and keeps changes made since", async (client) => {
    const file = put(placesOf(client, surroundings())[0]?.file as string, SAMPLES[client]);
    (await connectTo(client)).carryOut();
    const isToml = client === "codex";
    const group = isToml
      ? "mcp_servers"
      : client === "vscode"
        ? "servers"
        : client === "zed"
          ? "context_servers"
          : "mcpServers";
    const changed = edited(readFileSync(file, "utf8"), file, isToml, [
      { path: [group, "new"], value: { command: "n" } },
    ]);
    writeFileSync(file, changed);
    const back = planDisconnect(join(home, "state"), client);
    expect(back?.files).toEqual([{ file, isExact: false }]);
    back?.carryOut();
    const names = (await from(client)).servers.map(({ name }) => name).sort();
    expect(names).toEqual(client === "cursor" ? ["a", "b", "new"] : ["a", "new"]);
    expect(readFileSync(file, "utf8")).not.toContain("portcullis");
  });

  const PROJECTS = { "claude-code": ".mcp.json", vscode: ".vscode/mcp.json", cursor: ".cursor/mcp.json" } as const;
  it.each(Object.entries(PROJECTS))(
    "%s: what the project's %s has comes out too, and goes back [H5]",
    async (name, path) => {
      const client = name as keyof typeof PROJECTS;
      const key = client === "vscode" ? "servers" : "mcpServers";
      const userFile = put(placesOf(client, surroundings())[0]?.file as string, SAMPLES[client]);
      const text = `\uFEFF{ "${key}": { "p": { "command": "pp" }, "a": { "command": "mine" }, "q": { "command": "qq" } } }\n`;
      const file = put(join(cwd, path), text);
      const stateDir = join(home, "state");
      const plan = async () => {
        const { servers, shadowed } = await from(client);
        const behind = Object.fromEntries(
          servers.filter((each) => each.name !== "q").map((each) => [each.name, each.entry]),
        );
        return planConnect({ stateDir, client, file: userFile, also: [file], entry: OUR, servers, shadowed, behind });
      };
      const first = await plan();
      expect(first.others).toEqual([{ file, taken: ["p", "a"] }]);
      // The user's own `a` is another one: without the project's it counts, which the plan has to show.
      expect(first.around).toContainEqual({ name: "a", file: userFile, isBehind: false, wasHidden: true });
      expect(first.around).toContainEqual({ name: "q", file, isBehind: false, wasHidden: false });
      first.carryOut();
      expect(readFileSync(file, "utf8")).toBe(`\uFEFF{ "${key}": { "q": { "command": "qq" } } }\n`);
      expect(readFileSync(userFile, "utf8")).toContain("portcullis");
      (await plan()).carryOut();
      const back = planDisconnect(stateDir, client);
      expect(back?.files).toEqual([
        { file: userFile, isExact: true },
        { file, isExact: true },
      ]);
      back?.carryOut();
      expect([readFileSync(userFile, "utf8"), readFileSync(file, "utf8")]).toEqual([SAMPLES[client], text]);
    },
  );

  it("names servers that stay in the user's file when only the project is connected", async () => {
    put(join(home, ".claude.json"), SAMPLES["claude-code"]);
    const file = join(cwd, ".mcp.json");
    const { servers } = await from("claude-code");
    const behind = Object.fromEntries(servers.map(({ name, entry }) => [name, entry]));
    const stateDir = join(home, "state");
    const plan = planConnect({ stateDir, client: "claude-code", file, entry: OUR, servers, behind });
    expect(plan.around).toEqual([{ name: "a", file: join(home, ".claude.json"), isBehind: true, wasHidden: false }]);
  });

  it("does not recreate a removed project when the client is disconnected", async () => {
    const userFile = put(join(home, ".claude.json"), SAMPLES["claude-code"]);
    const file = put(join(cwd, ".mcp.json"), '{"mcpServers":{"p":{"command":"pp"}}}');
    const { servers } = await from("claude-code");
    const behind = Object.fromEntries(servers.map(({ name, entry }) => [name, entry]));
    const stateDir = join(home, "state");
    const request = {
      stateDir,
      client: "claude-code" as const,
      file: userFile,
      also: [file],
      entry: OUR,
      servers,
      behind,
    };
    planConnect(request).carryOut();
    rmSync(cwd, { recursive: true });
    planDisconnect(stateDir, "claude-code")?.carryOut();
    expect(() => readFileSync(file)).toThrow("ENOENT");
    expect(readFileSync(userFile, "utf8")).toBe(SAMPLES["claude-code"]);
  });

  it("names servers of the user's other projects", async () => {
    const projects = { [cwd]: { mcpServers: { mine: { command: "m" } } }, "/o": { mcpServers: { x: {} } }, "/p": {} };
    put(join(home, ".claude.json"), JSON.stringify({ projects }));
    expect((await from("claude-code")).otherProjects).toEqual([{ project: "/o", names: ["x"] }]);
  });

  it("edits the target of a link and refuses a file that changed meanwhile", async () => {
    const target = put(join(home, "dotfiles/mcp.json"), SAMPLES.cursor);
    mkdirSync(join(home, ".cursor"));
    symlinkSync(target, join(home, ".cursor/mcp.json"));
    const plan = await connectTo("cursor");
    writeFileSync(target, "{}");
    expect(() => plan.carryOut()).toThrow("was changed by another process");
    expect(readFileSync(target, "utf8")).toBe("{}");
    writeFileSync(target, SAMPLES.cursor);
    (await connectTo("cursor")).carryOut();
    expect(readFileSync(target, "utf8")).toContain("portcullis");
    planDisconnect(join(home, "state"), "cursor")?.carryOut();
    expect(readFileSync(target, "utf8")).toBe(SAMPLES.cursor);
  });

  it("creates a missing configuration and removes it again", async () => {
    const file = join(home, ".cursor/mcp.json");
    const request = {
      stateDir: join(home, "state"),
      client: "cursor" as const,
      file,
      entry: { command: "p" },
      servers: [],
      behind: {},
    };
    planConnect(request).carryOut();
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ mcpServers: { portcullis: { command: "p" } } });
    planDisconnect(join(home, "state"), "cursor")?.carryOut();
    expect(() => readFileSync(file)).toThrow("ENOENT");
  });

  it("restores servers with any name to the same meaning", () => {
    const name = fc
      .string({ minLength: 1, maxLength: 12 })
      .filter((text) => text !== "__proto__" && text !== "portcullis");
    const server = fc.record({ command: fc.string(), args: fc.array(fc.string(), { maxLength: 3 }) });
    fc.assert(
      fc.property(
        fc.dictionary(name, server, { minKeys: 1, maxKeys: 4 }),
        fc.integer({ min: 0, max: 4 }),
        (mcpServers, indent) => {
          const text = JSON.stringify({ mcpServers, other: true }, null, indent);
          const taken = Object.keys(mcpServers).map((each) => ({ path: ["mcpServers", each], value: undefined }));
          const ours = { path: ["mcpServers", "portcullis"], value: OUR };
          const out = edited(text, "f", false, [ours, ...taken]);
          expect(JSON.parse(out)).toEqual({ mcpServers: { portcullis: OUR }, other: true });
        },
      ),
      { numRuns: 100 },
    );
  });
  const OUR = { command: "p" };
});
