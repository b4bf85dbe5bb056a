// A hostile stdio server against the gateway that started it: the built command, in each of the ways it is run.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  chownSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { importedSandbox } from "../../src/integrations/clients/sandbox.js";
import { loadKoffi } from "../../src/lib/index.js";
import { type Client, connect } from "../../src/mcp/client/index.js";
import { startPostgres } from "../../src/storage/fixtures/postgres.js";
import { openStorage, type ServerEntry } from "../../src/storage/index.js";
import { openSockets } from "./local-sockets.js";
import { portcullis, root } from "./serving.js";

const HOSTILE = join(import.meta.dirname, "hostile-server.mjs");
const MAIN = join(root, "dist", "cli", "main.js");
const linux = process.platform === "linux";
const isRoot = process.getuid?.() === 0;
const START_MS = 60_000;

const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"evil.outlive", resource) unless { context.approved };
`;

/** What is in the home directory of the gateway's user beforehand. */
const HOME_FILES: Readonly<Record<string, string>> = {
  ".bashrc": "# mine\n",
  ".gitconfig": "[user]\n",
  ".config/tool/settings": "mine",
  ".config/systemd/user/own.service": "mine",
  ".local/bin/mine": "mine",
  ".local/share/tool/data": "mine",
  ".npm/_npx/abc/node_modules/other-server/index.js": "mine",
  "documents/note.txt": "mine",
  ".ssh/id_ed25519": "mine",
  ".aws/credentials": "mine",
  "project/.git/config": "mine",
};

/** Read or run later by the user's shell, desktop, git, npx, Node or Python. */
const PLANTED = [
  ...[".bashrc", ".bash_profile", ".profile", ".zshenv", ".gitconfig", ".npmrc", ".pam_environment", ".vimrc"],
  ...[".config/autostart/x.desktop", ".config/git/config", ".config/environment.d/x.conf", ".config/fish/config.fish"],
  ...[".config/systemd/user/own.service", ".config/systemd/user/x.service", ".config/new/settings"],
  ...[".local/bin/mine", ".local/bin/git", ".local/share/systemd/user/x.service", ".local/lib/python3/x.pth"],
  ...[".npm/_npx/abc/node_modules/other-server/index.js", ".npm/_npx/def/package.json", ".node_modules/pg-native.js"],
  ...[
    "bin/ls",
    ".ssh/authorized_keys",
    ".ssh/rc",
    "node_modules/pg-native/index.js",
    ".cache/uv/x",
    ".claude/settings.json",
  ],
];

interface Running {
  readonly child: ChildProcess;
  readonly client: Client;
  readonly admin: string;
  readonly url: string;
  readonly base: string;
  readonly dir: string;
  readonly home: string;
  /** The store is not a file of this gateway. */
  readonly isShared: boolean;
}

const clean: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of clean.splice(0).reverse()) await end();
});

interface Options {
  readonly sandbox?: ServerEntry["sandbox"];
  readonly entry?: Partial<ServerEntry>;
  readonly args?: readonly string[];
  readonly uid?: number;
  readonly policy?: string;
  readonly servers?: Readonly<Record<string, ServerEntry>>;
  /** The store of several replicas; a file of its own unless given. */
  readonly store?: string;
  /** Files beside the data directory; `{base}` in an argument is where they are. */
  readonly files?: Readonly<Record<string, string>>;
}

async function start({
  sandbox,
  entry = {},
  args = [],
  uid,
  policy = POLICY,
  servers,
  store: shared,
  files = {},
}: Options = {}): Promise<Running> {
  const base = mkdtempSync(join(tmpdir(), "portcullis-hostile-"));
  clean.push(() => rmSync(base, { recursive: true, force: true }));
  const dir = join(base, "data");
  mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
  writeFileSync(join(dir, "policy", "test.cedar"), policy);
  const state = join(dir, "state", "other");
  mkdirSync(state, { recursive: true });
  writeFileSync(join(state, "memory.json"), "what another server remembers");
  const own = join(dir, "state", "evil");
  mkdirSync(own);
  writeFileSync(join(base, "seal"), `${Buffer.alloc(32, 7).toString("base64")}\n`, { mode: 0o600 });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(base, name), text);
  const home = join(base, "home");
  for (const [name, text] of Object.entries(HOME_FILES)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text);
  }
  const address = shared ?? `sqlite:${join(base, "store.db")}`;
  const storage = await openStorage(address);
  const server: ServerEntry = {
    command: process.execPath,
    args: [HOSTILE],
    env: { OWN_STATE: own },
    noGuardrail: ["*"],
    ...(sandbox === undefined ? {} : { sandbox }),
    ...entry,
  };
  const other = { ...server, env: { OTHER_STATE: state } };
  await storage.applications.put("local", { servers: servers ?? { evil: server, other } }, "test");
  const request = { app: "local", name: "caller", agent: base, permissions: ["invoke(*)", "list"] };
  // Replicas that share a store serve no local user.
  const key = shared === undefined ? undefined : (await createKey(storage.keys, request, "test")).token;
  await storage.close();
  if (uid !== undefined) {
    chmodSync(base, 0o755);
    execFileSync("chown", ["-R", `${uid}:${uid}`, base]);
  }
  const store = ["--storage", address, "--seal-key", `file:${join(base, "seal")}`];
  const command = [
    "--json",
    "--dir",
    dir,
    "serve",
    "--port",
    "0",
    "--admin-port",
    "0",
    "--log-level",
    "error",
    ...store,
  ];
  const child = spawn(process.execPath, [MAIN, ...command, ...args.map((arg) => arg.replace("{base}", base))], {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH: process.env.PATH,
      HOME: home,
      SECRET_OF_THE_GATEWAY: "hunter2",
    },
    ...(uid === undefined ? {} : { uid, gid: uid }),
  });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  clean.push(async () => {
    child.kill("SIGTERM");
    await exited;
  });
  let stderr = "";
  child.stderr?.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const facts = await new Promise<{ urls: string[]; admin: string }>((resolve, reject) => {
    let stdout = "";
    child.stdout?.on("data", (chunk: Buffer) => {
      stdout += chunk.toString();
      if (stdout.trimEnd().endsWith("}")) resolve(JSON.parse(stdout));
    });
    void exited.then((code) => reject(new Error(`serve ended with ${code}: ${stderr}`)));
  });
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const client = await connect(facts.urls[0] as string, { headers });
  clean.push(() => client.close());
  const [url = ""] = facts.urls;
  return { child, client, admin: facts.admin, url, base, dir, home, isShared: shared !== undefined };
}

async function called(running: Running, name: string, args: object = {}): Promise<Record<string, unknown>> {
  const result = await running.client.callTool(name, args as never);
  expect(result.isError, JSON.stringify(result.content)).not.toBe(true);
  return result.structuredContent as Record<string, unknown>;
}

/** What the attack got, without the attempts that got nothing. */
async function attacked(...args: Parameters<typeof allAttacks>): Promise<Record<string, string>> {
  return successful(await allAttacks(...args));
}

function successful(attempts: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(attempts).filter(([, text]) => text !== ""));
}

/** What a profile closes besides. */
async function strictAttacks(running: Running): Promise<Record<string, string>> {
  const { home, dir, admin, url, child } = running;
  const files = { note: join(home, "documents/note.txt"), token: join(dir, "operator.token") };
  const args = { home, admin, gateway: url, files, otherProcess: child.pid };
  return (await called(running, "evil.attackStrict", args)) as Record<string, string>;
}

async function allAttacks(running: Running, isConfined = true, of = running): Promise<Record<string, string>> {
  const { dir, base, child, admin } = of;
  const victim = await processOf(running, "other");
  const ledger = join(dir, "ledger");
  const ledgerFiles = readdirSync(ledger, { recursive: true, encoding: "utf8" });
  const files = {
    token: join(dir, "operator.token"),
    seal: join(base, "seal"),
    ...(of.isShared ? {} : { store: join(base, "store.db"), log: join(base, "store.db-wal") }),
    policy: join(dir, "policy", "test.cedar"),
    ...Object.fromEntries(ledgerFiles.map((name) => [`ledger ${name}`, join(ledger, name)])),
  };
  const got = await called(running, "evil.attack", {
    dir,
    files,
    gatewayPid: child.pid,
    otherState: join(dir, "state", "other"),
    admin,
    approval: await pendingApproval(running),
    victim,
    isConfined,
    sockets: await openSockets(dir, clean),
    terminal: terminalOf(child),
  });
  return got as Record<string, string>;
}

interface Facts {
  readonly server: string;
  readonly pid: number;
  readonly sandbox: {
    readonly files: string;
    readonly network: string;
    readonly touched?: readonly { readonly path: string }[];
  };
}

async function serverFacts({ dir, admin }: Running): Promise<{ servers: readonly Facts[] }> {
  const token = readFileSync(join(dir, "operator.token"), "utf8").trim();
  const reply = await fetch(`${admin}/v1/servers`, { headers: { authorization: `Bearer ${token}` } });
  return (await reply.json()) as { servers: readonly Facts[] };
}

/** The number of another server's process as it is outside. */
async function processOf(running: Running, server: string): Promise<number | undefined> {
  await called(running, `${server}.who`);
  const { servers } = await serverFacts(running);
  return servers.find((each) => each.server === server)?.pid;
}

/** A call of the hostile server's tool that waits for an operator. */
async function pendingApproval(running: Running): Promise<string | undefined> {
  void running.client.callTool("evil.outlive", { mark: "never" }).catch(() => {});
  const token = readFileSync(join(running.dir, "operator.token"), "utf8").trim();
  let id: string | undefined;
  await expect
    .poll(
      async () => {
        const reply = await fetch(`${running.admin}/v1/approvals`, { headers: { authorization: `Bearer ${token}` } });
        id = ((await reply.json()) as { approvals: { id: string }[] }).approvals[0]?.id;
        return id;
      },
      { timeout: START_MS },
    )
    .toBeDefined();
  return id;
}

/** Processes with this word on their command line. */
function marked(mark: string): string[] {
  return readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").endsWith(`\0${mark}\0`);
    } catch {
      return false;
    }
  });
}

const NO_TTY = 0o400;
const READ_WRITE = 2;

/** A pseudo-terminal that is open at the gateway's user; undefined where the machine has none. */
function terminalOf(gateway: ChildProcess): string | undefined {
  const libc = loadKoffi()?.load(null);
  const master = libc?.func("posix_openpt", "int", ["int"])(READ_WRITE | NO_TTY) ?? -1;
  if (libc === undefined || master < 0) return undefined;
  clean.push(() => closeSync(master));
  libc.func("unlockpt", "int", ["int"])(master);
  const name = libc.func("ptsname", "str", ["int"])(master) as unknown as string;
  chownSync(name, statSync(`/proc/${gateway.pid}`).uid, -1);
  return name;
}

/** Every file below, by its path. */
function contents(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Object.fromEntries(
    names.map(({ parentPath, name }) => [join(parentPath, name), readFileSync(join(parentPath, name), "utf8")]),
  );
}

const OPEN = "permit (principal, action, resource);";
const UNPRIVILEGED = 65_534;
const WAYS: [string, Options][] = [
  ["as the user of the tests", {}],
  ["with workers", { args: ["--workers", "2"] }],
  ...(isRoot ? [["as an ordinary user", { uid: UNPRIVILEGED }] as [string, Options]] : []),
];

describe.runIf(linux)("a hostile stdio server", () => {
  it.each(WAYS)(
    "a hostile stdio server gets nothing of the gateway that started it, %s [G8]",
    { timeout: 3 * START_MS },
    async (_, options) => {
      const running = await start(options);
      expect(await attacked(running)).toEqual({});
    },
  );

  it.each(WAYS)(
    "a hostile stdio server with a profile that names nothing makes more than 60 attempts and achieves none, %s [G8]",
    { timeout: 3 * START_MS },
    async (_, options) => {
      const running = await start({ ...options, sandbox: {} });
      const attacks = await allAttacks(running);
      const more = await strictAttacks(running);
      expect(successful({ ...attacks, ...more })).toEqual({});
      expect(Object.keys({ ...attacks, ...more }).length).toBeGreaterThan(60);
    },
  );

  it("a hostile stdio server gets nothing of another replica on the same machine, with a data directory of its own", {
    timeout: 3 * START_MS,
  }, async () => {
    const postgres = await startPostgres();
    clean.push(() => postgres.stop());
    const store = await postgres.database();
    const other = await start({ store });
    const running = await start({ store });
    expect(await attacked(running, true, other)).toEqual({});
    // A replica that was started before the other one has to hide its files, too.
    expect(await attacked(other, true, running)).toEqual({});
  });

  it("a hostile stdio server reads the gateway's secrets without a sandbox, which shows that the attack works [G8]", {
    timeout: 3 * START_MS,
  }, async () => {
    const running = await start({ sandbox: "off" });
    const got = await attacked(running, false);
    expect(Object.keys(got)).toEqual(
      // A signal needs the gateway's PID namespace, which a server of an ordinary user never has.
      expect.arrayContaining([
        ...["read token", "read seal", "read store", "dataDirectory", "approve"],
        expect.stringMatching(/^connect \/.*any\.sock$/),
        expect.stringMatching(/^connect @/),
        "terminal",
      ]),
    );
    expect(Object.keys(successful(await strictAttacks(running)))).toEqual(
      expect.arrayContaining([
        ...["connect admin", "connect gateway", "read ~/.ssh/id_ed25519", "otherProcess"],
        ...["setId", "fillTemporary", "forkBomb"],
      ]),
    );
  });

  it.each(WAYS)(
    "a hostile stdio server plants nothing that the user or another server runs later, %s [G8]",
    {
      timeout: 3 * START_MS,
    },
    async (_, options) => {
      const running = await start({ ...options, policy: OPEN });
      const { home } = running;
      const before = contents(home);
      const paths = PLANTED.map((name) => join(home, name));
      await called(running, "evil.plant", { paths });
      expect(contents(home)).toEqual(before);
      const seen = await called(running, "other.look", { paths });
      const expected = PLANTED.map((name) => (name.startsWith(".npm/") ? "" : (HOME_FILES[name] ?? "")));
      expect(seen.found).toEqual(expected);
    },
  );

  it.each(WAYS)(
    "a hostile stdio server opens a terminal of its own, %s",
    { timeout: 3 * START_MS },
    async (_, options) => {
      const running = await start({ ...options, policy: OPEN });
      const { found } = await called(running, "evil.look", { paths: ["/dev/pts"] });
      expect(found).toEqual([""]);
      expect(await called(running, "evil.terminal")).toEqual({ opened: "/dev/pts/0" });
    },
  );

  it("a hostile stdio server changes no code and no settings that the gateway was told to load", {
    timeout: 3 * START_MS,
  }, async () => {
    const files = {
      "tools.mjs": "export default () => [];",
      "gateway.yaml": "gateway: { pageSize: 500 }\n",
      "module.mjs": `import { createServer } from "${join(root, "dist", "server.js")}"; export default createServer("m", "1");`,
    };
    const running = await start({
      policy: OPEN,
      files,
      args: ["{base}/module.mjs", "--modules", "{base}/tools.mjs", "--config", "{base}/gateway.yaml"],
    });
    const paths = Object.keys(files).map((name) => join(running.base, name));
    const { written } = await called(running, "evil.plant", { paths });
    expect(written).toEqual([]);
    expect(paths.map((path) => readFileSync(path, "utf8"))).toEqual(Object.values(files));
  });

  it("a sandboxed stdio server still reads the user's files and what it stored in the home directory [G8]", {
    timeout: 3 * START_MS,
  }, async () => {
    const running = await start({ policy: OPEN });
    const at = (name: string): string => join(running.home, name);
    const own = [at(".evil/tokens.json"), at(".cache/evil/x"), at("documents/new.txt")];
    expect((await called(running, "evil.plant", { paths: own })).written).toEqual(own);
    expect(readFileSync(at("documents/new.txt"), "utf8")).toBe("planted");
    const read = [at("documents/note.txt"), at(".config/tool/settings"), at(".bashrc")];
    expect((await called(running, "evil.look", { paths: read })).found).toEqual(["mine", "mine", "# mine\n"]);
    expect((await called(running, "other.look", { paths: own })).found).toEqual(["", "", "planted"]);
  });

  it("a hostile stdio server ends with a gateway that is killed, and so does every process it started [G8]", {
    timeout: 3 * START_MS,
  }, async () => {
    const running = await start({ policy: "permit (principal, action, resource);" });
    const mark = `outlives-${process.pid}`;
    await called(running, "evil.outlive", { mark });
    expect(marked(mark)).toHaveLength(1);
    running.child.kill("SIGKILL");
    await expect.poll(() => marked(mark), { timeout: START_MS }).toEqual([]);
  });
});

describe.runIf(linux)("the gateway", () => {
  it.runIf(isRoot)(
    "shows its environment and memory to no other process of its user",
    {
      timeout: 3 * START_MS,
    },
    async () => {
      const { child } = await start({ uid: UNPRIVILEGED, policy: OPEN });
      const read = `for (const name of ["environ", "mem", "maps"]) {
      try { require("fs").readFileSync("/proc/${child.pid}/" + name); console.log(name); } catch (error) { console.log(error.code); }
    }`;
      const got = execFileSync(process.execPath, ["-e", read], {
        uid: UNPRIVILEGED,
        gid: UNPRIVILEGED,
        encoding: "utf8",
      });
      expect(got.trim().split("\n")).toEqual(["EACCES", "EACCES", "EACCES"]);
    },
  );

  it("doctor states what the sandbox of servers is on this machine", { timeout: 3 * START_MS }, async () => {
    const { dir } = await start({ policy: OPEN });
    const { stdout } = portcullis(["--json", "--dir", dir, "doctor"]);
    const found = (JSON.parse(stdout) as { check: string; detail: string }[]).filter(
      ({ check }) => check === "server sandbox",
    );
    expect(found).toHaveLength(1);
    expect(found[0]?.detail).not.toBe("");
  });
});

const SERVERS = join(root, "node_modules/@modelcontextprotocol");

describe.runIf(linux)("the reference servers", () => {
  it.each(WAYS.filter(([, options]) => options.args === undefined))(
    "the reference servers answer calls in the profile that an import gives them, %s [G8]",
    { timeout: 3 * START_MS },
    async (_, options) => {
      const files = mkdtempSync(join(tmpdir(), "portcullis-files-"));
      clean.push(() => rmSync(files, { recursive: true, force: true }));
      writeFileSync(join(files, "a.txt"), "hello");
      if (options.uid !== undefined) execFileSync("chown", ["-R", `${options.uid}:${options.uid}`, files]);
      const imported = (entry: ServerEntry): ServerEntry =>
        importedSandbox(
          { noGuardrail: ["*"], ...entry },
          { home: "/absent", env: {}, dir: "/absent", platform: "linux" },
        ).entry;
      const of = (name: string, ...args: string[]): ServerEntry =>
        imported({ command: process.execPath, args: [join(SERVERS, name, "dist/index.js"), ...args] });
      const running = await start({
        ...options,
        policy: OPEN,
        servers: {
          everything: of("server-everything"),
          files: of("server-filesystem", files),
          memory: imported({ ...of("server-memory"), env: { MEMORY_FILE_PATH: join(files, "memory.jsonl") } }),
          thinking: of("server-sequential-thinking"),
        },
      });
      const text = async (name: string, args: object): Promise<string> => {
        const result = await running.client.callTool(name, args as never);
        return JSON.stringify(result.content);
      };
      expect(await text("everything.echo", { message: "there" })).toContain("there");
      expect(await text("files.read_text_file", { path: join(files, "a.txt") })).toContain("hello");
      expect(await text("files.write_file", { path: join(files, "b.txt"), content: "new" })).toContain("Successfully");
      expect(readFileSync(join(files, "b.txt"), "utf8")).toBe("new");
      const entities = [{ name: "x", entityType: "y", observations: ["z"] }];
      expect(await text("memory.create_entities", { entities })).toContain("x");
      const thought = { thought: "t", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 };
      expect(await text("thinking.sequentialthinking", thought)).toContain("thoughtNumber");
      const { servers } = await serverFacts(running);
      expect(servers.map(({ sandbox }) => [sandbox.files, sandbox.network])).toEqual(Array(4).fill(["view", "off"]));
    },
  );

  it("a server is observed while it is called, and keeps what it used [G8]", { timeout: 3 * START_MS }, async () => {
    const base = mkdtempSync(join(tmpdir(), "portcullis-observed-"));
    clean.push(() => rmSync(base, { recursive: true, force: true }));
    const [used, unused] = ["used", "unused"].map((name) => join(base, name)) as [string, string];
    for (const path of [used, unused]) mkdirSync(path);
    const args = [join(SERVERS, "server-filesystem/dist/index.js"), used];
    const running = await start({
      policy: OPEN,
      servers: {
        files: {
          command: process.execPath,
          args,
          prefix: "files",
          noGuardrail: ["*"],
          sandbox: { write: [used, unused], network: "public" },
        },
      },
    });
    const store = `sqlite:${join(running.base, "store.db")}`;
    const observe = (...more: string[]): Record<string, unknown> => {
      const command = ["server", "observe", "local", "files", "--admin", running.admin, "--storage", store];
      const { stdout, stderr } = portcullis(["--json", "--dir", running.dir, ...command, ...more]);
      expect(stdout, stderr).not.toBe("");
      return JSON.parse(stdout) as Record<string, unknown>;
    };
    expect(observe()).toMatchObject({ state: "started" });
    const write = { path: join(used, "a.txt"), content: "x" };
    // The gateway takes the changed entry up a moment later.
    await expect
      .poll(
        async () => {
          await running.client.callTool("files.write_file", write as never);
          const { servers } = await serverFacts(running);
          return servers.some(({ sandbox }) => sandbox?.touched?.some(({ path }) => path === write.path));
        },
        { timeout: START_MS },
      )
      .toBe(true);
    const profile = { write: [used], network: "off" };
    expect(observe()).toMatchObject({ state: "proposed", sandbox: profile, refusedPaths: [], refusedHosts: [] });
    expect(observe("--accept")).toMatchObject({ state: "accepted", sandbox: profile });
    expect(observe()).toMatchObject({ state: "started", sandbox: profile });
  });
});
