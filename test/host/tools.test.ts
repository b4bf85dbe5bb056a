// The three tools' inputs, outputs and records in detail.

import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
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
  decideCmdRun,
  decideFsWrite,
  executeCmdRun,
  executeFsRead,
  executeFsWrite,
  hostTools,
  type Policy,
  parsePolicy,
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

  test("fs.read returns the range of offset and length, with the hash of that range [M2]", async () => {
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

  test("maxReadBytes clamps an fs.read, the result says so, and the rest can be read from there [M2 M5]", async () => {
    put("x".repeat(100));
    expect(ok(await read({})).bytesRead).toBe(100);
    put("x".repeat(1000));
    const clamped = { bytesRead: 100, size: 1000, truncated: true, warnings: ["OUTPUT_TRUNCATED"] };
    for (const length of [undefined, 101, Number.MAX_SAFE_INTEGER]) {
      expect(ok(await read(length === undefined ? {} : { length }))).toMatchObject(clamped);
    }
    expect(ok(await read({ length: 101 }))).toMatchObject({ data: "x".repeat(100), sha256: sha("x".repeat(100)) });
    expect(ok(await read({ length: 100 }))).not.toHaveProperty("truncated");
    expect(ok(await read({ offset: 100 }))).toMatchObject(clamped);
    expect(ok(await read({ offset: 900 }))).not.toHaveProperty("truncated");
    expect(ok(await read({ offset: 950, length: 5000 })).bytesRead).toBe(50);
  });

  test("a clamped text of control characters is shortened further, and all of it can be read in parts [M2]", async () => {
    const large = makeWorld("  []", "limits: { maxReadBytes: 10_000 }");
    const path = join(large.root, "zeros");
    writeFileSync(path, Buffer.alloc(25_000));
    let offset = 0;
    for (let i = 0; i < 20 && offset < 25_000; i++) {
      const part = ok(await large.read({ path, offset }));
      // What remains is not clamped when it is within the cap.
      if (part.truncated) expect(JSON.stringify(part.data).length).toBeLessThanOrEqual(20_000);
      expect(part.bytesRead).toBeGreaterThan(0);
      offset += part.bytesRead;
    }
    expect(offset).toBe(25_000);
    await large.close();
  });

  test("bytes that are not text need base64", async () => {
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

  test("an fs.read that ends inside a character leaves the character to the next read", async () => {
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

  test("fs.read returns a byte order mark and NUL bytes unchanged", async () => {
    put("\ufeffa\0b");
    expect(ok(await read({})).data).toBe("\ufeffa\0b");
  });

  test("a relative path of fs.read starts at the first root", async () => {
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
  ])("%s is INVALID_ARGS", async (_, args) =>
    expect(code(await executeFsRead(world.policy, args))).toBe("INVALID_ARGS"),
  );
});

describe("fs.write", () => {
  const path = (): string => join(world.writableRoot, "target");
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
    ["text that is not base64", undefined, { data: "!!!!", encoding: "base64" }, "badData"],
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
    expect(readdirSync(world.writableRoot).filter((name) => name.includes("portcullis"))).toEqual([]);
  });

  test("fs.write counts the size in bytes, not characters [M3]", async () => {
    fresh();
    expect(rule(await write({ data: "é".repeat(40_000) }))).toBe("maxFileBytes");
  });

  test("fs.write as an ordinary user does not replace a read-only file", async ({ skip }) => {
    const closed = unreachableForOthers();
    if (closed !== undefined) skip(closed);
    const directory = join(world.base, "read-only");
    mkdirSync(directory);
    writeFileSync(join(directory, "f"), "old", { mode: 0o444 });
    const script = `
      import { executeFsWrite, parsePolicy } from ${JSON.stringify(compiled("src/host/index.js"))};
      const { policy } = parsePolicy('version: 1\\nwriteRules: [{ path: "${directory}", createIfMissing: true }]\\n', "p");
      const results = [];
      for (const name of ["f", "g"]) {
        const outcome = await executeFsWrite(policy, { path: "${directory}/" + name, data: "new", overwrite: true });
        results.push(outcome.ok ? "allowed" : outcome.denial.code);
      }
      console.log(results.join());`;
    const who = isRoot ? { uid: 64_123, gid: 64_123 } : {};
    if (isRoot) {
      chmodSync(world.base, 0o755);
      chownSync(directory, 64_123, 64_123);
      chownSync(join(directory, "f"), 64_123, 64_123);
    }
    const { stdout } = await execute(process.execPath, ["--input-type=module", "-e", script], {
      ...who,
      env: { HOME: "/" },
    });
    expect(stdout.trim()).toBe("IO_ERROR,allowed");
    expect(readFileSync(join(directory, "f"), "utf8")).toBe("old");
    expect(readdirSync(directory).sort()).toEqual(["f", "g"]);
    expect(statSync(join(directory, "g")).mode & 0o7777).toBe(0o600);
  });

  test.skipIf(!isRoot)(
    "with a host that root runs, a new file belongs to the owner of its directory, and a replaced one keeps its owner",
    async () => {
      const directory = join(world.writableRoot, "theirs");
      mkdirSync(directory);
      chownSync(directory, 12_345, 12_346);
      ok(await world.write({ path: join(directory, "a"), data: "x" }));
      expect(statSync(join(directory, "a"))).toMatchObject({ uid: 12_345, gid: 12_346 });
      writeFileSync(join(directory, "b"), "old");
      chownSync(join(directory, "b"), 23_456, 23_456);
      chmodSync(join(directory, "b"), 0o640);
      ok(await world.write({ path: join(directory, "b"), data: "new", overwrite: true }));
      const { uid, mode } = statSync(join(directory, "b"));
      expect([uid, mode & 0o7777]).toEqual([23_456, 0o640]);
    },
  );

  test("a zone that does not exist yet is created by the first write into it, and by nothing else", async () => {
    const writableRoot = join(world.base, "later");
    const loaded = parsePolicy(
      `version: 1\nwriteRules: [{ path: "${writableRoot}", createIfMissing: true }]\n`,
      "policy.yaml",
    );
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    expect(decideFsWrite(loaded.policy, { path: join(writableRoot, "a"), data: "x" }).effect).toBe("permit");
    expect(
      rule(await executeFsWrite(loaded.policy, { path: `${writableRoot}/../later/../outside/x`, data: "x" })),
    ).not.toBe("allowed");
    expect(
      rule(await executeFsWrite(loaded.policy, { path: join(writableRoot, "a"), data: "x".repeat(10_000_001) })),
    ).toBe("maxFileBytes");
    expect(existsSync(writableRoot)).toBe(false);
    ok(await executeFsWrite(loaded.policy, { path: join(writableRoot, "a"), data: "x" }));
    expect(readdirSync(writableRoot)).toEqual(["a"]);
  });

  test("a writable root without createIfMissing only replaces", async () => {
    const loaded = parsePolicy(`version: 1\nwriteRules: [{ path: "${world.writableRoot}" }]\n`, "policy.yaml");
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    fresh();
    expect(rule(await executeFsWrite(loaded.policy, { path: path(), data: "x" }))).toBe("createIfMissing");
    fresh("old");
    expect(rule(await executeFsWrite(loaded.policy, { path: path(), data: "x", overwrite: true }))).toBe("allowed");
  });

  test("a host killed while it writes leaves only the old file [M3]", async () => {
    const directory = join(world.base, "crash");
    mkdirSync(directory);
    writeFileSync(join(directory, "f"), "old");
    const script = `
      import { executeFsWrite, parsePolicy } from ${JSON.stringify(compiled("src/host/index.js"))};
      const { policy } = parsePolicy('version: 1\\nwriteRules: [{ path: "${directory}", createIfMissing: true, maxFileBytes: 1_000_000_000 }]\\n', "p");
      const data = "x".repeat(200_000_000);
      console.log("writing");
      for (;;) await executeFsWrite(policy, { path: "${directory}/f", data, overwrite: true });`;
    for (const delayMs of [5, 40, 90]) {
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      await once(child.stdout, "data");
      await new Promise((done) => setTimeout(done, delayMs));
      child.kill("SIGKILL");
      await once(child, "exit");
      expect(readdirSync(directory)).toEqual(["f"]);
      expect([3, 200_000_000]).toContain(statSync(join(directory, "f")).size);
    }
    rmSync(directory, { recursive: true });
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
    expect(code(await executeCmdRun(world.policy, args, { sandbox: world.sandbox }))).toBe("INVALID_ARGS"),
  );

  test.each([["constructor"], ["__proto__"], ["toString"], ["/bin/sh"], ["../echo"], ["ECHO"]])(
    "cmd.run refuses the command %s",
    async (id) => {
      expect(rule(await world.run(id))).toBe("unknownCommand");
    },
  );

  test.each([[{ "A=B\nLD_PRELOAD": "x" }], [{ LD_PRELOAD: "x" }], [{ a: "x" }], [JSON.parse('{"__proto__":"x"}')]])(
    "cmd.run refuses the variable %j",
    async (env) => {
      expect(["envAllowlist", "controlCharacter"]).toContain(rule(await world.run("echo", [], { env })));
    },
  );

  test("shell metacharacters in arguments of cmd.run are data", async () => {
    const text = "; touch x && `id` $(id) | cat > y * ? ~ # 'q' \"d\" \\ é 😀";
    expect(ok(await world.run("echo", [text])).stdout).toBe(`${text}\n`);
    expect(readdirSync(world.root)).not.toContain("x");
  });

  test("an argument pattern that stalls is a denial, and the host continues", () => {
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

  test("every result of the host tools fits its schema", async () => {
    const [read, write, run] = hostTools.map((tool) => ajv.compile(tool.outputSchema));
    expect(read?.(ok(await world.read({ path: "readme.md" })))).toBe(true);
    expect(write?.(ok(await world.write({ path: "out/schema", data: "x" })))).toBe(true);
    const result = JSON.parse(JSON.stringify(ok(await world.run("echo", ["a"]))));
    expect(run?.(result), JSON.stringify(run?.errors)).toBe(true);
  });

  test("schemas and functions of the host tools agree on what is well-formed", async () => {
    const [read] = hostTools.map((tool) => ajv.compile(tool.inputSchema));
    for (const args of [
      { path: "readme.md" },
      { path: "readme.md", offset: 0 },
      {},
      { path: 1 },
      { path: "a", x: 1 },
      { path: "a", offset: -1 },
    ]) {
      const accepted = code(await executeFsRead(world.policy, args)) !== "INVALID_ARGS";
      expect(read?.(args), JSON.stringify(args)).toBe(accepted);
    }
  });

  test("fs.read is annotated as read-only, and the other tools are not", () => {
    expect(hostTools.map((tool) => tool.annotations.readOnlyHint)).toEqual([true, false, false]);
  });

  test("the record of a host tool has the specified fields and no contents", async () => {
    const written = await world.write({ path: "out/audit", data: "the secret text" });
    expect(written.audit).toEqual({
      ts: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      tool: "fs.write",
      decision: "allow",
      path: join(world.writableRoot, "audit"),
      bytes: 15,
      sha256: sha("the secret text"),
      policyHash: world.policy.hash,
      durationMs: expect.any(Number),
    });
    const run = await executeCmdRun(
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

  test("the record omits the fields that the operator redacts", async () => {
    const hidden: Policy = { ...world.policy, logging: { ...world.policy.logging, redact: ["path", "cwd", "args"] } };
    const outcome = await executeFsRead(hidden, { path: "readme.md" });
    expect(outcome.audit.path).toBe("[redacted]");
    const run = await executeCmdRun(hidden, { commandId: "echo", env: { A: "shown" } }, { sandbox: world.sandbox });
    expect(run.audit).toMatchObject({ cwd: "[redacted]", env: { A: "shown" } });
    expect(run.audit.argsSha256).toBeUndefined();
  });

  test("a denial of the host names the rule, the field and the remedy in one printable line", async () => {
    const outcome = await world.read({ path: "~root/\u202eevil" });
    if (outcome.ok) throw new Error("allowed");
    expect(outcome.denial).toMatchObject({ code: "INVALID_ARGS", rule: "tildeUser", field: "path" });
    expect(outcome.denial.reason).toContain("\\u202e");
    expect(outcome.denial.reason).not.toMatch(/\p{Cc}|\u202e/u);
  });
});
