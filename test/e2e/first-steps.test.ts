// What a newcomer tries first, and what the command answers when it cannot be done.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type Newcomer, newcomer, programOf } from "./first-hour.js";

let world: Newcomer;
beforeEach(() => {
  world = newcomer();
});
afterEach(() => world.close());

const URL_OF = (file: string): unknown => JSON.parse(readFileSync(file, "utf8")).mcpServers.portcullis;

it("connects a client to a remote gateway without a data directory, and disconnect undoes it", () => {
  const file = join(world.home, ".claude.json");
  const url = "http://gate.example:7420/mcp";
  const connected = world.run("connect", "claude-code", "--url", url, "--key-env", "GATE_KEY", "--yes");
  expect([connected.code, connected.code === 0 ? "" : connected.stderr]).toEqual([0, ""]);
  expect(URL_OF(file)).toEqual({ type: "http", url, headers: { Authorization: "Bearer ${GATE_KEY}" } });
  expect(existsSync(join(world.data, "portcullis.db"))).toBe(false);
  expect(world.run("disconnect", "claude-code", "--yes").code).toBe(0);
  expect(existsSync(file)).toBe(false);
});

it("connects a client to the demonstration that is being served, and disconnect restores every byte", async () => {
  const file = join(world.home, ".claude.json");
  const before = '{ "theme":  "dark" }\n';
  writeFileSync(file, before);
  const gateway = await world.serve();
  const connected = world.run("connect", "claude-code", "--url", gateway.url, "--yes");
  expect([connected.code, connected.code === 0 ? "" : connected.stderr]).toEqual([0, ""]);
  expect(URL_OF(file)).toEqual({ type: "http", url: gateway.url });
  expect(world.run("disconnect", "claude-code", "--yes").code).toBe(0);
  expect(readFileSync(file, "utf8")).toBe(before);
});

it("refuses to connect a client to what is not an address, and changes nothing", () => {
  const { code, stderr } = world.run("connect", "claude-code", "--url", "nope", "--yes");
  expect([code, stderr]).toEqual([64, "error: invalid URL `nope`\nwrite it like http://127.0.0.1:7420/mcp\n"]);
  expect(existsSync(join(world.home, ".claude.json"))).toBe(false);
});

it.each(["x", "0", "1.5", "-1"])("refuses `call --timeout %s` and names the allowed form", (value) => {
  const { code, stderr } = world.run("call", "math.add", "{}", `--timeout=${value}`);
  expect(code).toBe(64);
  expect(stderr).toContain("whole number of milliseconds");
});

it("names the next step when the port of `serve --observe` is in use", async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  try {
    const port = String((other.address() as AddressInfo).port);
    for (const ports of [
      ["--port", port, "--admin-port", "0"],
      ["--port", "0", "--admin-port", port],
    ]) {
      const { code, stderr } = world.run("serve", "--observe", ...ports);
      expect(code).toBe(1);
      expect(stderr).toContain(port);
      expect(stderr).toContain("choose free ports with --port 0 --admin-port 0");
    }
  } finally {
    other.close();
  }
});

it("imports the other servers when a variable of one is not set, and names the one that is left out", () => {
  const file = join(world.folder, "servers.json");
  const servers = { good: { command: "x" }, bad: { command: "x", args: ["${NOT_SET_HERE}"] } };
  writeFileSync(file, JSON.stringify({ mcpServers: servers }));
  const imported = world.run("--json", "import", "--from", file, "--yes");
  expect(imported.code, imported.stderr).toBe(0);
  const plan = JSON.parse(imported.stdout) as { servers: { name: string }[]; skipped: { name: string; why: string }[] };
  expect(plan.servers.map(({ name }) => name)).toEqual(["good"]);
  expect(plan.skipped).toEqual([
    expect.objectContaining({ name: "bad", why: expect.stringContaining("NOT_SET_HERE") }),
  ]);
  const named = world.run("import", "--from", file, "--only", "bad", "--yes");
  expect(named.code).toBe(1);
  expect(named.stderr).toContain("NOT_SET_HERE");
});

it("connects a client that only starts programs to the demonstration, before anything is imported", () => {
  const connected = world.run("connect", "claude-desktop", "--yes");
  expect(connected.code, connected.stderr).toBe(0);
  const text = readFileSync(world.claude, "utf8").replace(/^\s*\/\/.*$/m, "");
  const { args } = JSON.parse(text).mcpServers.portcullis as { args: string[] };
  expect(args).toContain("--stdio");
  expect(args).not.toContain("--app");
});

it("disconnect of the last client shows full tool names again, and a running gateway applies it at once [H5]", async () => {
  const file = join(world.folder, "servers.json");
  const memory = { command: process.execPath, args: [programOf("memory")] };
  writeFileSync(file, JSON.stringify({ mcpServers: { memory } }));
  expect(world.run("import", "--from", file, "--yes").code).toBe(0);
  const gateway = await world.serve();
  const names = (): string => world.run("ls", "--url", gateway.url).stdout;
  expect(names()).toContain("memory.read_graph");
  expect(world.run("connect", "cursor", "--yes").code).toBe(0);
  expect(world.run("connect", "gemini", "--yes").code).toBe(0);
  await vi.waitFor(() => expect(names()).toContain("memory_read_graph"), 20_000);
  expect(world.run("disconnect", "cursor", "--yes").stdout).not.toContain("names are shown whole again");
  expect(names()).toContain("memory_read_graph");
  expect(world.run("disconnect", "gemini", "--yes").stdout).toContain("names are shown whole again");
  await vi.waitFor(() => expect(names()).toContain("memory.read_graph"), 20_000);
  for (const left of [".cursor/mcp.json", ".gemini/settings.json"])
    expect(existsSync(join(world.home, left))).toBe(false);
});

it("ls says how many tools are hidden by policy, and a denied call prints one command that explains it", async () => {
  const gateway = await world.serve();
  const { stdout, stderr } = world.run("ls", "--url", gateway.url);
  expect(stdout).toContain("math.add");
  expect(stdout).not.toContain("shell.run");
  expect(stderr).toBe("1 tool of application local hidden by policy: shell.run\n");
  const denied = world.run("call", "shell.run", '{"command":"ls"}', "--url", gateway.url);
  expect(denied.code).toBe(2);
  expect(denied.stderr.match(/policy explain/g)).toHaveLength(1);
  expect(denied.stderr).toContain("explain it with: portcullis policy explain shell.run");
});

it("call answers a mistyped tool and broken arguments with what was probably meant", async () => {
  const gateway = await world.serve();
  const mistyped = world.run("call", "math.ad", '{"a":1,"b":2}', "--url", gateway.url);
  expect(mistyped.code).toBe(1);
  expect(mistyped.stderr).toBe(
    "error: there is no tool `math.ad`\ndid you mean `math.add`? list the tools with: portcullis ls\n",
  );
  const broken = world.run("call", "math.add", '{"a":1,"b":}', "--url", gateway.url);
  const wrong = world.run("call", "math.add", '{"a":"1"}', "--url", gateway.url);
  expect(wrong.code).toBe(1);
  expect(wrong.stderr).toContain("/b: is required (Add `b` (an integer))\n");
  expect(wrong.stderr).toContain("/a: must be an integer, not a string (Send the number without quotes)\n");
  expect(broken.code).toBe(64);
  expect(broken.stderr).toMatch(/^error: invalid arguments: not valid JSON: .*\nwrite them like '\{"a":1\}'\n$/);
});

it("the 401 after the first key says to a caller of a running gateway that the request has no credential [H4]", async () => {
  const gateway = await world.serve();
  expect(world.run("ls", "--url", gateway.url).code).toBe(0);
  expect(world.run("key", "add", "local", "--name", "laptop", "--allow", "list").stderr).toContain(
    "callers of local now need a key",
  );
  await vi.waitFor(() => {
    const { code, stderr } = world.run("ls", "--url", gateway.url);
    expect(code).toBe(4);
    expect(stderr).toContain("authentication required: the request has no credential");
    expect(stderr).toContain("portcullis key add APP --name NAME");
  }, 20_000);
});
