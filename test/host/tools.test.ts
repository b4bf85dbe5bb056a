// The three tools' inputs, outputs and records in detail.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createHash } from "node:crypto";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  cmdRun,
  decideCmdRun,
  decideFsWrite,
  fsRead,
  fsWrite,
  hostTools,
  parsePolicy,
  type Policy,
} from "../../src/host/index.js";
import { compiled } from "./support/compiled.js";
import { isRoot, unreachableForOthers } from "./support/machine.js";
import { code, makeWorld, ok, rule, type World } from "./support/world.js";

const execute = promisify(execFile);
let world: World;
beforeAll(() => {
  world = makeWorld(
    '  - { id: echo, exec: echo, args: { patterns: [{ value: ".*" }] }, envAllowlist: [A] }',
    "limits: { maxReadBytes: 100 }",
  );
});
afterAll(() => world.close());

const sha = (data: string | Buffer): string => createHash("sha256").update(data).digest("hex");

describe("fs.read", () => {
  const read = (args: object) => world.read({ path: join(world.root, "file"), ...args });
  const put = (data: string | Buffer): void => writeFileSync(join(world.root, "file"), data);

  test("offset and length choose a range, and the hash is of that range", async () => {
    put("0123456789");
    expect(ok(await read({ offset: 3, length: 4 }))).toEqual({
      data: "3456",
      bytesRead: 4,
      size: 10,
      sha256: sha("3456"),
    });
    expect(ok(await read({ offset: 8, length: 100 })).data).toBe("89");
    expect(ok(await read({ offset: 50 }))).toMatchObject({ data: "", bytesRead: 0 });
    expect(ok(await read({ length: 0 }))).toMatchObject({ data: "", bytesRead: 0 });
  });

  test("a whole file up to the cap is read, more is refused, parts of more are not", async () => {
    put("x".repeat(100));
    expect(ok(await read({})).bytesRead).toBe(100);
    put("x".repeat(1000));
    expect(rule(await read({}))).toBe("maxReadBytes");
    expect(rule(await read({ length: 101 }))).toBe("maxReadBytes");
    expect(rule(await read({ length: Number.MAX_SAFE_INTEGER }))).toBe("maxReadBytes");
    expect(ok(await read({ offset: 950, length: 5000 })).bytesRead).toBe(50);
  });

  test("bytes that are no text need base64", async () => {
    const bytes = Buffer.from([0xff, 0xfe, 0x00, 0x41]);
    put(bytes);
    const outcome = await read({});
    expect(outcome.ok ? undefined : outcome.denial).toMatchObject({
      code: "INVALID_ARGS",
      rule: "notText",
      suggestions: ["read it with encoding base64"],
    });
    expect(ok(await read({ encoding: "base64" })).data).toBe(bytes.toString("base64"));
  });

  test("a range that ends inside a character leaves the character to the next read", async () => {
    put("aé€😀b");
    for (let length = 2; length < 11; length++) {
      let offset = 0;
      let text = "";
      for (let i = 0; i < 20 && offset < 11; i++) {
        const result = await read({ offset, length });
        if (!result.ok) break;
        text += result.result.data;
        offset += result.result.bytesRead;
      }
      if (length >= 4) expect(text).toBe("aé€😀b");
    }
  });

  test("a byte order mark and NUL bytes come through", async () => {
    put("\ufeffa\0b");
    expect(ok(await read({})).data).toBe("\ufeffa\0b");
  });

  test("a relative path starts at the first root", async () => {
    expect(ok(await world.read({ path: "src/app.ts" })).data).toContain("needle");
    expect(rule(await world.read({ path: "../outside/secret.txt" }))).toBe("outsideAllowedRoots");
  });

  test.each([
    ["nothing", undefined],
    ["null", null],
    ["a list", ["/etc/passwd"]],
    ["no path", {}],
    ["an array as path", { path: ["/x"] }],
    ["an object as path", { path: { toString: "x" } }],
    ["an unknown field", { path: "/x", root: "/" }],
    ["a negative offset", { path: "/x", offset: -1 }],
    ["a fraction", { path: "/x", length: 1.5 }],
    ["a string for a number", { path: "/x", offset: "0" }],
    ["another encoding", { path: "/x", encoding: "latin1" }],
    ["an empty path", { path: "" }],
    ["a prototype", JSON.parse('{"path":"/x","__proto__":{"a":1}}')],
  ])("%s is INVALID_ARGS", async (_, args) => expect(code(await fsRead(world.policy, args))).toBe("INVALID_ARGS"));
});

describe("fs.write", () => {
  const path = (): string => join(world.zone, "target");
  const write = (args: object) => world.write({ path: path(), data: "new", ...args });
  const fresh = (content?: string): void => {
    rmSync(path(), { force: true });
    if (content !== undefined) writeFileSync(path(), content);
  };

  test.each([
    ["a new file", undefined, {}, "allowed"],
    ["a new file, create false", undefined, { create: false }, "notFound"],
    ["an existing file", "old", {}, "exists"],
    ["an existing file, overwrite", "old", { overwrite: true }, "allowed"],
    ["an existing file, create false, overwrite", "old", { create: false, overwrite: true }, "allowed"],
    ["text that is no base64", undefined, { data: "!!!!", encoding: "base64" }, "badData"],
    ["base64 with a line break", undefined, { data: "QUJD\n", encoding: "base64" }, "badData"],
    ["half a character", undefined, { data: "\ud800" }, "badData"],
    ["too much", undefined, { data: "x".repeat(65_537) }, "maxFileBytes"],
    ["just enough", undefined, { data: "x".repeat(65_536) }, "allowed"],
    ["nothing", undefined, { data: "" }, "allowed"],
    ["an unknown field", undefined, { mode: 0o4755 }, "schema"],
  ])("%s: %s", async (_, before, args, expected) => {
    fresh(before);
    expect(rule(await write(args))).toBe(expected);
    const after = existsSync(path()) ? readFileSync(path(), "utf8") : undefined;
    if (expected !== "allowed") expect(after).toBe(before);
    expect(readdirSync(world.zone).filter((name) => name.includes("portcullis"))).toEqual([]);
  });

  test("the size counts in bytes, not characters", async () => {
    fresh();
    expect(rule(await write({ data: "é".repeat(40_000) }))).toBe("maxFileBytes");
  });

  test("a read-only file is not replaced behind its owner's back, by an ordinary user", async ({ skip }) => {
    const closed = unreachableForOthers();
    if (closed !== undefined) skip(closed);
    const folder = join(world.base, "read-only");
    mkdirSync(folder);
    writeFileSync(join(folder, "f"), "old", { mode: 0o444 });
    const script = `
      import { fsWrite, parsePolicy } from ${JSON.stringify(compiled("src/host/index.js"))};
      const { policy } = parsePolicy('version: 1\\nwriteRules: [{ path: "${folder}", createIfMissing: true }]\\n', "p");
      const results = [];
      for (const name of ["f", "g"]) {
        const outcome = await fsWrite(policy, { path: "${folder}/" + name, data: "new", overwrite: true });
        results.push(outcome.ok ? "allowed" : outcome.denial.code);
      }
      console.log(results.join());`;
    const who = isRoot ? { uid: 64_123, gid: 64_123 } : {};
    if (isRoot) {
      chmodSync(world.base, 0o755);
      chownSync(folder, 64_123, 64_123);
      chownSync(join(folder, "f"), 64_123, 64_123);
    }
    const { stdout } = await execute(process.execPath, ["--input-type=module", "-e", script], {
      ...who,
      env: { HOME: "/" },
    });
    expect(stdout.trim()).toBe("IO_ERROR,allowed");
    expect(readFileSync(join(folder, "f"), "utf8")).toBe("old");
    expect(readdirSync(folder).sort()).toEqual(["f", "g"]);
    expect(statSync(join(folder, "g")).mode & 0o7777).toBe(0o600);
  });

  test.skipIf(!isRoot)(
    "run by root, a new file belongs to the owner of its folder, and a replaced one keeps its owner",
    async () => {
      const folder = join(world.zone, "theirs");
      mkdirSync(folder);
      chownSync(folder, 12_345, 12_346);
      ok(await world.write({ path: join(folder, "a"), data: "x" }));
      expect(statSync(join(folder, "a"))).toMatchObject({ uid: 12_345, gid: 12_346 });
      writeFileSync(join(folder, "b"), "old");
      chownSync(join(folder, "b"), 23_456, 23_456);
      chmodSync(join(folder, "b"), 0o640);
      ok(await world.write({ path: join(folder, "b"), data: "new", overwrite: true }));
      const { uid, mode } = statSync(join(folder, "b"));
      expect([uid, mode & 0o7777]).toEqual([23_456, 0o640]);
    },
  );

  test("a zone that does not exist yet is made by the first write into it, and by nothing else", async () => {
    const zone = join(world.base, "later");
    const loaded = parsePolicy(`version: 1\nwriteRules: [{ path: "${zone}", createIfMissing: true }]\n`, "policy.yaml");
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    expect(decideFsWrite(loaded.policy, { path: join(zone, "a"), data: "x" }).effect).toBe("permit");
    expect(rule(await fsWrite(loaded.policy, { path: `${zone}/../later/../outside/x`, data: "x" }))).not.toBe(
      "allowed",
    );
    expect(rule(await fsWrite(loaded.policy, { path: join(zone, "a"), data: "x".repeat(10_000_001) }))).toBe(
      "maxFileBytes",
    );
    expect(existsSync(zone)).toBe(false);
    ok(await fsWrite(loaded.policy, { path: join(zone, "a"), data: "x" }));
    expect(readdirSync(zone)).toEqual(["a"]);
  });

  test("a zone without createIfMissing only replaces", async () => {
    const loaded = parsePolicy(`version: 1\nwriteRules: [{ path: "${world.zone}" }]\n`, "policy.yaml");
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    fresh();
    expect(rule(await fsWrite(loaded.policy, { path: path(), data: "x" }))).toBe("createIfMissing");
    fresh("old");
    expect(rule(await fsWrite(loaded.policy, { path: path(), data: "x", overwrite: true }))).toBe("allowed");
  });

  test("a host killed while it writes leaves the old file and nothing else", async () => {
    const folder = join(world.base, "crash");
    mkdirSync(folder);
    writeFileSync(join(folder, "f"), "old");
    const script = `
      import { fsWrite, parsePolicy } from ${JSON.stringify(compiled("src/host/index.js"))};
      const { policy } = parsePolicy('version: 1\\nwriteRules: [{ path: "${folder}", createIfMissing: true, maxFileBytes: 1_000_000_000 }]\\n', "p");
      const data = "x".repeat(200_000_000);
      console.log("writing");
      for (;;) await fsWrite(policy, { path: "${folder}/f", data, overwrite: true });`;
    for (const delayMs of [5, 40, 90]) {
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      await once(child.stdout, "data");
      await new Promise((done) => setTimeout(done, delayMs));
      child.kill("SIGKILL");
      await once(child, "exit");
      expect(readdirSync(folder)).toEqual(["f"]);
      expect([3, 200_000_000]).toContain(statSync(join(folder, "f")).size);
    }
    rmSync(folder, { recursive: true });
  });
});

describe("cmd.run", () => {
  test.each([
    ["no command", { args: [] }],
    ["args as a string", { commandId: "echo", args: "a" }],
    ["a number among args", { commandId: "echo", args: [1] }],
    ["too many args", { commandId: "echo", args: Array.from({ length: 257 }, () => "a") }],
    ["a NUL byte", { commandId: "echo", args: ["a\0b"] }],
    ["a newline", { commandId: "echo", args: ["a\nb"] }],
    ["an escape sequence", { commandId: "echo", args: ["\u001b[2J"] }],
    ["a C1 control", { commandId: "echo", args: ["\u0085"] }],
    ["half a character", { commandId: "echo", args: ["\ud800"] }],
    [
      "more bytes than the kernel takes",
      { commandId: "echo", args: Array.from({ length: 10 }, () => "a".repeat(20_000)) },
    ],
    ["env as a list", { commandId: "echo", env: ["A=b"] }],
    ["a number in env", { commandId: "echo", env: { A: 1 } }],
    ["a control character in env", { commandId: "echo", env: { A: "a\nb" } }],
    ["a timeout of zero", { commandId: "echo", timeoutMs: 0 }],
    ["a shell", { commandId: "echo", shell: true }],
  ])("%s is INVALID_ARGS", async (_, args) =>
    expect(code(await cmdRun(world.policy, args, { sandbox: world.sandbox }))).toBe("INVALID_ARGS"),
  );

  test.each([["constructor"], ["__proto__"], ["toString"], ["/bin/sh"], ["../echo"], ["ECHO"]])(
    "%s is no command",
    async (id) => {
      expect(rule(await world.run(id))).toBe("unknownCommand");
    },
  );

  test.each([[{ "A=B\nLD_PRELOAD": "x" }], [{ LD_PRELOAD: "x" }], [{ a: "x" }], [JSON.parse('{"__proto__":"x"}')]])(
    "variable %j is refused",
    async (env) => {
      expect(["envAllowlist", "controlCharacter"]).toContain(rule(await world.run("echo", [], { env })));
    },
  );

  test("metacharacters are data", async () => {
    const text = "; touch x && `id` $(id) | cat > y * ? ~ # 'q' \"d\" \\ é 😀";
    expect(ok(await world.run("echo", [text])).stdout).toBe(`${text}\n`);
    expect(readdirSync(world.root)).not.toContain("x");
  });

  test("a pattern that stalls is a denial, and the host goes on", () => {
    const loaded = parsePolicy(
      'version: 1\nallowedRoots: [/usr/share]\ncommands: [{ id: e, exec: echo, args: { patterns: [{ value: "(a+)+" }] } }]\n',
      "p.yaml",
    );
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    expect(decideCmdRun(loaded.policy, { commandId: "e", args: [`${"a".repeat(60)}!`] })).toMatchObject({
      effect: "deny",
      rule: "patternTimeout",
    });
  });
});

describe("what is published and what is recorded", () => {
  const ajv = new Ajv2020({ strict: true, strictTypes: false, allowUnionTypes: true });

  test("every answer fits its schema", async () => {
    const [read, write, run] = hostTools.map((tool) => ajv.compile(tool.outputSchema));
    expect(read?.(ok(await world.read({ path: "readme.md" })))).toBe(true);
    expect(write?.(ok(await world.write({ path: "out/schema", data: "x" })))).toBe(true);
    const result = JSON.parse(JSON.stringify(ok(await world.run("echo", ["a"]))));
    expect(run?.(result), JSON.stringify(run?.errors)).toBe(true);
  });

  test("schemas and functions agree on what is well-formed", async () => {
    const [read] = hostTools.map((tool) => ajv.compile(tool.inputSchema));
    for (const args of [
      { path: "readme.md" },
      { path: "readme.md", offset: 0 },
      {},
      { path: 1 },
      { path: "a", x: 1 },
      { path: "a", offset: -1 },
    ]) {
      const accepted = code(await fsRead(world.policy, args)) !== "INVALID_ARGS";
      expect(read?.(args), JSON.stringify(args)).toBe(accepted);
    }
  });

  test("fs.read says that it only reads, the others do not", () => {
    expect(hostTools.map((tool) => tool.annotations.readOnlyHint)).toEqual([true, false, false]);
  });

  test("the record has the document's fields and no contents", async () => {
    const written = await world.write({ path: "out/audit", data: "the secret text" });
    expect(written.audit).toEqual({
      ts: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      tool: "fs.write",
      decision: "allow",
      path: join(world.zone, "audit"),
      bytes: 15,
      sha256: sha("the secret text"),
      policyHash: world.policy.hash,
      durationMs: expect.any(Number),
    });
    const run = await cmdRun(
      world.policy,
      { commandId: "echo", args: ["argument"], env: { A: "secret" } },
      { sandbox: world.sandbox, reqId: "r1" },
    );
    expect(run.audit).toMatchObject({
      reqId: "r1",
      commandId: "echo",
      exitCode: 0,
      timedOut: false,
      bytes: 9,
      env: { A: "[redacted]" },
      cwd: world.root,
    });
    expect(JSON.stringify(run.audit)).not.toMatch(/argument|secret/);
  });

  test("fields the operator wants hidden are hidden", async () => {
    const hidden: Policy = { ...world.policy, logging: { ...world.policy.logging, redact: ["path", "cwd", "args"] } };
    const outcome = await fsRead(hidden, { path: "readme.md" });
    expect(outcome.audit.path).toBe("[redacted]");
    const run = await cmdRun(hidden, { commandId: "echo", env: { A: "shown" } }, { sandbox: world.sandbox });
    expect(run.audit).toMatchObject({ cwd: "[redacted]", env: { A: "shown" } });
    expect(run.audit.argsSha256).toBeUndefined();
  });

  test("a denial names the rule, the field and a way out, in one printable line", async () => {
    const outcome = await world.read({ path: "~root/\u202eevil" });
    if (outcome.ok) throw new Error("allowed");
    expect(outcome.denial).toMatchObject({ code: "INVALID_ARGS", rule: "tildeUser", field: "path" });
    expect(outcome.denial.reason).toContain("\\u202e");
    expect(outcome.denial.reason).not.toMatch(/\p{Cc}|\u202e/u);
  });
});
