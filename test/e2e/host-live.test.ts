// A host that is running: whose profile holds, what a reload changes, and which policy the records name.

import { spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { localIdentity } from "../../src/auth/index.js";
import { loadYamlPolicy, policyFor } from "../../src/host/index.js";
import { type LedgerRecord, read } from "../../src/ledger/index.js";
import { root } from "./serving.js";

// A policy that the group can write does not start, and some machines make every file so.
process.umask(0o022);
const base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-live-")));
const code = join(base, "code");
const inner = join(code, "inner");
const config = join(base, "policy.yaml");
const main = join(root, "dist", "cli", "main.js");
let state: string;
let count = 0;
const running: (() => Promise<unknown>)[] = [];

beforeEach(() => {
  mkdirSync(inner, { recursive: true });
  writeFileSync(join(code, "outer.txt"), "outer\n");
  writeFileSync(join(inner, "inner.txt"), "inner\n");
  state = join(base, `state-${count++}`);
});
afterEach(async () => {
  for (const stop of running.splice(0)) await stop();
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** A running host reads a changed file at once, and an empty one is a policy too: it sees the whole text or the old one. */
function save(policy: string): void {
  writeFileSync(`${config}.new`, policy, { mode: 0o600 });
  renameSync(`${config}.new`, config);
}

function start(...args: string[]) {
  const child = spawn(process.execPath, [main, "host", "--config", config, "--state", state, ...args]);
  const waiting = new Map<number, (answer: any) => void>();
  const methods: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    const answer = JSON.parse(line);
    if (answer.method !== undefined) methods.push(answer.method);
    waiting.get(answer.id)?.(answer);
  });
  let stderr = "";
  child.stderr.on("data", (chunk) => {
    stderr += String(chunk);
  });
  const exited = new Promise<number | null>((resolve) => child.once("close", resolve));
  let next = 0;
  const ask = (method: string, params: object): Promise<any> =>
    new Promise((resolve) => {
      const id = ++next;
      waiting.set(id, resolve);
      child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    });
  const tell = (method: string): void => {
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", method })}\n`);
  };
  const said = async (text: string): Promise<void> => {
    const until = Date.now() + 20_000;
    while (!stderr.includes(text)) {
      if (Date.now() > until) throw new Error(`waited for "${text}": ${stderr}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    stderr = "";
  };
  const stop = (): Promise<number | null> => {
    child.stdin.end();
    return exited;
  };
  running.push(stop);
  return {
    ask,
    tell,
    said,
    stop,
    exited,
    hangUp: () => child.kill("SIGHUP"),
    stderr: () => stderr,
    heard: () => methods,
  };
}

const reads = async (host: ReturnType<typeof start>, path: string): Promise<string> => {
  const answer = await host.ask("fs.read", { path });
  return answer.result?.data ?? answer.error?.data?.rule ?? JSON.stringify(answer);
};

function hashOf(client?: string): string {
  const loaded = loadYamlPolicy(config);
  if (!loaded.ok) throw new Error("the test's policy is wrong");
  return policyFor(loaded.policy, client).hash;
}

async function records(): Promise<LedgerRecord[]> {
  const all: LedgerRecord[] = [];
  for await (const { record } of read(join(state, "ledger/0"))) all.push(record);
  return all;
}

/** What the records say of the application's policy: by the hash of decisions, the hash of the policy.yaml in it. */
function recordedPolicies(all: readonly LedgerRecord[]) {
  const changes = all.flatMap((record) => {
    const { app, interim, checks } = (record.kind === "policy" ? record.detail : {}) as {
      app?: string;
      interim?: string;
      checks?: Record<string, string>;
    };
    return record.kind === "policy" && app === "host" ? [{ ...record, interim, yaml: checks?.[config] }] : [];
  });
  const names = new Map(changes.flatMap((change) => [[change.new, change.yaml] as const]));
  for (const { interim } of changes) if (interim !== undefined) names.set(interim, "both");
  return { changes, yamlOf: (policy: string) => names.get(policy) };
}

const auditLines = (file: string): any[] =>
  readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

describe("a client's profile", () => {
  it("a client's profile applies to the client that the operator named, whatever it calls itself, and is recorded [M11]", async () => {
    writeFileSync(
      config,
      `allowedRoots: ["${code}"]\nprofiles:\n  - client: guest\n    allowedRoots: ["${inner}"]\n    maxReadBytes: 3\n`,
    );
    const guest = start("--client", "guest");
    const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "operator", version: "1" } };
    expect((await guest.ask("initialize", hello)).result).toBeDefined();
    expect(await reads(guest, join(code, "outer.txt"))).toBe("outsideAllowedRoots");
    expect(await reads(guest, join(inner, "inner.txt"))).toBe("inn");
    expect((await guest.ask("fs.read", { path: join(inner, "inner.txt") })).result.truncated).toBe(true);
    await guest.stop();
    const all = await records();
    const { yamlOf } = recordedPolicies(all);
    const decisions = all.filter((record) => record.kind === "decision");
    expect(decisions.map(({ app, agent, policy }) => ({ app, agent, policy: yamlOf(policy) }))).toEqual(
      decisions.map(() => ({ app: "host", agent: "guest", policy: hashOf("guest") })),
    );
    expect(decisions.at(-1)).toMatchObject({ effect: "permit", rules: ["host", `allowedRoots ${inner}`] });
    expect(hashOf("guest")).not.toBe(hashOf());
    const lines = auditLines(join(state, "audit.jsonl"));
    expect(lines.every((line) => line.client === "guest" && line.policyHash === hashOf("guest"))).toBe(true);
  });

  it("a profile applies to the system's user when no client is named, and a name without a profile does not start", async () => {
    const { agent: me } = await localIdentity()({ transport: "stdio", address: "" }, undefined);
    writeFileSync(
      config,
      `allowedRoots: ["${code}"]\nprofiles:\n  - client: "${me}"\n    allowedRoots: ["${inner}"]\n`,
    );
    const mine = start();
    expect(await reads(mine, join(code, "outer.txt"))).toBe("outsideAllowedRoots");
    expect(await reads(mine, join(inner, "inner.txt"))).toBe("inner\n");
    const stranger = start("--client", "stranger");
    expect(await stranger.exited).toBe(3);
    expect(stranger.stderr()).toContain("no profile for the client stranger");
  });
});

describe("SIGHUP", () => {
  it("SIGHUP applies the new policy to the next call, and an invalid policy is refused while the old one stays [M11]", async () => {
    writeFileSync(config, `allowedRoots: ["${code}"]\n`);
    const before = hashOf();
    const host = start("--reload");
    const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "x", version: "1" } };
    await host.ask("initialize", hello);
    host.tell("notifications/initialized");
    const described = async (): Promise<string> =>
      (await host.ask("tools/list", {})).result.tools.find((tool: { name: string }) => tool.name === "fs.read")
        .description;
    expect(await described()).toContain(`Directories: ${code}.`);
    expect(await reads(host, join(code, "outer.txt"))).toBe("outer\n");
    save(`allowedRoots: ["${inner}"]\n`);
    const after = hashOf();
    host.hangUp();
    await host.said("policy in force");
    expect(await described()).toContain(`Directories: ${inner}.`);
    expect(await reads(host, join(code, "outer.txt"))).toBe("outsideAllowedRoots");
    save(`allowedRoots: ["${code}"]\nallowedRoot: []\n`);
    host.hangUp();
    await host.said("the previous policy stays in force");
    expect(await reads(host, join(code, "outer.txt"))).toBe("outsideAllowedRoots");
    // Not even by way of its own ledger.
    save(`allowedRoots: ["${base}"]\n`);
    host.hangUp();
    await host.said("must stay out of reach");
    expect(await reads(host, join(code, "outer.txt"))).toBe("outsideAllowedRoots");
    await host.stop();
    const kept = await records();
    const { changes, yamlOf } = recordedPolicies(kept);
    expect(changes.map(({ yaml }) => yaml)).toEqual([before, after]);
    expect(changes[1]?.old).toBe(changes[0]?.new);
    expect(
      kept.flatMap((record) =>
        record.kind === "decision" && record.method === "tools/call" ? [yamlOf(record.policy)] : [],
      ),
    ).toEqual([before, after, after, after]);
    expect(host.heard()).toContain("notifications/tools/list_changed");
  });
});

describe("a file as stdin", () => {
  it("a file as stdin is answered to its end, and then the host ends", () => {
    writeFileSync(config, `allowedRoots: ["${code}"]\n`);
    const file = join(base, "requests.jsonl");
    writeFileSync(
      file,
      `${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "fs.read", params: { path: "outer.txt" } })}\n`,
    );
    const args = [main, "host", "--config", config, "--state", state];
    const began = performance.now();
    expect(spawnSync(process.execPath, args, { input: readFileSync(file), timeout: 120_000 }).status).toBe(0);
    // Beside what the same takes with a pipe, less than the time that a host waits for answers which never come.
    const timeout = Math.round(performance.now() - began) + 25_000;
    const fd = openSync(file, "r");
    const ran = spawnSync(process.execPath, args, { stdio: [fd, "pipe", "pipe"], encoding: "utf8", timeout });
    closeSync(fd);
    expect(ran.status).toBe(0);
    expect(JSON.parse(ran.stdout)).toMatchObject({ id: 1, result: { data: "outer\n" } });
  });
});

describe("many reloads", () => {
  it("each call during many reloads is decided by the policy that its record names", async () => {
    const open = `allowedRoots: ["${code}"]\n`;
    const closed = `allowedRoots: ["${inner}"]\n`;
    const hashes = [open, closed].map((text) => {
      writeFileSync(config, text);
      return hashOf();
    });
    writeFileSync(config, open);
    const host = start("--reload", "--log-level", "notice");
    const path = join(code, "outer.txt");
    await reads(host, path);
    const answers: (string | Promise<string>)[] = [];
    for (let round = 0; round < 20; round++) {
      // Decided before the change is made: under either policy at least one call is answered.
      answers.push(await reads(host, path));
      save(round % 2 === 0 ? closed : open);
      host.hangUp();
      for (let i = 0; i < 10; i++) {
        answers.push(reads(host, path));
        await new Promise((resolve) => setImmediate(resolve));
      }
      await host.said("policy in force");
    }
    expect(new Set(await Promise.all(answers))).toEqual(new Set(["outer\n", "outsideAllowedRoots"]));
    await host.stop();
    const all = await records();
    const { yamlOf } = recordedPolicies(all);
    const pairs = all.flatMap((record) => {
      if (record.kind !== "decision") return [];
      const yaml = yamlOf(record.policy) ?? "unknown";
      return [`${hashes.includes(yaml) ? hashes.indexOf(yaml) : yaml} ${record.effect}`];
    });
    // While a change is not on record, the stricter of both policies decides.
    expect(new Set(pairs.filter((pair) => pair !== "both deny"))).toEqual(new Set(["0 permit", "1 deny"]));
  });
});

describe("metrics", () => {
  it("the host serves metrics on loopback when a port is given [M11]", async () => {
    writeFileSync(config, `allowedRoots: ["${code}"]\n`);
    const host = start("--metrics-port", "0", "--log-level", "notice");
    await reads(host, join(code, "outer.txt"));
    await reads(host, "/etc/passwd");
    const url = /http:[^"]+metrics/.exec(host.stderr())?.[0] ?? "";
    const authorization = `Bearer ${readFileSync(join(state, "metrics.token"), "utf8").trim()}`;
    const text = await (await fetch(url, { headers: { authorization } })).text();
    expect(text).toContain('portcullis_effect="permit",portcullis_outcome="ok"} 1\n');
    expect(text).toContain('portcullis_effect="deny",portcullis_outcome="refused"} 1\n');
    expect((await fetch(url.replace("/metrics", "/v1/policy"))).status).toBe(401);
  });
});

describe("logging", () => {
  it("host logs follow the policy's target, level, retention and redaction [M5]", async () => {
    const file = join(base, "logs/audit.jsonl");
    writeFileSync(
      config,
      `allowedRoots: ["${code}"]\nlogging: { file: "${file}", level: error, redact: [path], maxBytes: 10_000, maxFiles: 2 }\n`,
    );
    const host = start();
    const calls = Array.from({ length: 200 }, (_, i) =>
      host.ask("fs.read", { path: i % 2 ? "outer.txt" : "/etc/passwd" }),
    );
    await Promise.all(calls);
    await host.stop();
    expect(host.stderr()).toBe("");
    expect(readdirSync(join(base, "logs")).sort()).toEqual(["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]);
    for (const name of readdirSync(join(base, "logs"))) {
      const text = readFileSync(join(base, "logs", name), "utf8");
      expect(text.length).toBeLessThanOrEqual(10_000);
      expect(text).not.toContain("outer.txt");
      expect(text).not.toContain("/etc/passwd");
    }
    const lines = readdirSync(join(base, "logs")).flatMap((name) => auditLines(join(base, "logs", name)));
    expect(lines.every((line) => line.path === "[redacted]")).toBe(true);
    expect(existsSync(join(state, "audit.jsonl"))).toBe(false);
  });
});
