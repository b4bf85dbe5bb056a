// What a newcomer tries first, and what the command answers when it cannot be done.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type Newcomer, newcomer } from "./first-hour.js";

let world: Newcomer;
beforeEach(() => {
  world = newcomer();
});
afterEach(() => world.close());

const URL_OF = (file: string): unknown => JSON.parse(readFileSync(file, "utf8")).mcpServers.portcullis;

it("connects a client to a gateway elsewhere without a data directory, and disconnect undoes it", () => {
  const file = join(world.home, ".claude.json");
  const url = "http://gate.example:7420/mcp";
  const connected = world.run("connect", "claude-code", "--url", url, "--key-env", "GATE_KEY", "--yes");
  expect([connected.code, connected.code === 0 ? "" : connected.stderr]).toEqual([0, ""]);
  expect(URL_OF(file)).toEqual({ type: "http", url, headers: { Authorization: "Bearer ${GATE_KEY}" } });
  expect(existsSync(join(world.folder, ".portcullis", "portcullis.db"))).toBe(false);
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
