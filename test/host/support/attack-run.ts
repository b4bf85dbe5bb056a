// Runs one case: fixture, setup, request, and a look at everything it must not have touched.

import { createHash } from "node:crypto";
import {
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  executeCmdRun,
  executeFsRead,
  executeFsWrite,
  type HostOutcome,
  loadYamlPolicy,
  type Policy,
  Sandbox,
} from "../../../src/host/index.js";
import type { Without } from "../../../src/host/sandbox/confinement.js";
import { missingPrograms } from "../../setup/programs.js";
import { type Attack, CANARY, carryOut, copyTree, fill, namesFor, readAttacks, type Undo } from "./attack-setup.js";
import { canMountFuse, ownCommandLines } from "./machine.js";

const attacks = readAttacks();
const template = mkdtempSync(join(tmpdir(), "attack-template-"));
const REPEATS = Number(process.env.ATTACK_REPEATS ?? 500);

/** Commands of the fixture's policy whose program is not on this machine: they are left out of the policy. */
const absent = new Map(
  (attacks.policy.commands as readonly { id: string; exec: string }[]).flatMap(({ id, exec }) => {
    const missing = missingPrograms(basename(exec));
    return missing === undefined ? [] : [[id, missing] as const];
  }),
);
/** The fixture contains repositories, so without git none of it can be set up. */
const noFixture = missingPrograms("git");

function missingNeeds(attack: Attack): string | undefined {
  const { commandId } = (attack.request.arguments ?? {}) as { commandId?: unknown };
  if (typeof commandId === "string" && absent.has(commandId)) return absent.get(commandId);
  for (const need of attack.needs ?? []) {
    if (need === "root" && process.getuid?.() !== 0) return "root";
    if (need === "fuse" && !canMountFuse()) return "a working bindfs (apt-get install bindfs) and /dev/fuse";
    if (need === "gcc" && !existsSync("/usr/bin/gcc")) return "gcc";
    // `rg>=14`: the case asks for an option that older versions lack; it must be denied all the same.
  }
  return undefined;
}

/** Names, kinds, modes and contents below a directory. */
function fingerprint(directory: string): string {
  const lines = readdirSync(directory, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const path = join(directory, name);
      const stats = lstatSync(path);
      const content = stats.isFile()
        ? createHash("sha256").update(readFileSync(path)).digest("hex")
        : stats.isSymbolicLink()
          ? readlinkSync(path)
          : "";
      return `${name} ${stats.mode} ${content}`;
    });
  return lines.join("\n");
}

interface Reply {
  readonly outcome: "allow" | "deny" | "timeout" | "truncated";
  readonly text: string;
  readonly exitCode: number | null | undefined;
}

async function call(policy: Policy, sandbox: Sandbox, tool: string, args: unknown): Promise<Reply> {
  const run = { "fs.read": executeFsRead, "fs.write": executeFsWrite, "cmd.run": executeCmdRun }[tool];
  if (run === undefined) throw new Error(`no tool ${tool}`);
  const outcome: HostOutcome<object> = await run(policy, args, { sandbox });
  const text = JSON.stringify(outcome);
  if (!outcome.ok)
    return { outcome: outcome.denial.code === "TIMEOUT" ? "timeout" : "deny", text, exitCode: undefined };
  const result = outcome.result as { exitCode?: number | null; truncated?: boolean };
  const failed = result.exitCode !== undefined && result.exitCode !== 0;
  const kind = result.truncated === true ? "truncated" : failed ? "deny" : "allow";
  return { outcome: kind, text, exitCode: result.exitCode };
}

/** A test for each case; one whose needs this machine does not meet says so in its name. */
export function testCases(name: string, cases: readonly Attack[], without: Without = {}): void {
  describe.skipIf(noFixture !== undefined)(noFixture === undefined ? name : `${name} [${noFixture}]`, () => {
    beforeAll(async () => {
      for (const op of fill([...attacks.fixture], namesFor(template))) await carryOut(op);
    });
    // What needs no setup and must have no effect can share a world; it is looked at after each case.
    let common: World | undefined;
    afterAll(async () => {
      await common?.close();
      rmSync(template, { recursive: true, force: true });
    });
    for (const attack of cases) {
      const missing = missingNeeds(attack);
      const title = `${attack.id} ${attack.category}: ${attack.title}`;
      if (missing !== undefined) test.skip(`${title} [needs ${missing}]`);
      else if (attack.setup.length === 0 && attack.expected === "deny") {
        test(title, () => runCase(attack, (common ??= makeWorld(without, true))));
      } else {
        test(title, async () => {
          const world = makeWorld(without, attack.request.tool === "cmd.run");
          await runCase(attack, world).finally(() => world.close());
        });
      }
    }
  });
}

interface World {
  readonly names: Record<string, string>;
  readonly sandbox: Sandbox;
  /** Loaded after the case's own setup, as an operator would. */
  readonly policy: () => Policy;
  readonly close: () => Promise<void>;
}

function makeWorld(without: Without, withRepositories: boolean): World {
  const base = mkdtempSync(join(tmpdir(), "attack-"));
  const names = namesFor(base);
  const sandbox = new Sandbox(without);
  copyTree(template, base, withRepositories);
  let policy: Policy | undefined;
  return {
    names,
    sandbox,
    policy: () => (policy ??= readPolicy(join(base, "policy.yaml"), names)),
    async close() {
      await sandbox.close();
      rmSync(base, { recursive: true, force: true });
    },
  };
}

function readPolicy(file: string, names: Record<string, string>): Policy {
  const policy = fill(attacks.policy, names) as { commands: readonly { id: string }[] };
  const commands = policy.commands.filter(({ id }) => !absent.has(id));
  writeFileSync(file, JSON.stringify({ version: 1, ...policy, commands }));
  const loaded = loadYamlPolicy(file);
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  return loaded.policy;
}

async function runCase(attack: Attack, { names, sandbox, policy }: World): Promise<void> {
  const { OUT = "", ROOT = "" } = names;
  const undo: Undo[] = [];
  try {
    for (const op of fill([...attack.setup], names)) {
      const back = await carryOut(op);
      if (back !== undefined) undo.unshift(back);
    }
    const loaded = policy();
    const before = fingerprint(OUT);
    const replies = await send(attack, names, loaded, sandbox);
    for (const reply of replies) check(attack, reply, names);
    if (attack.expected === "deny") {
      expect(existsSync(join(OUT, "pwned")), "a file appeared outside").toBe(false);
      expect(fingerprint(OUT), "something outside changed").toBe(before);
    }
    if (attack.oracle?.noProcess !== undefined) {
      const pattern = new RegExp(attack.oracle.noProcess);
      expect(ownCommandLines().filter((line) => pattern.test(line))).toEqual([]);
    }
    checkFiles(attack, names);
    expect(lstatSync(ROOT).isDirectory()).toBe(true);
  } finally {
    for (const back of undo) await back();
  }
}

async function send(attack: Attack, names: Record<string, string>, policy: Policy, sandbox: Sandbox): Promise<Reply[]> {
  const { tool } = attack.request;
  if (attack.parallel !== undefined) {
    const args = fill(attack.request.arguments, names);
    const calls = Array.from({ length: attack.parallel }, () => call(policy, sandbox, tool, args));
    const seen = watchProcesses(attack.check?.processPattern);
    const replies = await Promise.all(calls);
    expect(seen.stop()).toBeLessThanOrEqual(attack.check?.maxConcurrent ?? 1);
    return replies;
  }
  const replies: Reply[] = [];
  const times = attack.repeat === undefined ? 1 : Math.min(attack.repeat, REPEATS);
  for (let i = 0; i < times; i++) {
    replies.push(await call(policy, sandbox, tool, fill(attack.request.arguments, { ...names, I: String(i) })));
  }
  return replies;
}

function watchProcesses(pattern: string | undefined): { stop(): number } {
  let most = 0;
  const regex = new RegExp(pattern ?? "$^");
  const timer = setInterval(() => {
    most = Math.max(most, ownCommandLines().filter((line) => regex.test(line)).length);
  }, 20);
  return {
    stop() {
      clearInterval(timer);
      return most;
    },
  };
}

function check(attack: Attack, reply: Reply, names: Record<string, string>): void {
  if (attack.expected === "allow") {
    // A search without a match exits 1 and is a normal result.
    const wanted = attack.check?.exitCode;
    if (wanted === undefined) expect(reply.outcome, reply.text).toBe("allow");
    else expect(reply.exitCode, reply.text).toBe(wanted);
    if (attack.check?.contains !== undefined) expect(reply.text).toContain(attack.check.contains);
    return;
  }
  expect(attack.accept ?? ["deny"], reply.text).toContain(reply.outcome);
  const forbidden = [CANARY, ...(attack.oracle?.forbidOutput ?? [])];
  const asked = JSON.stringify(fill(attack.request.arguments, names));
  for (const text of forbidden) {
    // A denial may repeat what the caller wrote, never what lies behind it.
    if (!asked.includes(text)) expect(reply.text).not.toContain(text);
  }
  if (attack.check?.maxResponseBytes !== undefined)
    expect(reply.text.length).toBeLessThanOrEqual(attack.check.maxResponseBytes);
}

function checkFiles(attack: Attack, names: Record<string, string>): void {
  const { file, fileContent, noLeftovers, noSetuid } = fill(attack.check ?? {}, names);
  if (file !== undefined) expect(readFileSync(file, "utf8")).toBe(fileContent);
  if (noLeftovers !== undefined)
    expect(readdirSync(noLeftovers).filter((name) => name.includes("portcullis"))).toEqual([]);
  if (noSetuid !== undefined && existsSync(noSetuid)) expect(statSync(noSetuid).mode & 0o7000).toBe(0);
}
