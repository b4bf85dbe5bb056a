// The newcomer's path from the packed tarball: installed into an empty folder, without scripts, with what npm has of our
// dependencies; then `init host`, and the printed configuration given to the inspectors of today and of yesterday.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Inspected, inspect } from "./inspector.js";
import { root } from "./serving.js";

/** The first inspector line that needs a newer Node than ours, and that Node. */
const INSPECTOR = "@modelcontextprotocol/inspector@2.12.0";
const NODE = `node-${process.platform === "win32" ? "win" : process.platform}-${process.arch}@22`;

const base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-packed-")));
const home = join(base, "home");
const project = join(base, "project");
const snippet = join(base, "client.json");
const env = { PATH: process.env.PATH ?? "", HOME: home, NO_COLOR: "1" };

function npm(args: readonly string[], cwd: string): string {
  const quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  const ran = spawnSync("npm", [...args, ...quiet], { cwd, encoding: "utf8", timeout: 600_000 });
  if (ran.status !== 0) throw new Error(`npm ${args.join(" ")}: ${ran.stdout}${ran.stderr}`);
  return ran.stdout;
}

function portcullis(...args: string[]) {
  const ran = spawnSync(join(project, "node_modules/.bin/portcullis"), args, { cwd: project, env, encoding: "utf8" });
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr };
}

beforeAll(() => {
  mkdirSync(join(home, "code"), { recursive: true });
  mkdirSync(project);
  writeFileSync(join(home, "code/readme.txt"), "hello from a tarball\n");
  const packed = JSON.parse(npm(["pack", "--json", "--pack-destination", base], root)) as { filename: string }[];
  writeFileSync(join(project, "package.json"), "{}");
  npm(["install", join(base, packed[0]?.filename ?? "")], project);
}, 900_000);
afterAll(() => rmSync(base, { recursive: true, force: true }));

function worksWith(run: (args: readonly string[]) => Inspected): void {
  const listed = run(["--method", "tools/list"]);
  const names = listed.answer?.tools?.map((tool: { name: string }) => tool.name).sort();
  expect(names, listed.text).toEqual(["cmd.run", "fs.read", "fs.write"]);
  const read = run(["--method", "tools/call", "--tool-name", "fs.read", "--tool-arg", "path=~/code/readme.txt"]);
  expect(read.answer?.structuredContent?.data, read.text).toBe("hello from a tarball\n");
  const denied = run(["--method", "tools/call", "--tool-name", "fs.read", "--tool-arg", "path=/etc/passwd"]);
  expect(denied.text).toContain("POLICY_DENY");
}

describe("the packed tarball", () => {
  it("the packed tarball writes a policy and a client configuration, and doctor finds nothing wrong [M9]", () => {
    const made = portcullis("init", "host", "--read", "~/code", "--write", "~/code/out");
    expect(made.stderr).toContain("wrote");
    expect(made.code).toBe(0);
    writeFileSync(snippet, made.stdout);
    const examined = portcullis("--json", "doctor", "host");
    const wrong = (JSON.parse(examined.stdout) as { ok: boolean; check: string }[]).filter((finding) => !finding.ok);
    // Where the machine gives no sandbox, that is what it says, and nothing else.
    expect(wrong.filter(({ check }) => !/^(sandbox|a real command)$/.test(check))).toEqual([]);
    expect(portcullis("policy", "explain", "fs.write", "~/code/out/x").code).toBe(0);
  });

  it("the packed tarball refuses to let the agent write where it is installed itself", () => {
    const refused = portcullis("policy", "add-write", ".");
    expect(refused.code).toBe(3);
    expect(refused.stderr).toContain("must stay out of reach");
  });

  it("the packed tarball works with the inspector's command line", () => {
    worksWith((args) => inspect(snippet, args, { env }));
  });

  it("the packed tarball works with the current inspector, on the Node it needs [M9]", () => {
    const folder = join(base, "inspector");
    mkdirSync(folder);
    writeFileSync(join(folder, "package.json"), "{}");
    npm(["install", INSPECTOR, NODE], folder);
    const modules = join(folder, "node_modules");
    const node = join(modules, NODE.split("@")[0] ?? "", "bin", "node");
    expect(existsSync(node)).toBe(true);
    const { bin } = JSON.parse(readFileSync(join(modules, "@modelcontextprotocol/inspector/package.json"), "utf8")) as {
      bin: Record<string, string>;
    };
    const cli = join(modules, "@modelcontextprotocol/inspector", Object.values(bin)[0] ?? "");
    worksWith((args) => inspect(snippet, args, { env, node, cli }));
  });
});
