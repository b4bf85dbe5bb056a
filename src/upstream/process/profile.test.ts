// A server with a profile against everything that the profile does not name.

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { missingForServer, type ServerProfile } from "../../host/index.js";
import type { Fault } from "../../mcp/index.js";
import { createUpstream } from "../upstream.js";
import { causeOf } from "./cause.js";
import { ServerProcess } from "./server-process.js";

const OPTIONS = { leaveMs: 1_000, graceMs: 300, stderrBytes: 4_096 };
const CLOSED: ServerProfile = {
  read: [],
  write: [],
  network: "off",
  memoryBytes: 1_000_000_000,
  processors: 1,
  processes: 64,
};
const START_MS = 60_000;

const clean: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of clean.splice(0).reverse()) await end();
});

let base: string;
beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-profile-")));
  clean.push(() => rmSync(base, { recursive: true, force: true }));
  mkdirSync(join(base, "data"));
  writeFileSync(join(base, "data", "operator.token"), "secret");
});

interface Given {
  readonly profile?: Partial<ServerProfile>;
  readonly without?: { readonly view?: boolean; readonly pidNamespace?: boolean };
  readonly name?: string;
}

/** Starts a script in the sandbox; its one line of output as JSON. */
async function run(script: string, { profile, without, name = "one" }: Given = {}) {
  const file = join(base, "link", "server.mjs");
  mkdirSync(join(base, "code"), { recursive: true });
  if (!existsSync(join(base, "link"))) symlinkSync("code", join(base, "link"));
  writeFileSync(file, script);
  const server = await ServerProcess.start(
    {
      transport: "stdio",
      command: process.execPath,
      args: [file],
      sandbox: {
        mode: "required",
        hidden: [join(base, "data")],
        readOnly: [],
        store: join(base, "data", "servers", name),
        profile: { ...CLOSED, ...profile },
        ...(without === undefined ? {} : { without }),
      },
    },
    OPTIONS,
  );
  clean.push(() => server.stop());
  const text = await new Promise<string>((resolve) => {
    let out = "";
    server.stdout.on("data", (chunk: Buffer) => {
      out += chunk.toString();
      if (out.endsWith("\n")) resolve(out);
    });
    void server.ended.then((how) => resolve(JSON.stringify({ how, stderr: server.stderrTail })));
  });
  return { server, got: JSON.parse(text) as Record<string, unknown> };
}

const PRELUDE = `
import * as fs from "node:fs"; import * as net from "node:net"; import * as os from "node:os";
const tried = (attempt) => { try { return String(attempt() ?? "done"); } catch (error) { return error.code ?? "failed"; } };
const report = (value) => process.stdout.write(JSON.stringify(value) + "\\n");
setInterval(() => {}, 1e6);
`;

describe.runIf(process.platform === "linux")("a server with a profile", () => {
  it("a server with a profile reads and writes what it names, its own home and /tmp, and nothing else", {
    timeout: START_MS,
  }, async () => {
    for (const name of ["in", "out", "other"]) mkdirSync(join(base, name));
    writeFileSync(join(base, "in", "a"), "read me");
    writeFileSync(join(base, "other", "a"), "not for you");
    symlinkSync(join(base, "other"), join(base, "out", "link"));
    symlinkSync(join(base, "in"), join(base, "named"));
    const { server, got } = await run(
      `${PRELUDE}
      const at = (name) => ${JSON.stringify(base)} + "/" + name;
      report({
        read: tried(() => fs.readFileSync(at("in/a"), "utf8")),
        writeRead: tried(() => fs.writeFileSync(at("in/b"), "x")),
        write: tried(() => fs.writeFileSync(at("out/b"), "x")),
        home: tried(() => fs.writeFileSync(os.homedir() + "/kept", "x")),
        temporary: tried(() => fs.writeFileSync("/tmp/x", "x")),
        code: tried(() => fs.appendFileSync(process.argv[1], "x")),
        other: tried(() => fs.readFileSync(at("other/a"))),
        link: tried(() => fs.readFileSync(at("out/link/a"))),
        token: tried(() => fs.readFileSync(at("data/operator.token"))),
        named: tried(() => fs.readFileSync(at("named/a"), "utf8")),
        names: tried(() => fs.readdirSync(at("")).sort().join()),
        root: tried(() => fs.readdirSync("/root").join()),
        shadow: tried(() => fs.readFileSync("/etc/shadow")),
        processes: tried(() => fs.readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name)).length),
      });`,
      { profile: { read: [join(base, "named")], write: [join(base, "out")] } },
    );
    expect(got).toEqual({
      read: "read me",
      writeRead: "EROFS",
      write: "done",
      home: "done",
      temporary: "done",
      code: "EROFS",
      other: "ENOENT",
      link: "ENOENT",
      token: "ENOENT",
      named: "read me",
      names: "code,data,in,link,named,out",
      root: "ENOENT",
      shadow: "ENOENT",
      processes: "1",
    });
    expect(server.protections).toMatchObject({ files: "view", network: "off", profile: { network: "off" } });
    expect(readFileSync(join(base, "data/servers/one/private/kept"), "utf8")).toBe("x");
  });

  it.each([
    [
      "needs a host that its profile does not name",
      (_: string) => `import { existsSync } from "node:fs"; await fetch("http://needed.example.com/").catch(() => {});
        setInterval(() => existsSync(new URL("go", import.meta.url)) && process.exit(1), 50);`,
      "refused needed.example.com: its profile does not name it",
    ],
    [
      "needs a file that its profile does not name",
      (file: string) => `import { readFileSync } from "node:fs"; readFileSync(${JSON.stringify(file)});`,
      "ENOENT: no such file or directory",
    ],
    ["ends with a message", () => `console.error("no token is set"); process.exit(3);`, "stderr ends: no token is set"],
  ])(
    "a server that %s says so to the operator, and not to the caller",
    { timeout: START_MS },
    async (_, script, why) => {
      mkdirSync(join(base, "code"));
      writeFileSync(join(base, "needed"), "x");
      writeFileSync(join(base, "code", "server.mjs"), script(join(base, "needed")));
      const server = createUpstream({
        name: "notes",
        target: {
          transport: "stdio",
          command: process.execPath,
          args: [join(base, "code", "server.mjs")],
          sandbox: {
            mode: "required",
            hidden: [join(base, "data")],
            readOnly: [],
            store: join(base, "data", "servers", "notes"),
            profile: { ...CLOSED, network: ["other.example.com"] },
          },
        },
        timeouts: { leaveMs: 100, graceMs: 100 },
      });
      clean.push(() => server.close());
      const failed = server.start().catch((error: Fault) => error);
      // While it starts, and afterwards.
      await expect.poll(() => causeOf(server.health()), { timeout: START_MS }).toContain(why);
      writeFileSync(join(base, "code", "go"), "");
      const fault = (await failed) as Fault;
      expect(fault.message).not.toContain(why);
      expect(fault.message).not.toContain(base);
      expect(fault.detail.operator).toContain(why);
      expect(server.health()).toMatchObject({ state: "failed", lastError: { cause: expect.stringContaining(why) } });
    },
  );

  it("a server with a profile reaches the hosts that it names by their names, and each destination is recorded", {
    timeout: START_MS,
  }, async () => {
    const host = createServer((_, response) => response.end("hello"));
    const other = createServer((_, response) => response.end("not for you"));
    for (const each of [host, other]) {
      await new Promise<void>((resolve) => each.listen(0, "127.0.0.1", resolve));
      clean.push(() => new Promise((resolve) => each.close(resolve)));
    }
    const [port, closed] = [host, other].map((each) => (each.address() as AddressInfo).port) as [number, number];
    const { server, got } = await run(
      `${PRELUDE}
      const get = (url) => fetch(url, { signal: AbortSignal.timeout(5000) })
        .then((reply) => reply.text()).catch((error) => error.cause?.code ?? error.name);
      report({
        named: await get("http://localhost:${port}/"),
        otherPort: await get("http://localhost:${closed}/"),
        address: await get("http://127.0.0.2:${port}/"),
        unlisted: await get("http://unlisted.example.com:${port}/"),
        metadata: await get("http://169.254.169.254/"),
      });`,
      { profile: { network: [`localhost:${port}`] } },
    );
    expect(got).toEqual({
      named: "hello",
      otherPort: "ECONNREFUSED",
      address: expect.stringMatching(/ECONNRESET|UND_ERR_SOCKET/),
      unlisted: "ENOTFOUND",
      metadata: "ENETUNREACH",
    });
    const unnamed = { refusal: "profile", reason: "its profile does not name it" };
    expect(server.protections.destinations).toEqual(
      expect.arrayContaining([
        { host: "localhost", port, allowed: true, count: 1 },
        { host: "127.0.0.2", port, allowed: false, count: 1, ...unnamed },
        { host: "unlisted.example.com", port: undefined, allowed: false, count: expect.any(Number), ...unnamed },
      ]),
    );
  });

  it.each([
    ["as the user of the tests", {}],
    ["where Landlock alone holds files", { view: true }],
  ])(
    "an observed server is recorded with what it touches and tries to touch, and gets no more, %s",
    {
      timeout: START_MS,
    },
    async (_, without) => {
      for (const name of ["in", "out", "unused", "other"]) mkdirSync(join(base, name));
      for (const name of ["in/a", "out/old", "other/a"]) writeFileSync(join(base, name), "x");
      const { server, got } = await run(
        `${PRELUDE}
      import { execFileSync } from "node:child_process";
      const at = (name) => ${JSON.stringify(base)} + "/" + name;
      process.chdir(at("in"));
      report({
        read: tried(() => fs.readFileSync("a", "utf8")),
        write: tried(() => fs.writeFileSync(at("out/b"), "x")),
        removed: tried(() => fs.unlinkSync(at("out/old"))),
        other: tried(() => fs.readFileSync(at("other/a"))) === "x",
        child: tried(() => execFileSync("cat", [at("data/operator.token")], { stdio: "pipe" })) === "secret",
      });`,
        {
          profile: { read: [join(base, "in"), join(base, "unused")], write: [join(base, "out")], observe: true },
          without,
        },
      );
      expect(got).toEqual({ read: "x", write: "done", removed: "done", other: false, child: false });
      const touched = server.protections.touched?.map(({ path, isWritten }) => [
        path.slice(base.length + 1),
        isWritten,
      ]);
      expect(new Set(touched)).toEqual(
        new Set([
          ["in/a", false],
          ["out/b", true],
          ["out/old", true],
          ["other/a", false],
          ["data/operator.token", false],
        ]),
      );
    },
  );

  it("a server with a profile imports what its workspace keeps above its package", { timeout: START_MS }, async () => {
    mkdirSync(join(base, "code"));
    writeFileSync(join(base, "code", "package.json"), "{}");
    mkdirSync(join(base, "packages", "dependency"), { recursive: true });
    writeFileSync(join(base, "packages", "dependency", "index.mjs"), "export default 'found';");
    symlinkSync(join(base, "packages"), join(base, "node_modules"));
    const { got } = await run(`${PRELUDE}
      report({ imported: (await import("../node_modules/dependency/index.mjs")).default });`);
    expect(got).toEqual({ imported: "found" });
  });

  it("a server with a profile cannot start more processes than it names, nor fill the disk with one file", {
    timeout: START_MS,
  }, async () => {
    const { got } = await run(
      `${PRELUDE}
      import { spawn } from "node:child_process";
      let failed = "";
      for (let i = 0; i < 100 && failed === ""; i++) {
        await new Promise((next) => {
          const child = spawn("sleep", ["60"]);
          child.once("spawn", next);
          child.once("error", (error) => { failed = error.code; next(); });
        });
      }
      process.on("SIGXFSZ", () => {});
      report({ failed, large: tried(() => fs.truncateSync(fs.openSync("/tmp/large", "w"), 2e9)) });`,
    );
    expect(got).toEqual({ failed: "EAGAIN", large: expect.stringMatching(/EFBIG|ENOSPC|EINVAL/) });
  });

  it("a server with a profile is not started where a path is missing, or holds what is the gateway's", {
    timeout: START_MS,
  }, async () => {
    await expect(run("", { profile: { read: [join(base, "absent")] } })).rejects.toThrow(
      /absent` of sandbox.read does not exist/,
    );
    await expect(run("", { profile: { write: [base] } })).rejects.toThrow(/holds `.*data`, which is the gateway's own/);
  });

  it("a server whose profile names hosts is refused where the machine gives it no network namespace", () => {
    const have = { files: "view", processes: "pid-namespace", user: 1, seccomp: true, noNewPrivileges: true } as const;
    const rest = { notes: [], gaps: [], limits: [] };
    const of = (network: ServerProfile["network"]): string[] =>
      missingForServer({ ...have, ...rest, network: "off", profile: { ...CLOSED, network } }, true);
    expect(of(["api.example.com"])).toEqual(["a network namespace for the profile's hosts"]);
    expect(of("public")).toEqual(["a network namespace for the profile's hosts"]);
    expect(of("off")).toEqual([]);
  });

  it("a server with a profile reads and writes nothing else where Landlock alone holds files", {
    timeout: START_MS,
  }, async () => {
    const { got } = await run(
      `${PRELUDE}
      report({
        token: tried(() => fs.readFileSync(${JSON.stringify(join(base, "data/operator.token"))})),
        home: tried(() => fs.writeFileSync(os.homedir() + "/kept", "x")),
        temporary: tried(() => fs.writeFileSync(os.tmpdir() + "/x", "x")),
        outside: tried(() => fs.writeFileSync("/tmp/portcullis-outside", "x")),
      });`,
      { without: { view: true } },
    );
    expect(got).toEqual({ token: "EACCES", home: "done", temporary: "done", outside: "EACCES" });
  });
});
