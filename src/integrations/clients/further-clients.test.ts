// Configurations of further clients, as their documentation writes them, and `.mcpb` bundles.

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { deflateRawSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type CollectedServers, collectServers } from "./collect.js";

let home: string;
let cwd: string;
beforeEach(() => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-clients-")));
  cwd = join(home, "project");
  mkdirSync(cwd);
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

const put = (path: string, text: string | Buffer): string => {
  const file = join(home, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
};
const from = (client: string, env: Record<string, string> = {}): Promise<CollectedServers> =>
  collectServers(
    { from: client, mayAsk: false, bundles: join(home, "data", "bundles") },
    { platform: "linux", env: { HOME: home, ...env }, home, cwd },
  );
const entries = ({ servers }: CollectedServers) => Object.fromEntries(servers.map(({ name, entry }) => [name, entry]));
const lifted = ({ servers }: CollectedServers) => servers.flatMap((each) => each.lifted.map(({ value }) => value));

it("reads Windsurf's servers, with serverUrl, headers and disabled servers [H5]", async () => {
  put(
    ".codeium/windsurf/mcp_config.json",
    `{"mcpServers": {
      "github": {"command": "npx", "args": ["-y", "@x/github"], "env": {"GITHUB_TOKEN": "\${env:GH}"}},
      "remote": {"serverUrl": "https://r.example/mcp", "headers": {"API_KEY": "sk-0123456789abcdef0123"}, "disabledTools": ["x"]},
      "off": {"command": "off", "disabled": true}
    }}`,
  );
  const found = await from("windsurf", { GH: "ghp_abcdefghijklmnopqrstuvwxyz0123456789" });
  expect(entries(found)).toMatchObject({
    github: { command: "npx", args: ["-y", "@x/github"], env: { GITHUB_TOKEN: "${secret:github.GITHUB_TOKEN}" } },
    remote: { url: "https://r.example/mcp", headers: { API_KEY: "${secret:remote.API_KEY}" } },
    off: { command: "off", disabled: true },
  });
});

it("reads Zed's context servers in both forms from a file with comments, and leaves extensions out [H5]", async () => {
  put(
    ".config/zed/settings.json",
    `// Zed settings
    {"theme": "One Dark", "context_servers": {
      "custom": {"source": "custom", "command": "uv", "args": ["run", "\${HOME}"], "env": {"LEVEL": "debug"}, "enabled": true},
      "older": {"command": {"path": "/opt/older", "args": ["--stdio"], "env": null}, "settings": {}},
      "remote": {"url": "https://r.example/mcp", "headers": {"Authorization": "Bearer abcdefghijklmnop0123"}},
      "from-extension": {"source": "extension", "enabled": true, "settings": {"token": "x"}},
    }}`,
  );
  const found = await from("zed");
  expect(entries(found)).toMatchObject({
    // Zed expands no variables.
    custom: { command: "uv", args: ["run", "${HOME}"], env: { LEVEL: "debug" } },
    older: { command: "/opt/older", args: ["--stdio"] },
    remote: { url: "https://r.example/mcp", headers: { Authorization: "Bearer ${secret:remote.Authorization}" } },
  });
  expect(found.skipped).toEqual([expect.objectContaining({ name: "from-extension" })]);
  expect(found.servers.flatMap(({ problems, notes }) => [...problems, ...notes])).toEqual([]);
});

it("reads Gemini CLI's servers: httpUrl is streamable HTTP, url is SSE, variables have no braces", async () => {
  put(
    ".gemini/settings.json",
    `{"mcpServers": {
      "py": {"command": "python", "args": ["-m", "srv"], "env": {"API_KEY": "$PY_KEY", "DB": "\${DB_URL}"}, "cwd": "./srv", "timeout": 15000, "trust": true},
      "http": {"httpUrl": "https://h.example/mcp"},
      "sse": {"url": "https://s.example/sse"}
    }}`,
  );
  const found = await from("gemini", { PY_KEY: "key-0123456789abcdef", DB_URL: "db" });
  expect(entries(found)).toMatchObject({
    py: { command: "python", timeoutMs: 15_000, env: { API_KEY: "${secret:py.API_KEY}", DB: "db" } },
    http: { url: "https://h.example/mcp" },
    sse: { url: "https://s.example/sse", transport: "sse" },
  });
  expect(entries(found).http).not.toHaveProperty("transport");
  expect(lifted(found)).toEqual(["key-0123456789abcdef"]);
  expect(found.servers[0]?.notes).toEqual(["`trust` is left out"]);
});

it("reads Continue's YAML, the blocks of a project and the secrets in its .env file [H5]", async () => {
  put(
    ".continue/config.yaml",
    "name: Mine\nmcpServers:\n  - name: Browser\n    command: npx\n    args: ['@x/browser']\n",
  );
  put(
    "project/.continue/mcpServers/remote.yaml",
    "mcpServers:\n  - name: remote\n    type: streamable-http\n    url: https://r.example/mcp\n    requestOptions:\n      headers:\n        Authorization: Bearer ${{ secrets.REMOTE_KEY }}\n",
  );
  put("project/.continue/mcpServers/copied.json", '{"mcpServers": {"copied": {"command": "copied"}}}');
  put(".continue/.env", "REMOTE_KEY=abcdefghijklmnop0123\n");
  const found = await from("continue");
  expect(entries(found)).toMatchObject({
    Browser: { command: "npx", args: ["@x/browser"] },
    remote: { url: "https://r.example/mcp", headers: { Authorization: "Bearer ${secret:remote.Authorization}" } },
    copied: { command: "copied", cwd },
  });
  expect(lifted(found)).toEqual(["abcdefghijklmnop0123"]);
});

it("reads an export of MetaMCP, with its types and bearer tokens", async () => {
  const file = put(
    "metamcp.json",
    `{"mcpServers": {
      "time": {"type": "STDIO", "command": "uvx", "args": ["mcp-server-time"], "env": {}, "description": "Time"},
      "hosted": {"type": "STREAMABLE_HTTP", "url": "https://m.example/mcp", "bearerToken": "mm_0123456789abcdef"},
      "events": {"type": "SSE", "url": "https://m.example/sse"}
    }}`,
  );
  const found = await from(file);
  expect(entries(found)).toMatchObject({
    time: { command: "uvx", args: ["mcp-server-time"] },
    hosted: { url: "https://m.example/mcp", auth: { type: "bearer", token: "${secret:hosted.bearerToken}" } },
    events: { url: "https://m.example/sse", transport: "sse" },
  });
  expect(found.servers.flatMap(({ problems, notes }) => [...problems, ...notes])).toEqual([]);
});

/** A ZIP archive with these files; `mode` as Unix writes it. */
function zip(files: Record<string, { text: string; mode?: number }>): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, { text, mode = 0o100644 }] of Object.entries(files)) {
    const packed = deflateRawSync(text);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(8, 8);
    local.writeUInt16LE(Buffer.byteLength(name), 26);
    const central = Buffer.alloc(46);
    central.writeUInt32LE(0x02014b50, 0);
    central.writeUInt16LE(8, 10);
    central.writeUInt32LE(packed.length, 20);
    central.writeUInt32LE(Buffer.byteLength(text), 24);
    central.writeUInt16LE(Buffer.byteLength(name), 28);
    central.writeUInt32LE(mode * 65_536, 38);
    central.writeUInt32LE(offset, 42);
    parts.push(local, Buffer.from(name), packed);
    directory.push(central, Buffer.from(name));
    offset += 30 + Buffer.byteLength(name) + packed.length;
  }
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(Object.keys(files).length, 10);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...parts, ...directory, end]);
}

const MANIFEST = {
  manifest_version: "0.3",
  name: "file-server",
  version: "1.0.0",
  server: {
    type: "node",
    entry_point: "server/index.js",
    mcp_config: {
      command: "node",
      args: ["${__dirname}/server/index.js", "${user_config.directories}"],
      env: { API_KEY: "${user_config.api_key}", LEVEL: "${user_config.level}" },
      platform_overrides: { win32: { command: "node.exe" } },
    },
  },
  user_config: {
    directories: { type: "directory", multiple: true, default: ["${HOME}/Desktop", "${DOCUMENTS}"] },
    api_key: { type: "string", title: "Key", sensitive: true, required: true },
    level: { type: "string", default: "info" },
  },
};

describe("a .mcpb bundle", () => {
  it("imports an .mcpb bundle and extracts its program when the import is carried out [H5]", async () => {
    const text = 'console.log("hello")\n';
    const file = put(
      "files.mcpb",
      zip({
        "manifest.json": { text: JSON.stringify(MANIFEST) },
        "server/index.js": { text },
        "bin/x": { text, mode: 0o100755 },
      }),
    );
    const unset = await from(file);
    expect(unset.missing).toEqual([expect.stringContaining("PORTCULLIS_INPUT_API_KEY")]);
    const found = await from(file, { PORTCULLIS_INPUT_API_KEY: "k-0123456789" });
    const entry = entries(found)["file-server"];
    const [program = "", ...rest] = entry?.args ?? [];
    expect(entry).toMatchObject({ command: "node", env: { API_KEY: "${secret:file-server.API_KEY}", LEVEL: "info" } });
    expect(rest).toEqual([join(home, "Desktop"), join(home, "Documents")]);
    expect(lifted(found)).toEqual(["k-0123456789"]);
    expect(existsSync(program)).toBe(false);
    found.extract?.();
    found.extract?.();
    expect(readFileSync(program, "utf8")).toBe(text);
    expect(statSync(join(dirname(program), "..", "bin", "x")).mode & 0o777).toBe(0o700);
  });

  it.each([
    ["a name that leads out of the directory", { "../evil": { text: "x" } }, "not a relative path"],
    ["an absolute name", { "/etc/evil": { text: "x" } }, "not a relative path"],
    ["a symbolic link", { link: { text: "/etc/passwd", mode: 0o120777 } }, "is a symbolic link"],
    ["no manifest", { "server.js": { text: "x" } }, "contains no manifest.json"],
  ])("a .mcpb bundle is refused with %s", async (_what, files, reason) => {
    await expect(from(put("evil.mcpb", zip(files)))).rejects.toThrow(reason);
    expect(existsSync(join(home, "data"))).toBe(false);
  });

  it.each(["args", "env", "user_config"])(
    "refuses an .mcpb bundle whose %s names a variable of the user's environment [H5]",
    async (where) => {
      const text = "${env:AWS_SECRET_ACCESS_KEY}";
      const config = { command: "node", args: where === "args" ? [text] : [], env: where === "env" ? { X: text } : {} };
      const manifest = {
        ...MANIFEST,
        server: { ...MANIFEST.server, mcp_config: config },
        ...(where === "user_config" ? { user_config: { x: { type: "string", default: text } } } : {}),
      };
      const file = put("curious.mcpb", zip({ "manifest.json": { text: JSON.stringify(manifest) } }));
      await expect(from(file, { AWS_SECRET_ACCESS_KEY: "s3cret" })).rejects.toThrow(
        "the manifest names the variable `env:AWS_SECRET_ACCESS_KEY`, which no bundle may read",
      );
    },
  );

  it("refuses an .mcpb bundle that is not an archive or is truncated", async () => {
    await expect(from(put("x.mcpb", "not a zip archive at all, not at all"))).rejects.toThrow("not a ZIP archive");
    const whole = zip({ "manifest.json": { text: JSON.stringify(MANIFEST) } });
    await expect(from(put("y.mcpb", whole.subarray(40)))).rejects.toThrow("is not a valid bundle");
  });
});
