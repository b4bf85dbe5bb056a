// The host's command line on a policy of its own: what it shows, how it edits, what it explains, and how it ends.

import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { programOf } from "./in-process.js";
import { portcullis, root } from "./serving.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-host-cli-")));
const code = join(base, "code");
const config = join(base, "config/policy.yaml");
const state = join(base, "state");
const main = join(root, "dist", "cli", "main.js");

const POLICY = `# my own words
version: 1   # the only one there is

allowedRoots: ["${code}"]   # work

commands:
  - id: ls      # listing
    profile: ls
  - id: echo
    exec: /bin/echo
    args: { allow: ["-n"], patterns: [{ value: "[a-z]+" }] }
    envAllowlist: [TZ]
sandbox: preferred
profiles:
  - client: guest
    commands: []
`;

beforeEach(() => {
  mkdirSync(code, { recursive: true });
  mkdirSync(join(base, "config"), { recursive: true, mode: 0o700 });
  writeFileSync(join(code, "a.txt"), "hello\n");
  writeFileSync(config, POLICY, { mode: 0o600 });
});

let inside: Awaited<ReturnType<typeof programOf>>;
const before = { cwd: process.cwd(), env: { ...process.env } };
beforeAll(async () => {
  inside = await programOf(["policy", "cmd", "doctor", "audit"]);
  process.chdir(base);
  process.env.HOME = base;
  process.env.TMPDIR = base;
  delete process.env.XDG_CONFIG_HOME;
  delete process.env.XDG_STATE_HOME;
});
afterAll(() => {
  process.chdir(before.cwd);
  for (const name of ["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]) {
    if (before.env[name] === undefined) delete process.env[name];
    else process.env[name] = before.env[name];
  }
  rmSync(base, { recursive: true, force: true });
});

const files = ["--config", config, "--state", state];
const cli = (command: string, ...rest: string[]) => inside([...command.split(" "), ...files, ...rest]);
const data = async (command: string, ...rest: string[]) =>
  JSON.parse((await inside(["--json", ...command.split(" "), ...files, ...rest])).stdout);

/** With a stdin of its own. */
function piped(args: readonly string[], input: string) {
  const ran = spawnSync(process.execPath, [main, ...args], { cwd: base, input, encoding: "utf8" });
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr };
}

describe("policy", () => {
  it("policy schema prints the schema of policy.yaml as the package ships it [M5]", () => {
    const { code, stdout } = portcullis(["policy", "schema"]);
    expect(code).toBe(0);
    expect(stdout).toBe(readFileSync(join(root, "policy.schema.json"), "utf8"));
  });

  it("policy show prints the file, and as data its resolved form on this machine", async () => {
    expect(await cli("policy show")).toMatchObject({ code: 0, stdout: POLICY });
    expect(await data("policy show")).toMatchObject({
      allowedRoots: [{ path: code, origin: "policy.yaml:4" }],
      commands: [
        { id: "ls", profile: "ls" },
        { id: "echo", exec: "/bin/echo" },
      ],
      profiles: ["guest"],
      text: POLICY,
    });
  });

  it("policy validate exits with 0 or 3, and names file, line and remedy", async () => {
    expect(await data("policy validate")).toMatchObject({ ok: true, file: config });
    writeFileSync(config, `${POLICY}allowedRoot: []\n`);
    const wrong = await cli("policy validate");
    expect(wrong.code).toBe(3);
    expect(wrong.stderr).toContain("policy.yaml:17");
    expect(await data("policy validate")).toMatchObject({ ok: false, problems: [{ line: 17 }] });
    expect((await inside(["policy", "check", "--config", config])).code).toBe(3);
    expect(await inside(["policy", "validate", "--config", join(base, "none.yaml")])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("init host"),
    });
  });

  it("policy add-root and add-write change only the lines they add, and keep the file private [M9]", async () => {
    mkdirSync(join(base, "more"), { recursive: true });
    expect((await cli("policy add-root more")).code).toBe(0);
    expect((await cli("policy add-write code/out --max-file-bytes 1_000")).code).toBe(0);
    expect(readFileSync(config, "utf8")).toBe(
      `${POLICY.replace(`["${code}"]`, `["${code}", "~/more"]`)}
writeRules:
  - path: ~/code/out
    recursive: true
    createIfMissing: true
    maxFileBytes: 1000
`,
    );
    expect(statSync(config).mode & 0o777).toBe(0o600);
    expect(readdirSync(join(base, "config"))).toEqual(["policy.yaml"]);
  });

  it("policy edit refuses an edit that would not be a valid policy, and the old one stays", async () => {
    for (const folder of [".", "config", "nowhere", "state"]) {
      expect((await cli(`policy add-root ${folder}`)).code, folder).toBe(3);
      expect(readFileSync(config, "utf8")).toBe(POLICY);
    }
    mkdirSync(join(base, "project/.portcullis"), { recursive: true });
    writeFileSync(join(base, "project/.portcullis/operator.token"), "x");
    const credential = await cli("policy add-root project");
    expect(credential).toMatchObject({
      code: 3,
      stderr: expect.stringContaining("are approved; choose another data directory"),
    });
    expect(credential.stderr).toContain(`the new line \`allowedRoots: ["${code}", "~/project"]`);
    expect(credential.stderr).not.toContain("policy.yaml:");
    // Both or neither: this one may be read but never written.
    expect((await cli("policy add-root", join(root, "dist"), "--write")).code).toBe(3);
    expect(readFileSync(config, "utf8")).toBe(POLICY);
    expect((await data("policy add-root", join(root, "dist"))).added).toHaveLength(1);
  });

  it("a refused policy edit is cited by its text, and the lines of the file keep their numbers", async () => {
    const proc = await cli("policy add-root /proc");
    expect(proc).toMatchObject({
      code: 3,
      stderr: expect.stringContaining("what the kernel shows there is never opened"),
    });
    expect(proc.stderr).not.toContain("denyNetworkFS");
    const [problem] = (await data("cmd add ls --exec /bin/ls")).problems;
    expect(problem).toMatchObject({ edit: "- id: ls", message: expect.stringContaining("first at policy.yaml:7") });
    expect(problem).not.toHaveProperty("line");
  });

  it("policy add-write tightens the existing rule of a directory, whatever its spelling, and never adds a second", async () => {
    mkdirSync(join(code, "build"), { recursive: true });
    expect((await cli("policy add-write code/build")).code).toBe(0);
    const rule = `
writeRules:
  - path: ~/code/build
    recursive: true
    createIfMissing: true
`;
    expect(readFileSync(config, "utf8")).toBe(POLICY + rule);
    writeFileSync(config, readFileSync(config, "utf8").replace("recursive: true", "recursive: true   # mine"));
    expect(
      await data("policy add-write", join(base, "code/../code/build"), "--no-recursive", "--max-file-bytes", "9"),
    ).toMatchObject({
      ok: true,
      added: ["    recursive: false   # mine", "    createIfMissing: true", "    maxFileBytes: 9"],
    });
    expect(readFileSync(config, "utf8")).toBe(
      `${POLICY}${rule.replace("recursive: true", "recursive: false   # mine")}    maxFileBytes: 9\n`,
    );
    expect(await cli("policy add-write code/build")).toMatchObject({
      code: 0,
      stderr: expect.stringContaining("nothing changed"),
    });
    expect((await data("policy show")).writeRules).toMatchObject([{ recursive: false, maxFileBytes: 9 }]);
    expect((await cli("policy explain fs.write", join(code, "build/sub/x"))).code).toBe(2);
    expect(await data("policy add-root code")).toMatchObject({ ok: true, added: [] });
    writeFileSync(config, `${readFileSync(config, "utf8")}  - path: ${join(code, "build")}\n`);
    expect(await cli("policy validate")).toMatchObject({
      code: 3,
      stderr: expect.stringContaining("two write rules for"),
    });
  });

  it("a policy.yaml that other users can write is refused by validate and by a host, with the remedy", async () => {
    chmodSync(config, 0o666);
    expect(await cli("policy validate")).toMatchObject({
      code: 3,
      stderr: expect.stringContaining("written by others"),
    });
    const host = piped(["host", ...files], "");
    expect(host).toMatchObject({ code: 3, stdout: "" });
    expect(host.stderr).toContain(`chmod 600 ${config}`);
    chmodSync(config, 0o640);
    expect((await cli("policy validate")).code).toBe(0);
    expect(piped(["host", ...files], "").code).toBe(0);
    rmSync(state, { recursive: true });
  });

  it("policy edit keeps the edited file only when it is valid [M9]", async () => {
    const editor = join(base, "editor");
    const edit = (script: string) => {
      writeFileSync(editor, `#!/bin/sh\n${script}\n`);
      chmodSync(editor, 0o755);
      process.env.EDITOR = `${editor} --wait`;
      return cli("policy edit");
    };
    expect((await edit(`test "$1" = --wait && echo "network: false" >> "$2"`)).code).toBe(0);
    expect(readFileSync(config, "utf8")).toBe(`${POLICY}network: false\n`);
    const wrong = await edit(`echo "network: maybe" > "$2"`);
    expect(wrong.code).toBe(3);
    expect(readFileSync(config, "utf8")).toBe(`${POLICY}network: false\n`);
    expect(wrong.stderr).toMatch(/portcullis-edit-.*policy.yaml:1:/);
    const kept = /kept in (\S+);/.exec(wrong.stderr)?.[1] ?? "";
    expect(readFileSync(kept, "utf8")).toBe("network: maybe\n");
    rmSync(join(kept, ".."), { recursive: true });
    expect(await edit("exit 1")).toMatchObject({ code: 1, stderr: expect.stringContaining("unchanged") });
    expect(await edit(`echo >> "${config}"; echo "hardLinks: allow" >> "$2"`)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("changed by another process"),
    });
  });

  it("policy explain names the line and the outcome without running anything [M11]", async () => {
    expect(await data("policy explain fs.read", join(code, "a.txt"))).toMatchObject({
      effect: "permit",
      rule: `allowedRoots ${code} (policy.yaml:4)`,
      would: { path: join(code, "a.txt"), bytes: 6 },
    });
    expect(await cli("policy explain fs.read /etc/passwd")).toMatchObject({ code: 2 });
    const write = await cli("policy explain fs.write", JSON.stringify({ path: join(code, "b.txt"), data: "x" }));
    expect(write).toMatchObject({ code: 2, stdout: expect.stringContaining("outsideWriteZones") });
    expect((await cli("policy add-write code")).code).toBe(0);
    expect(await cli("policy explain fs.write", join(code, "b.txt"))).toMatchObject({ code: 0 });
    expect(existsSync(join(code, "b.txt"))).toBe(false);
    expect(await cli("policy explain fs.delete x")).toMatchObject({ code: 64 });
    // Cedar's own words are as they were.
    expect((await inside(["policy", "explain", "math.add", '{"a":1,"b":2}'])).code).not.toBe(64);
  });
});

describe("cmd", () => {
  it("cmd add takes a profile or a program with its arguments, and names what to consider [M9]", async () => {
    expect((await cli("cmd add cat")).code).toBe(0);
    expect((await cli("cmd add wc --exec /usr/bin/wc --allow -l --pattern [a-z.]+ --timeout-ms 5_000")).code).toBe(0);
    expect(readFileSync(config, "utf8")).toContain(`  - id: cat
    profile: cat
  - id: wc
    exec: /usr/bin/wc
    args:
      allow:
        - -l
      patterns:
        - type: regex
          value: "[a-z.]+"
    timeoutMs: 5000
sandbox: preferred
`);
    expect((await cli("cmd add wc --exec /usr/bin/wc")).code).toBe(3);
    expect((await cli("cmd add curl --exec /bin/true")).stderr).not.toContain("network");
    writeFileSync(join(base, "curl"), "", { mode: 0o755 });
    const offline = await cli(`cmd add fetch --exec ${base}/curl`);
    expect(offline).toMatchObject({ code: 0, stderr: expect.stringContaining("set `network: true` in its entry") });
    const online = await cli(`cmd add online --network --exec ${base}/curl`);
    expect(online).toMatchObject({ code: 0, stderr: expect.not.stringContaining("network") });
    expect((await cli("cmd add x --exec /no/such/program")).code).toBe(3);
    expect((await cli("cmd add frobnicate")).code).toBe(64);
    expect((await cli("cmd add shell --exec /bin/sh --allow -c")).stderr).toContain("can run any program");
    expect((await data("cmd ls")).commands.map((command: { id: string }) => command.id)).toEqual([
      "ls",
      "echo",
      "cat",
      "wc",
      "curl",
      "fetch",
      "online",
      "shell",
    ]);
  });

  it("cmd test decides like a call, and runs only with the option", async () => {
    expect(await data("cmd test echo", "--", "-n", "hello")).toMatchObject({
      effect: "permit",
      rule: "commands.echo (policy.yaml:9)",
      would: { program: "/bin/echo", args: ["-n", "hello"], cwd: code },
    });
    expect(await cli("cmd test echo", "--", "--help")).toMatchObject({ code: 2 });
    expect((await cli("cmd test echo --env TZ=UTC hello")).code).toBe(0);
    expect((await cli("cmd test echo --env LD_PRELOAD=x hello")).code).toBe(2);
    expect(await cli("cmd test echo --client guest hello")).toMatchObject({ code: 2 });
    expect(await cli("cmd test echo --client stranger hello")).toMatchObject({ code: 3 });
    expect(existsSync(state)).toBe(false);
    expect(await cli("cmd test echo --run hello")).toMatchObject({ code: 0, stdout: "hello\n" });
    expect((await inside(["audit", "verify", join(state, "ledger/0")])).code).toBe(0);
  });
});

describe("cmd test", () => {
  it("cmd test checks the directory and the program, and lists what it may write", async () => {
    mkdirSync(join(code, "out"), { recursive: true });
    writeFileSync(join(base, "script"), "#!/nowhere/interpreter\n", { mode: 0o755 });
    const rules = `writeRules: [{ path: ${code}/out, recursive: true, createIfMissing: true, maxFileBytes: 77 }]\n`;
    writeFileSync(config, POLICY.replace("sandbox:", `  - { id: lost, exec: ${base}/script }\n${rules}sandbox:`));
    const there = await cli("cmd test echo --cwd out hello");
    expect(there).toMatchObject({ code: 0, stderr: "" });
    expect(there.stdout).toContain(`may write   ${code}/out; files of at most 77 bytes`);
    const lost = await cli("cmd test lost");
    expect(lost).toMatchObject({ code: 1, stdout: expect.stringContaining("would fail") });
    expect(await data("cmd test lost")).toMatchObject({
      effect: "permit",
      obstacle: expect.stringContaining("script"),
    });
  });
});

describe("run", () => {
  const message = (id: number, method: string, params: object) =>
    JSON.stringify({ jsonrpc: "2.0", id, method, params });

  it("portcullis run sends the requests of a file or of stdin in order and prints the answers [M9]", async () => {
    await cli("policy add-write code/out");
    const input = [
      message(1, "fs.write", { path: "out/x.txt", data: "one after the other" }),
      message(2, "fs.read", { path: "out/x.txt" }),
    ].join("\n");
    const ran = piped(["run", "-", ...files], input);
    const answers = ran.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(answers).toMatchObject([
      { id: 1, result: { bytesWritten: 19 } },
      { id: 2, result: { data: "one after the other" } },
    ]);
    expect(ran.code).toBe(0);
  });

  it("portcullis run exits with 2 after a denial and 1 after another error, and accepts a JSON document", async () => {
    const file = join(base, "requests.json");
    const denied = { jsonrpc: "2.0", id: 1, method: "fs.read", params: { path: "/etc/passwd" } };
    writeFileSync(file, JSON.stringify([{ jsonrpc: "2.0", method: "notifications/x" }, denied], null, 2));
    expect((await cli(`run ${file}`)).code).toBe(2);
    writeFileSync(file, "no json\n");
    expect(await cli(`run ${file}`)).toMatchObject({ code: 1, stdout: expect.stringContaining("PARSE_ERROR") });
    writeFileSync(file, "\n");
    expect((await cli(`run ${file}`)).code).toBe(64);
    expect(await cli("run /no/such/file")).toMatchObject({ code: 1 });
  });
});

describe("doctor", () => {
  it("doctor reports each problem with one remedy [M9]", async () => {
    const good = (await data("doctor host")) as { check: string; ok: boolean }[];
    expect(good.filter((finding) => !finding.ok)).toEqual([]);
    expect(good.map((finding) => finding.check)).toEqual(
      expect.arrayContaining([
        "PATH",
        "file systems",
        "sandbox",
        "a real start",
        "a real denial",
        "a real read",
        "ledger",
      ]),
    );
    chmodSync(config, 0o666);
    chmodSync(state, 0o755);
    mkdirSync(join(code, "project/.portcullis"), { recursive: true });
    writeFileSync(join(code, "project/.portcullis/operator.token"), "x");
    writeFileSync(config, POLICY.replace("exec: /bin/echo", `exec: ${join(base, "script")}`));
    writeFileSync(join(base, "script"), "#!/nowhere/interpreter\n", { mode: 0o755 });
    const examined = await cli("doctor host");
    expect(examined.code).toBe(1);
    expect(examined.stdout).toContain(`chmod 600 ${config}`);
    expect(examined.stdout).toContain(`the agent can read ${code}/project/.portcullis/operator.token`);
    expect(examined.stdout).toContain(`chmod 700 ${state}`);
    expect(examined.stdout).toMatch(/command echo: .*needs \/nowhere\/interpreter|bubblewrap|nothing/);
    chmodSync(state, 0o700);
    writeFileSync(config, "version: 2\n");
    expect((await cli("doctor host")).code).toBe(3);
  });
});
