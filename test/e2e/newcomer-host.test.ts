// A newcomer's path to the host: two questions or two flags, a commented policy, and a client configuration that works.

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { type Ended, programOf } from "./in-process.js";
import { inspect } from "./inspector.js";
import { root } from "./serving.js";

const main = join(root, "dist", "cli", "main.js");
let home: string;
let code: string;
beforeEach(() => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-newcomer-")));
  code = join(home, "code");
  mkdirSync(code);
  writeFileSync(join(code, "readme.txt"), "hello, newcomer\n");
});
afterEach(() => {
  process.chdir(before.cwd);
  rmSync(home, { recursive: true, force: true });
});

const environment = () => ({ PATH: process.env.PATH ?? "", HOME: home, NO_COLOR: "1", TERM: "xterm" });

let portcullis: (...args: string[]) => Promise<Ended>;
const before = { cwd: process.cwd(), home: process.env.HOME };
beforeAll(async () => {
  const run = await programOf(["init"]);
  portcullis = (...args) => {
    process.chdir(home);
    // A new object for `process.env` would leave the real variable as it was, and with it somebody's own policy.
    process.env.HOME = home;
    delete process.env.XDG_CONFIG_HOME;
    delete process.env.XDG_STATE_HOME;
    return run(args);
  };
});
afterAll(() => {
  process.chdir(before.cwd);
  process.env.HOME = before.home;
});

const policyFile = () => join(home, ".config/portcullis/policy.yaml");

describe("portcullis init host", () => {
  it("portcullis init host prints a client configuration that the inspector works with [M9]", async () => {
    const made = await portcullis("init", "host", "--read", "code", "--write", "code/scratch");
    expect(made).toMatchObject({ code: 0 });
    const snippet = join(home, "client.json");
    writeFileSync(snippet, made.stdout);
    const listed = inspect(snippet, ["--method", "tools/list"], { env: environment() });
    expect(listed.answer?.tools?.map((tool: { name: string }) => tool.name).sort(), listed.text).toEqual([
      "cmd.run",
      "fs.read",
      "fs.write",
    ]);
    const call = (tool: string, ...args: string[]) =>
      inspect(snippet, ["--method", "tools/call", "--tool-name", tool, ...args.flatMap((arg) => ["--tool-arg", arg])], {
        env: environment(),
      });
    expect(call("fs.write", "path=~/code/scratch/new.txt", "data=written").answer).toMatchObject({
      structuredContent: { bytesWritten: 7 },
    });
    expect(readFileSync(join(code, "scratch/new.txt"), "utf8")).toBe("written");
  });

  it("portcullis init host writes a commented policy, for its owner alone, and never overwrites one", async () => {
    expect((await portcullis("init", "host", "--read", "code")).code).toBe(0);
    const text = readFileSync(policyFile(), "utf8");
    expect(parse(text)).toMatchObject({ version: 1, allowedRoots: ["~/code"], writeRules: [], sandbox: "required" });
    expect(text.split("\n").filter((line) => line.startsWith("#")).length).toBeGreaterThan(10);
    expect(statSync(policyFile()).mode & 0o777).toBe(0o600);
    writeFileSync(policyFile(), "version: 1 # mine\n");
    const again = await portcullis("init", "host", "--read", "code");
    expect(again.code).toBe(1);
    expect(again.stderr).toContain("--force");
    expect(readFileSync(policyFile(), "utf8")).toBe("version: 1 # mine\n");
    expect((await portcullis("init", "host", "--read", "code", "--force")).code).toBe(0);
    expect(parse(readFileSync(policyFile(), "utf8"))).toMatchObject({ allowedRoots: ["~/code"] });
  });

  it("portcullis init host refuses directories that contain the policy, the ledger or the program, and writes nothing", async () => {
    for (const args of [
      ["--read", "."],
      ["--read", "code", "--write", ".config"],
      ["--read", "code", "--write", "~/.local/state/portcullis"],
      ["--read", "code", "--write", join(root, "dist")],
      ["--read", "nowhere"],
    ]) {
      const refused = await portcullis("init", "host", ...args);
      expect(refused.code, args.join(" ")).toBe(3);
      expect(refused.stderr).toMatch(/must stay out of reach|does not exist/);
      expect(() => statSync(policyFile())).toThrow();
    }
  });

  it("portcullis init host prints everything as data, and names the options when there is no terminal to ask", async () => {
    const nobody = await portcullis("init", "host");
    expect(nobody.code).toBe(64);
    expect(nobody.stderr).toContain("--read <directory>");
    const made = await portcullis("init", "host", "--read", "code", "--config", "elsewhere/p.yaml", "--json");
    expect(made.stderr).toBe("");
    expect(JSON.parse(made.stdout)).toMatchObject({
      config: join(home, "elsewhere/p.yaml"),
      client: { mcpServers: { "portcullis-host": { command: process.execPath } } },
    });
  });

  const hasScript = spawnSync("script", ["--version"]).status === 0;
  it.skipIf(!hasScript)(
    "portcullis init host asks two questions at a terminal (needs `script` of util-linux) [M9]",
    async () => {
      // The terminal that `script` makes is as wide as ours, which is none.
      const command = `stty cols 160 rows 40; ${process.execPath} ${main} init host`;
      const child = spawn("script", ["-qfec", command, "/dev/null"], { cwd: code, env: environment() });
      let screen = "";
      const seen = async (text: string): Promise<void> => {
        const until = Date.now() + 20_000;
        while (!screen.includes(text)) {
          if (Date.now() > until) throw new Error(`waited for "${text}":\n${screen}`);
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      };
      child.stdout.on("data", (chunk) => {
        screen += String(chunk);
      });
      const exited = new Promise((resolve) => child.once("close", resolve));
      await seen("Which directory may the agent read?");
      child.stdin.write("\r");
      await seen("Which directory may it write to?");
      child.stdin.write("~/.config\r");
      await seen("must stay out of reach");
      child.stdin.write("\u0015~/code/out\r");
      await exited;
      expect(screen).toContain("mcpServers");
      expect(parse(readFileSync(policyFile(), "utf8"))).toMatchObject({
        allowedRoots: ["~/code"],
        writeRules: [{ path: "~/code/out" }],
      });
    },
  );
});
