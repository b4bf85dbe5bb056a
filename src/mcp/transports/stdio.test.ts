// What is particular to stdio: a child that is really gone, an environment without secrets, a stdout that stays clean.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { defaultEnvironment, listenStdio, type StdioClientOptions, stdioClient } from "./stdio.js";

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanUp.splice(0).reverse()) await undo();
});

const node = (script: string): Pick<StdioClientOptions, "command" | "args"> => ({
  command: process.execPath,
  args: ["-e", script],
});

async function start(options: StdioClientOptions) {
  const messages: string[] = [];
  let ended: (error: Error | undefined) => void = () => {};
  const closed = new Promise<Error | undefined>((resolve) => {
    ended = resolve;
  });
  const client = stdioClient(options);
  await client.start({ message: (text) => messages.push(text), closed: ended });
  cleanUp.push(() => client.close());
  return Object.assign(client, { messages, closed });
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(5);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe("a child", () => {
  test("gets no variable of ours but the harmless ones, and with an environment given exactly that", async () => {
    process.env.PORTCULLIS_TEST_SECRET = "do not pass on";
    cleanUp.push(() => delete process.env.PORTCULLIS_TEST_SECRET);
    const print = node("console.log(JSON.stringify(Object.keys(process.env)))");
    const plain = await start(print);
    await until(() => plain.messages.length === 1);
    const names = JSON.parse(plain.messages[0] as string) as string[];
    expect(names).not.toContain("PORTCULLIS_TEST_SECRET");
    expect(names.sort()).toEqual(Object.keys(defaultEnvironment()).sort());
    const exact = await start({ ...print, env: { ONLY: "this" } });
    await until(() => exact.messages.length === 1);
    expect(exact.messages).toEqual(['["ONLY"]']);
  });

  test("a child is started without a shell", async () => {
    const client = await start({ ...node("console.log(JSON.stringify(process.argv.slice(1)))"), cwd: tmpdir() });
    await client.close();
    const args = ["-e", "console.log(JSON.stringify(process.argv.slice(1)))", "$(id)", "; rm x", "`a`"];
    const literal = await start({ command: process.execPath, args });
    await until(() => literal.messages.length === 1);
    expect(literal.messages).toEqual(['["$(id)","; rm x","`a`"]']);
  });

  test("a child that cannot be started is an error with its name", async () => {
    await expect(start({ command: "no-such-program-anywhere" })).rejects.toMatchObject({
      kind: "unreachable",
      message: expect.stringContaining("no-such-program-anywhere"),
    });
  });

  test("a child that ends by itself is reported with how, and with the end of its stderr; what it sent before is delivered", async () => {
    const client = await start(node(`console.log('{"last":1}'); console.error("out of luck"); process.exitCode = 3`));
    const error = await client.closed;
    expect(client.messages).toEqual(['{"last":1}']);
    expect(error?.message).toContain("exit code 3");
    expect(error?.message).toContain("out of luck");
  });

  test("a child may write to stderr without end: all of it goes to the callback, little of it is kept", async () => {
    let heard = 0;
    const script = `for (let i = 0; i < 200; i++) process.stderr.write("e".repeat(10_000)); process.exitCode = 1`;
    const client = await start({ ...node(script), onStderr: (text) => (heard += text.length) });
    const error = await client.closed;
    expect(heard).toBe(2_000_000);
    expect(error?.message.length).toBeLessThan(10_000);
  });

  test("a child that ignores closed pipes and SIGTERM is killed, with everything it started", async () => {
    const stubborn = `
      process.on("SIGTERM", () => {});
      const child = require("node:child_process").spawn(process.execPath,
        ["-e", "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)"], { stdio: "ignore" });
      setTimeout(() => console.log(JSON.stringify([process.pid, child.pid])), 200);
      setInterval(() => {}, 1000);
    `;
    const client = await start({ ...node(stubborn), leaveMs: 50, graceMs: 100 });
    await until(() => client.messages.length === 1);
    const [pid, grandchild] = JSON.parse(client.messages[0] as string) as [number, number];
    expect([isAlive(pid), isAlive(grandchild)]).toEqual([true, true]);
    await client.close();
    expect(isAlive(pid)).toBe(false);
    await until(() => !isAlive(grandchild) || isZombie(grandchild));
  });

  test("a child that leaves by itself when its stdin closes is not signalled", async () => {
    const polite = `
      process.on("SIGTERM", () => process.exit(9));
      process.stdin.resume().on("end", () => setTimeout(() => { console.error("left by myself"); process.exit(0); }, 100));
      console.log("[1]");
    `;
    let words = "";
    const client = await start({ ...node(polite), onStderr: (text) => (words += text) });
    await until(() => client.messages.length === 1);
    await client.close();
    expect(words).toBe("left by myself\n");
  });

  test("a child whose helper stays behind when it ends takes it along", async () => {
    const leaving = `
      const child = require("node:child_process").spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
      child.unref();
      console.log(JSON.stringify(child.pid));
    `;
    const client = await start({ ...node(leaving), leaveMs: 50, graceMs: 2_000 });
    await client.closed;
    const helper = Number(client.messages[0]);
    await until(() => !isAlive(helper) || isZombie(helper));
  });
});

/** Where orphans are not reaped, a killed process stays in the table, but it does nothing any more. */
function isZombie(pid: number): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return true;
  }
}

test("answers under way still go out after stdin has ended, and then the server is done", async () => {
  const input = new PassThrough();
  const output = new PassThrough();
  const listener = await listenStdio(
    { message: ({ text, reply }) => void setTimeout(() => reply.end(text), 50) },
    { input, output },
  );
  input.end('{"a":1}\n{"b":2}');
  await listener.closed;
  expect(output.read()?.toString()).toBe('{"a":1}\n{"b":2}\n');
  expect(listener.connections).toBe(0);
});

test("work that never ends does not keep the server after stdin has ended", async () => {
  let aborts = 0;
  const input = new PassThrough();
  const listener = await listenStdio(
    { message: ({ reply }) => reply.onAbort(() => aborts++) },
    { input, output: new PassThrough(), lingerMs: 50 },
  );
  input.end("[1]\n");
  await listener.closed;
  expect(aborts).toBe(1);
});

describe("our own stdout", () => {
  const root = fileURLToPath(new URL("../../..", import.meta.url));
  let folder = "";

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "portcullis-stdout-"));
    const flags = ["--ignoreConfig", "--module", "nodenext", "--target", "es2023", "--lib", "es2023,es2024.string"];
    flags.push("--types", "node", "--skipLibCheck", "--rootDir", join(root, "src"), "--outDir", folder);
    execFileSync(join(root, "node_modules/.bin/tsc"), [...flags, join(root, "src/mcp/transports/stdio.ts")], {
      cwd: root,
    });
    writeFileSync(join(folder, "package.json"), '{"type":"module"}');
    writeFileSync(
      join(folder, "serve.js"),
      `import { listenStdio } from "./mcp/transports/stdio.js";
       console.log("before: not serving yet");
       const listener = await listenStdio({
         message({ text, reply }) {
           console.log("a forgotten console.log");
           process.stdout.write("and a direct write\\n");
           reply.end(text);
         },
       });
       await listener.closed;
       console.log("after");`,
    );
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test("carries messages and nothing else; what other code prints goes to stderr, and the process ends with its input", async () => {
    const child = spawn(process.execPath, [join(folder, "serve.js")], { stdio: ["pipe", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (chunk: Buffer) => (stdout += chunk));
    child.stderr.on("data", (chunk: Buffer) => (stderr += chunk));
    child.stdin.end('{"id":1}\n{"id":2}\n');
    const [code] = await once(child, "close");
    expect(stdout).toBe('before: not serving yet\n{"id":1}\n{"id":2}\n');
    expect(stderr).toContain("a forgotten console.log\nand a direct write\n");
    expect(stderr).toContain("after");
    expect(code).toBe(0);
  });

  test("a stdout that is not read any more ends the server without noise", async () => {
    const child = spawn(process.execPath, [join(folder, "serve.js")], { stdio: ["pipe", "pipe", "pipe"] });
    let stderr = "";
    child.stderr.on("data", (chunk: Buffer) => (stderr += chunk));
    await once(child.stdout, "data");
    child.stdout.destroy();
    child.stdin.on("error", () => {});
    const asking = setInterval(() => child.stdin.write('{"id":1}\n'), 10);
    const [code] = await once(child, "close");
    clearInterval(asking);
    expect(code).toBe(0);
    expect(stderr).not.toContain("EPIPE");
  });
});
