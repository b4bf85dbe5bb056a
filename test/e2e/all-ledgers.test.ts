// `portcullis audit` on the ledgers of gateways, workers, replicas and hosts together.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openLedger } from "../../src/ledger/index.js";
import { root } from "./serving.js";

const home = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-ledgers-")));
const project = join(home, "project");
const hostState = join(home, "state");
const data = join(project, ".portcullis");

function run(cwd: string, args: readonly string[], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(root, "dist/cli/main.js"), ...args], {
    cwd,
    encoding: "utf8",
    timeout: 60_000,
    env: { PATH: process.env.PATH ?? "", HOME: home, NO_COLOR: "1", ...env },
  });
  return { code: status, stdout, stderr };
}
const audit = (...args: string[]) => run(project, ["audit", ...args]);

const START = Date.UTC(2026, 0, 2, 3, 4, 5);
const WRITERS: readonly (readonly [name: string, dir: string])[] = [
  ["ledger/worker-1", join(data, "ledger", "worker-1")],
  ["ledger/worker-2", join(data, "ledger", "worker-2")],
  ["ledgers/2", join(data, "ledgers", "2")],
  ["ledgers/replica-a", join(data, "ledgers", "replica-a")],
];

/** `at` is the second after `START`. */
async function record(dir: string, origin: string, seconds: readonly number[]): Promise<void> {
  const ledger = await openLedger({ dir, origin: `example.com/${origin}`, keepArguments: true });
  for (const at of seconds) {
    await ledger.append({
      kind: "decision",
      ts: START + at * 1_000,
      call: `call-${at}`,
      trace: "",
      app: "shop",
      agent: "robot",
      actor: "shop/robot",
      method: "tools/call",
      tool: "notes.write",
      binding: "local:notes",
      args_cid: "cid",
      effect: at % 2 === 0 ? "permit" : "deny",
      rules: [`rule-${at}`],
      policy: "hash",
      reason: "because",
      mode: "enforce",
      ...(at === 3 ? { args: '{"title":"it\'s"}' } : {}),
    });
  }
  await ledger.close();
}

beforeAll(async () => {
  mkdirSync(project, { recursive: true });
  for (const [i, [, dir]] of WRITERS.entries()) await record(dir, `gateway-${i}`, [i, i + WRITERS.length]);
  // A worker that is starting has opened its ledger and not written to it.
  mkdirSync(join(data, "ledgers", "worker-3"));
  writeFileSync(join(data, "ledgers", "worker-3", "signing.key"), "");
  await record(join(home, ".local/state/portcullis/host/ledger/0"), "host", [8]);
  await record(join(hostState, "portcullis/host/ledger/0"), "host", [20, 21]);
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

const NAMES = [...WRITERS.map(([name]) => name), "host/0"];

describe("audit tail", () => {
  it("audit tail merges the records of all ledgers by time, with ledger, number, date, call id, client, tool, effect and rules", () => {
    const { code, stdout, stderr } = audit("tail");
    expect(code, stderr).toBe(0);
    const lines = stdout.split("\n").filter((line) => line.includes("#"));
    expect(lines.map((line) => /call-\d+/.exec(line)?.[0])).toEqual(Array.from({ length: 9 }, (_, i) => `call-${i}`));
    expect(lines[0]).toMatch(
      /^ledger\/worker-1#\d+ 2026-01-02 03:04:05\.000 call-0 shop\/robot notes\.write permit rule-0$/,
    );
    expect(lines[8]).toContain("host/0#");
    expect(audit("tail", "-n", "2").stdout.match(/call-\d/g)).toEqual(["call-7", "call-8"]);
  });

  it("audit tail is not cut when it is piped, whatever COLUMNS is", () => {
    const { stdout } = run(project, ["audit", "tail"], { COLUMNS: "60" });
    expect(stdout).toBe(audit("tail").stdout);
    expect(Math.max(...stdout.split("\n").map((line) => line.length))).toBeGreaterThan(60);
  });

  it("audit tail prints the command that explains a denial, for that call and that caller", () => {
    const { stdout } = audit("tail");
    expect(stdout).toContain(
      `explain: portcullis policy explain notes.write '{"title":"it'\\''s"}' --app shop --agent shop/robot`,
    );
    expect(stdout).toContain("explain: portcullis policy explain notes.write ARGUMENTS --app shop --agent shop/robot");
  });

  it("audit tail finds the ledger of a host where only a host has run, and numbers its records without a name", () => {
    const empty = mkdtempSync(join(home, "empty-"));
    const { code, stdout } = run(empty, ["audit", "tail"], { XDG_STATE_HOME: hostState });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^\d+ 2026-01-02 .*call-20 /m);
    expect(run(empty, ["audit", "verify"], { XDG_STATE_HOME: hostState }).code).toBe(0);
    expect(readdirSync(empty)).toEqual([]);
  });
});

describe("audit prove", () => {
  it("audit prove takes the numbers that tail shows, and audit verify-proof checks the proof [U9]", () => {
    const [id = ""] = /ledgers\/replica-a#\d+/.exec(audit("tail").stdout) ?? [];
    const proof = join(home, "proof.json");
    const proved = audit("prove", id, "-o", proof);
    expect(proved.code, proved.stderr).toBe(0);
    expect(proved.stderr).toContain(`portcullis audit verify-proof ${proof}`);
    expect(JSON.parse(readFileSync(proof, "utf8"))).toMatchObject({ origin: "example.com/gateway-3" });
    expect(audit("verify-proof", proof)).toMatchObject({ code: 0, stdout: expect.stringContaining("holds: record") });
    const { public_key } = JSON.parse(readFileSync(proof, "utf8")) as { public_key: string };
    expect(audit("verify-proof", proof, "--key", public_key).code).toBe(0);
    writeFileSync(proof, readFileSync(proof, "utf8").replace("call-", "caII-"));
    expect(audit("verify-proof", proof)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("DOES NOT HOLD"),
    });
  });

  it("audit prove finds a call id in whichever ledger has it, and requires the ledger for a bare number", () => {
    expect(JSON.parse(audit("prove", "call-8").stdout)).toMatchObject({ origin: "example.com/host" });
    const refused = audit("prove", "2");
    expect(refused.code).toBe(64);
    for (const name of NAMES) expect(refused.stderr).toContain(`${name}#2`);
    expect(audit("prove", "call-99").code).toBe(1);
    const absent = audit("prove", "99999");
    expect([absent.code, absent.stderr]).toEqual([1, expect.stringContaining("no ledger has a record 99999")]);
  });
});

describe("audit export", () => {
  it("audit export exports the named ledger, and lists the names where several exist", () => {
    const refused = audit("export");
    expect(refused.code).toBe(64);
    for (const name of NAMES) expect(refused.stderr).toContain(name);
    const unknown = audit("export", "--ledger", "nope");
    expect(unknown.code).toBe(1);
    expect(unknown.stderr).toContain("there is no ledger `nope`\nknown: ");
    const { code, stdout } = audit("export", "--ledger", "ledgers/2");
    expect(code).toBe(0);
    expect(stdout).toContain("call-6");
    expect(stdout).not.toContain("call-7");
  });
});

describe("audit verify", () => {
  it("audit verify names every ledger that it read [U9]", () => {
    const { code, stdout } = audit("verify");
    expect(code).toBe(0);
    for (const [, dir] of WRITERS) expect(stdout).toContain(dir);
    expect(stdout).toContain(join("host", "ledger", "0"));
    const { ledgers } = JSON.parse(run(project, ["--json", "audit", "verify"]).stdout) as {
      ledgers: { name: string }[];
    };
    expect(ledgers.map(({ name }) => name)).toEqual(NAMES);
  });

  it("audit verify fails when one ledger is damaged", () => {
    const dir = join(data, "ledgers", "replica-a");
    const segment = join(dir, readdirSync(dir).find((name) => name.endsWith(".ndjson")) as string);
    const before = readFileSync(segment, "utf8");
    writeFileSync(segment, before.replace("call-3", "call-4"));
    const { code, stdout } = audit("verify");
    writeFileSync(segment, before);
    expect(code).toBe(1);
    expect(stdout).toMatch(/replica-a\n✗/);
  });
});

describe("doctor", () => {
  it("doctor verifies every ledger, names each and the one that is damaged", () => {
    const dir = join(data, "ledgers", "2");
    const segment = join(dir, readdirSync(dir).find((name) => name.endsWith(".ndjson")) as string);
    const before = readFileSync(segment, "utf8");
    writeFileSync(segment, before.replace("call-2", "call-9"));
    const { stdout } = run(project, ["--json", "doctor", "gateway", "--port", "0"]);
    writeFileSync(segment, before);
    const findings = JSON.parse(stdout) as { check: string; ok: boolean }[];
    const checked = findings.filter(({ check }) => check.startsWith("ledger "));
    expect(checked.map(({ check }) => check)).toEqual(NAMES.map((name) => `ledger ${name}`));
    expect(checked.filter(({ ok }) => !ok).map(({ check }) => check)).toEqual(["ledger ledgers/2"]);
  });
});
