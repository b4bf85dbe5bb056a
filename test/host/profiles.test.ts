// Curated profiles against hostile projects, with the real tools. A hostile script leaves its mark in the writable root, where
// the sandbox would let it: what keeps the mark away is the profile.

import { execFileSync } from "node:child_process";
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { has, missingPrograms } from "../setup/programs.js";
import { makeWorld, ok, rule, SECRET, type World } from "./support/world.js";

/** Of the usual awks only GNU's has a mode without programs and files; another is refused when the policy is loaded. */
const hasGawk = has("gawk");
const missing = missingPrograms("curl", "find", "git", "grep", "jq", "make", "npm", "rg", "sed", "tar");
let world: World;
let evil = "";

beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});
beforeAll(() => {
  if (missing !== undefined) return;
  const names = ["cat", "find", "git", "grep", "jq", "ls", "make", "npm", "rg", "sed", "tar"];
  const entries = names.map((name) => `  - { id: ${name}, profile: ${name}, timeoutMs: 20_000 }`);
  if (hasGawk) entries.push("  - { id: awk, exec: gawk, profile: awk }");
  entries.push("  - { id: curl, profile: curl, network: true }");
  world = makeWorld(entries.join("\n"));
  evil = join(world.root, "evil.sh");
  writeFileSync(evil, `#!/bin/sh\ntouch ${world.writableRoot}/pwned\ncat ${world.outside}/secret.txt\nexit 0\n`, {
    mode: 0o755,
  });
});
afterAll(() => world?.close());
afterEach(() => {
  if (missing === undefined) expect(existsSync(join(world.writableRoot, "pwned")), "a hostile script ran").toBe(false);
});

test.each(["git", "make", "npm", "tar"])("%s without a sandbox is refused with the policy [M4]", (name) => {
  const entry = `  - { id: x, profile: ${name} }`;
  expect(() => makeWorld(entry, "sandbox: off")).toThrow(/profile.*needs a sandbox.*sandbox: required/s);
});

describe("tools that read", () => {
  test.each([
    ["ls", ["-la", "src"], "app.ts"],
    ["cat", ["readme.md"], "hello"],
    ["grep", ["-rn", "needle", "src"], "const needle"],
    ["rg", ["-n", "needle", "src"], "const needle"],
    ["find", [".", "-name", "*.ts"], "./src/app.ts"],
    ["sed", ["-n", "1p", "readme.md"], "hello"],
    ["jq", ["-n", "[1,2]|add"], "3"],
  ])("the profile of %s permits %j", async (id, args, text) => {
    const result = ok(await world.run(id, args));
    expect(result.exitCode, result.stderr).toBe(0);
    expect(result.stdout).toContain(text);
  });

  test("a file whose name looks like an option is read as a file", async () => {
    writeFileSync(join(world.root, "--pre=evil.sh"), "needle\n");
    writeFileSync(join(world.root, "-rf"), "needle\n");
    expect(ok(await world.run("rg", ["needle", "--", "--pre=evil.sh"])).exitCode).toBe(0);
    expect(ok(await world.run("cat", ["--", "-rf"])).stdout).toBe("needle\n");
  });

  test.each([
    ["cat", ["../outside/secret.txt"]],
    ["cat", ["link"]],
    ["ls", ["link-folder/"]],
    ["grep", ["-r", "CANARY", "link-folder"]],
    ["rg", ["CANARY", "link-folder/"]],
    ["find", ["link-folder/"]],
    ["sed", ["p", "link"]],
    ["tar", ["-cf", "out/x.tar", "../outside"]],
  ])("the profile of %s refuses %j before it starts", async (id, args) => {
    if (!existsSync(join(world.root, "link"))) {
      symlinkSync(join(world.outside, "secret.txt"), join(world.root, "link"));
      symlinkSync(world.outside, join(world.root, "link-folder"));
    }
    expect(rule(await world.run(id, args))).toBe("outsideAllowedRoots");
  });

  test("following symbolic links downwards finds nothing outside", async () => {
    for (const [id, args] of [
      ["grep", ["-r", "CANARY", "."]],
      ["rg", ["CANARY"]],
      ["find", [".", "-name", "secret*"]],
    ] as const) {
      expect(JSON.stringify(await world.run(id, args))).not.toContain(id === "find" ? "secret.txt\\n" : SECRET);
    }
  });
});

describe("tools with a language of their own", () => {
  test.each([
    ["sed", ["1e touch out/pwned", "readme.md"]],
    ["sed", ["w out/pwned", "readme.md"]],
    ["sed", ["s/h/x/w out/pwned", "readme.md"]],
    ["sed", ["s/.*/touch out\\/pwned/e", "readme.md"]],
    ["sed", ["r /etc/passwd", "readme.md"]],
  ])("the profile of %s with %j has no effect", async (id, args) => {
    const result = ok(await world.run(id, args));
    expect(result.exitCode).not.toBe(0);
    expect(result.stdout).not.toContain("root:");
  });

  test
    .skipIf(!hasGawk)
    .each([
      ['BEGIN { system("touch out/pwned") }'],
      ['BEGIN { print "x" > "out/pwned" }'],
      ['BEGIN { "touch out/pwned" | getline }'],
      ['BEGIN { print "x" | "cat > out/pwned" }'],
      ['BEGIN { while ((getline line < "/etc/passwd") > 0) print line }'],
      ['BEGIN { ARGV[1] = "/etc/passwd"; ARGC = 2 } { print }'],
    ])("the profile of awk with %j has no effect", async (program) => {
    const result = ok(await world.run("awk", [program]));
    expect(result.stdout).not.toContain("root:");
  });

  test.skipIf(!has("mawk"))("an awk that cannot be held is refused by the policy", () => {
    expect(() => makeWorld("  - { id: awk, exec: mawk, profile: awk }")).toThrow("gawk");
  });

  test.skipIf(!hasGawk)("gawk runs a program on a file", async () => {
    expect(ok(await world.run("awk", ["-F", " ", "{ print $1 }", "readme.md"])).stdout).toBe("hello\n");
    expect(ok(await world.run("awk", ['BEGIN { print gensub("a", "b", "g", "aa") }'])).stdout).toBe("bb\n");
  });

  test("jq reads no environment variable of the host", async () => {
    process.env.JQ_SECRET = SECRET;
    const outcome = await world.run("jq", ["-n", "env"]);
    delete process.env.JQ_SECRET;
    expect(JSON.stringify(outcome)).not.toContain(SECRET);
  });
});

describe("builds run the project's own code, inside the sandbox", () => {
  test("make writes where it may and reads nothing outside", async () => {
    writeFileSync(
      join(world.root, "Makefile"),
      `all:\n\t@echo made > out/made; cat ${world.outside}/secret.txt; echo tried\n`,
    );
    const outcome = await world.run("make", ["all"]);
    expect(ok(outcome).stdout).toContain("tried");
    expect(JSON.stringify(outcome)).not.toContain(SECRET);
    expect(readFileSync(join(world.writableRoot, "made"), "utf8")).toBe("made\n");
  });

  test("make enters a directory below, and no other", async () => {
    writeFileSync(join(world.root, "src/Makefile"), "all:\n\t@pwd\n");
    expect(ok(await world.run("make", ["-C", "src", "--no-print-directory", "-j"])).stdout).toBe(`${world.root}/src\n`);
    symlinkSync(world.outside, join(world.root, "elsewhere"));
    for (const directory of ["elsewhere", "..", world.outside]) {
      expect(rule(await world.run("make", ["-C", directory])), directory).toBe("outsideAllowedRoots");
      expect(rule(await world.run("make", [`--directory=${directory}`])), directory).toBe("outsideAllowedRoots");
    }
    rmSync(join(world.root, "elsewhere"));
  });

  test("npm runs a script with its own shell, whatever the project's .npmrc says", async () => {
    writeFileSync(
      join(world.root, "package.json"),
      JSON.stringify({ name: "x", version: "1.0.0", scripts: { hello: "echo from-script" } }),
    );
    writeFileSync(join(world.root, ".npmrc"), `script-shell=${evil}\nnode-options=--require=${evil}\n`);
    const result = ok(await world.run("npm", ["run", "hello"]));
    expect(result.exitCode, result.stderr).toBe(0);
    expect(result.stdout).toContain("from-script");
    const passed = ok(await world.run("npm", ["run", "hello", "--silent", "--", "--watch", "a b", "*"]));
    expect(passed.stdout).toBe("from-script --watch a b *\n");
  });
});

test("tar lists and extracts, and an archive's own tricks stay inside", async () => {
  const staging = join(world.base, "staging");
  mkdirSync(join(staging, "d"), { recursive: true });
  writeFileSync(join(staging, "d/ok.txt"), "ok");
  writeFileSync(join(staging, "up"), "up");
  execFileSync("tar", [
    "-cf",
    join(world.root, "a.tar"),
    "-C",
    staging,
    "d/ok.txt",
    "--transform=s,^up,../../outside/pwned,",
    "up",
    "-P",
  ]);
  expect(ok(await world.run("tar", ["-tf", "a.tar"])).stdout).toContain("d/ok.txt");
  await world.run("tar", ["-xf", "a.tar", "-C", "out"]);
  expect(readFileSync(join(world.writableRoot, "d/ok.txt"), "utf8")).toBe("ok");
  expect(readdirSync(world.outside)).toEqual(["secret.txt"]);
  expect(
    rule(await world.run("tar", ["-xf", "a.tar", "--checkpoint=1", "--checkpoint-action=exec=touch out/pwned"])),
  ).toBe("profile.tar");
});

test("tar looks for names where -C says, and so does the check", async () => {
  mkdirSync(join(world.root, "packed"));
  writeFileSync(join(world.root, "packed/own.txt"), "own");
  symlinkSync(world.outside, join(world.root, "packed/way-out"));
  linkSync(join(world.outside, "secret.txt"), join(world.root, "packed/second-name"));
  const archive = "out/packed.tgz";
  for (const name of ["way-out/secret.txt", "second-name"]) {
    const refused = await world.run("tar", ["-czf", archive, "-C", "packed", name]);
    expect(refused.ok, name).toBe(false);
    expect((await world.run("git", ["-C", "packed", "log", "--", name])).ok, name).toBe(false);
  }
  expect(ok(await world.run("tar", ["czfC", archive, "packed", "own.txt"])).exitCode).toBe(0);
  expect(ok(await world.run("tar", ["tzf", archive])).stdout).toBe("own.txt\n");
  rmSync(join(world.root, "packed"), { recursive: true });
});

test("curl refuses files and this machine before it starts", async () => {
  for (const url of ["file:///etc/passwd", "http://127.0.0.1:1/", "http://localhost/", "http://169.254.169.254/"]) {
    expect(rule(await world.run("curl", [url]))).toBe("profile.curl");
  }
});
