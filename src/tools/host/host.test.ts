import {
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { Sandbox } from "../../host/index.js";
import type { JsonObject } from "../../mcp/index.js";
import { type Intent, PERMIT, type PolicyInput } from "../../policy/index.js";
import { type Calling, callTool, ruleOf } from "../fixtures/calling.js";
import { type CoreApplication, CoreSettingsError, coreChecks, coreTools } from "../index.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "core-host-")));
const sandboxes: Sandbox[] = [];
afterAll(async () => {
  await Promise.all(sandboxes.map((sandbox) => sandbox.close()));
  rmSync(base, { recursive: true, force: true });
});

function application(id: string, more: { linux?: JsonObject; filesystem?: JsonObject } = {}) {
  const directory = join(base, id);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "own"), `of ${id}`);
  const sandbox = new Sandbox();
  sandboxes.push(sandbox);
  const app: CoreApplication = {
    id,
    filesystem: {
      allowedRoots: [directory],
      writeRules: [{ path: directory, recursive: true, createIfMissing: true }],
      ...more.filesystem,
    },
    linux: {
      commands: [
        { id: "cat", exec: "/bin/cat", args: { patterns: [{ value: ".*" }] } },
        { id: "ls", exec: "/bin/ls", args: { patterns: [{ value: ".*" }] } },
        { id: "whoami", exec: "/usr/bin/id", args: { allow: ["-u"] } },
        { id: "sleep", exec: "/bin/sleep", args: { patterns: [{ value: "[0-9]+" }] }, timeoutMs: 300 },
        { id: "long", exec: "/bin/sleep", args: { fixed: ["30"] }, timeoutMs: 60_000 },
        { id: "yes", exec: "/usr/bin/yes", timeoutMs: 5_000, maxOutputBytes: 10_000 },
        {
          id: "hungry",
          exec: "/usr/bin/tail",
          args: { fixed: ["-c", "900000000", "/dev/zero"] },
          limits: { maxMemoryBytes: 50_000_000 },
        },
        { id: "write", exec: "/usr/bin/tee", args: { patterns: [{ value: ".*" }] } },
      ],
      ...more.linux,
    } as JsonObject,
  };
  const protectedPaths = [join(base, "state")];
  const services = { log: { log: () => undefined }, sandbox, protectedPaths };
  const tools = coreTools(app, services);
  const [check = () => PERMIT] = coreChecks(app, services);
  const call = (name: string, args: JsonObject, calling: Calling = {}) =>
    callTool(tools, `core.${name}`, args, { app: id, ...calling });
  const ask = (name: string, args: JsonObject, as = id) =>
    check(
      {
        principal: { app: as, agent: "a", scope: [], via: "key" },
        method: "tools/call",
        target: { type: "Tool", name: `core.${name}` },
        arguments: args,
        transport: "http",
      } as unknown as PolicyInput,
      {} as Intent,
    );
  return { directory, call, ask, tools };
}

describe("core.filesystem", () => {
  const blog = application("blog");

  it("reads, writes, lists, makes, moves and deletes in the application's own folder [H10]", async () => {
    await blog.call("filesystem.makeDirectory", { path: "posts" });
    const written = await blog.call("filesystem.writeFile", { path: "posts/one.md", data: "hello" });
    expect(written).toMatchObject({ bytesWritten: 5 });
    expect(await blog.call("filesystem.readFile", { path: "posts/one.md" })).toMatchObject({ data: "hello" });
    await blog.call("filesystem.move", { from: "posts/one.md", to: "posts/two.md" });
    expect(await blog.call("filesystem.listDirectory", { path: "posts" })).toMatchObject({
      entries: [{ name: "two.md", type: "file", size: 5 }],
      truncated: false,
    });
    expect(await blog.call("filesystem.stat", { path: "posts" })).toMatchObject({ type: "folder" });
    await blog.call("filesystem.deleteFile", { path: "posts/two.md" });
    await blog.call("filesystem.deleteDirectory", { path: "posts" });
    expect(await ruleOf(blog.call("filesystem.stat", { path: "posts" }))).toBe("notFound");
  });

  it("denies in the gate, before any effect, what the tool itself denies", async () => {
    expect(await blog.ask("filesystem.readFile", { path: "own" })).toMatchObject({ effect: "permit" });
    expect(await blog.ask("filesystem.deleteFile", { path: "own" })).toMatchObject({ effect: "permit" });
    expect(readFileSync(join(blog.directory, "own"), "utf8")).toBe("of blog");
    expect(await blog.ask("filesystem.deleteFile", { path: "/etc/passwd" })).toMatchObject({
      effect: "deny",
      type: "PolicyDeny",
      rules: [{ id: "outsideWriteZones" }],
    });
    expect(await blog.ask("linux.executeCommand", { command: "rm" })).toMatchObject({ effect: "deny" });
    // Calls of other agents and of other tools are left to other checks.
    expect(await blog.ask("filesystem.readFile", { path: "/etc/passwd" }, "shop")).toMatchObject({ effect: "permit" });
    expect(await blog.ask("llm.generate", {})).toMatchObject({ effect: "permit" });
  });
});

describe.skipIf(process.platform !== "linux")("core.linux.executeCommand", () => {
  const shop = application("shop");
  const run = (command: string, ...args: string[]) => shop.call("linux.executeCommand", { command, args });

  it("runs what is on the list, by its id or by its path, without a shell [H9]", async () => {
    expect(await run("cat", "own")).toMatchObject({ stdout: "of shop", stderr: "", exitCode: 0 });
    expect(await run("/bin/cat", "own")).toMatchObject({ stdout: "of shop", exitCode: 0 });
    const literal = await run("cat", "own; id", "$(id)", "`id`");
    expect(literal).toMatchObject({ stdout: "", exitCode: 1 });
    expect(literal.stderr).toContain("own; id");
  });

  it.each(["/bin/sh", "sh", "/usr/bin/env", "bash -c id", "../bin/cat", "/bin/../bin/cat", "cat\0", "", "commands"])(
    "refuses %j",
    async (command) =>
      expect(["unknownCommand", "schema"]).toContain((await ruleOf(run(command))).replace(/^arguments.*/, "schema")),
  );

  it("runs as another user than root, and says which protections are in force [H9]", async () => {
    const result = await run("whoami", "-u");
    expect(Number(result.stdout)).toBeGreaterThan(0);
    expect(result.protections).toMatchObject({ noNewPrivileges: true });
  });

  it("stops what takes too long, says too much or takes too much memory [H9]", async () => {
    await expect(run("sleep", "30")).rejects.toMatchObject({ type: "ToolTimeout", detail: { rule: "timeoutMs" } });
    const chatty = await run("yes").catch(
      (error: { detail: { extra: { partial: JsonObject } } }) => error.detail.extra.partial,
    );
    expect(chatty).toMatchObject({ truncated: true, warnings: ["OUTPUT_TRUNCATED"] });
    expect(Buffer.byteLength(chatty.stdout as string)).toBeLessThanOrEqual(10_000);
    const hungry = await run("hungry");
    expect([hungry.exitCode, hungry.signal]).not.toEqual([0, null]);
  });

  it("a cancelled call ends the command", async () => {
    const stop = new AbortController();
    const running = shop.call("linux.executeCommand", { command: "long" }, { signal: stop.signal });
    setTimeout(() => stop.abort(), 300);
    await expect(running).rejects.toThrow("the command and all its children were ended");
  });
});

describe.skipIf(process.platform !== "linux")("two applications", () => {
  const a = application("alpha");
  const b = application("beta");
  writeFileSync(join(b.directory, "secret"), "SECRET OF BETA");
  mkdirSync(join(base, "state"), { recursive: true });
  writeFileSync(join(base, "state/key"), "SECRET OF THE OPERATOR");
  // As if a build had left them there: links that the application did not make by these tools.
  symlinkSync(b.directory, join(a.directory, "to-beta"));
  symlinkSync("../beta/secret", join(a.directory, "to-secret"));
  symlinkSync("/proc/self/root", join(a.directory, "proc"));
  linkSync(join(b.directory, "secret"), join(a.directory, "hard"));

  const ways = [
    "../beta/secret",
    "to-beta/secret",
    "to-secret",
    `proc${b.directory}/secret`,
    "hard",
    join(b.directory, "secret"),
    "../state/key",
    `/proc/self/root${b.directory}/secret`,
    `/proc/self/cwd/../beta/secret`,
    "own/../../beta/secret",
    "./.././beta//secret",
  ];

  it.each(ways)("no tool of alpha reads, lists, changes or runs anything at %s [H9]", async (path) => {
    const { ino } = { ino: readFileSync(join(b.directory, "secret"), "utf8") };
    const calls: [string, JsonObject][] = [
      ["filesystem.readFile", { path }],
      ["filesystem.writeFile", { path, data: "OVERWRITTEN", overwrite: true }],
      ["filesystem.listDirectory", { path: path.replace(/\/(secret|key)$/, "") }],
      ["filesystem.makeDirectory", { path: path.replace(/(secret|key)$/, "made") }],
      ["linux.executeCommand", { command: "cat", args: [path] }],
      ["linux.executeCommand", { command: "ls", args: ["-laR", path] }],
      ["linux.executeCommand", { command: "write", args: ["-a", path], stdin: "OVERWRITTEN" }],
      ["linux.executeCommand", { command: "ls", args: [], cwd: path.replace(/\/(secret|key)$/, "") }],
      ["filesystem.move", { from: path, to: "stolen" }],
      ["filesystem.move", { from: "own", to: path, overwrite: true }],
      ["filesystem.deleteFile", { path }],
    ];
    for (const [name, args] of calls) {
      // A second name of a file, which only a user with rights to both directories can have made, is the file itself.
      if (name === "linux.executeCommand" && path === "hard") continue;
      // Its own links and names may go; what they lead to may not.
      if (name !== "linux.executeCommand" && /deleteFile|move|writeFile/.test(name) && /^(hard|to-secret)$/.test(path))
        continue;
      const said = await a.call(name, args).then(
        (result) => JSON.stringify(result),
        (error: Error & { detail?: object }) => JSON.stringify([error.message, error.detail]),
      );
      expect(said, `${name} ${JSON.stringify(args)}`).not.toContain("SECRET OF");
      expect(said).not.toContain('"name":"secret"');
    }
    expect(readFileSync(join(b.directory, "secret"), "utf8")).toBe(ino);
    expect(readFileSync(join(base, "state/key"), "utf8")).toBe("SECRET OF THE OPERATOR");
  });

  it("does not read a file with a second name outside", async () => {
    expect(await ruleOf(a.call("filesystem.readFile", { path: "hard" }))).toBe("hardLink");
  });

  it("any path that is put together from such parts stays inside [H10]", async () => {
    const part = fc.constantFrom(
      "..",
      ".",
      "",
      "to-beta",
      "proc",
      "beta",
      "alpha",
      "secret",
      "own",
      base,
      "/proc/self",
      "root",
      "cwd",
      "~",
      "\u2025",
    );
    await fc.assert(
      fc.asyncProperty(fc.array(part, { minLength: 1, maxLength: 8 }), async (parts) => {
        const path = parts.join("/") || "/";
        for (const name of ["readFile", "listDirectory", "stat"]) {
          const said = await a.call(`filesystem.${name}`, { path }).then(JSON.stringify, () => "refused");
          expect(said).not.toMatch(/SECRET OF|"name":"secret"/);
        }
      }),
      { numRuns: 200 },
    );
  });

  it("folders over what must stay out of reach are refused when the application is loaded [H10]", () => {
    const services = { log: { log: () => undefined }, protectedPaths: [join(base, "state")] };
    for (const directory of [base, join(base, "state"), "/"]) {
      const app = { id: "greedy", filesystem: { allowedRoots: [directory] } };
      expect(() => coreTools(app, services)).toThrow(CoreSettingsError);
    }
    expect(() => coreTools({ id: "x", filesystem: { commands: [] } }, services)).toThrow(
      "filesystem has no field `commands`",
    );
    expect(() => coreTools({ id: "x", linux: { profiles: [] } }, services)).toThrow("linux has no field `profiles`");
    expect(() => coreTools({ id: "x", linux: { commands: [{ id: "x", exec: "/nowhere" }] } }, services)).toThrow(
      "/nowhere does not exist",
    );
  });
});
