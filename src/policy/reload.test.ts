import { mkdtempSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { noPolicy } from "./cedar/load.js";
import { readPolicyFiles } from "./cedar/source.js";
import { PolicyInvalid, type ToolSummary } from "./cedar/types.js";
import { createGate, type Gate } from "./gate.js";
import { makeIntent, NOTHING_FORWARDED } from "./intent.js";
import {
  type PolicyRefusal,
  type PolicySwap,
  type PolicyWatcher,
  type WatchPolicyOptions,
  watchPolicy,
} from "./reload.js";
import type { CallTarget, PolicyInput } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "notes.add",
    server: "local",
    inputSchema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
  },
];
const PERMIT = 'permit (principal, action == Action::"notes.add", resource);\n';
const FORBID = 'forbid (principal, action == Action::"notes.add", resource);\n';
const BROKEN = "permit (principal, action, resource";

const open: (() => void)[] = [];
afterEach(() => {
  for (const close of open.splice(0).reverse()) close();
});

interface Scene {
  dir: string;
  file: string;
  gate: Gate;
  swaps: PolicySwap[];
  refusals: PolicyRefusal[];
  watcher: PolicyWatcher;
}

async function watching(text: string, options: Partial<WatchPolicyOptions> = {}): Promise<Scene> {
  const dir = mkdtempSync(join(tmpdir(), "policy-"));
  open.push(() => rmSync(dir, { recursive: true, force: true }));
  const file = join(dir, "a.cedar");
  writeFileSync(file, text);
  const gate = createGate({ policy: noPolicy });
  const swaps: PolicySwap[] = [];
  const refusals: PolicyRefusal[] = [];
  const watcher = await watchPolicy({
    paths: [dir],
    tools: () => TOOLS,
    gate,
    onSwap: (swap) => void swaps.push(swap),
    onRefused: (refusal) => refusals.push(refusal),
    debounceMs: 10,
    pollMs: 0,
    ...options,
  });
  open.push(() => watcher.close());
  return { dir, file, gate, swaps, refusals, watcher };
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 1_000; i++) {
    if (condition()) return;
    await pause(5);
  }
  throw new Error("it did not come to pass within 5 s");
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

const TARGET: CallTarget = {
  type: "Tool",
  name: "notes.add",
  action: "notes.add",
  binding: "local",
  server: "local",
  definitionHash: "d",
  tags: [],
  readOnly: false,
  builtin: false,
  noGuardrailRequired: true,
};

function propose(gate: Gate, n: number) {
  const principal = { app: "blog", agent: "writer", scope: [], via: "local" };
  const proposed: PolicyInput = {
    principal,
    method: "tools/call",
    target: TARGET,
    arguments: { n },
    transport: "memory",
  };
  const intent = makeIntent({
    principal,
    method: "tools/call",
    target: TARGET,
    arguments: { n },
    forwarded: NOTHING_FORWARDED,
  });
  return gate.decide(proposed, intent);
}

describe("a policy that changes", () => {
  it("a policy that changes is loaded at the start and reported as a swap from no policy", async () => {
    const { gate, swaps, file, watcher } = await watching(PERMIT);
    expect(swaps).toMatchObject([{ from: noPolicy.hash, to: gate.policy.hash, files: [file] }]);
    expect(watcher.files).toEqual([file]);
    expect((await propose(gate, 1)).effect).toBe("permit");
  });

  it("takes effect without anyone asking, and is reported once with both hashes", async () => {
    const { gate, swaps, file } = await watching(PERMIT);
    const before = gate.policy.hash;
    writeFileSync(file, FORBID);
    await until(() => gate.policy.hash !== before);
    expect(swaps).toHaveLength(2);
    expect(swaps[1]).toMatchObject({ from: before, to: gate.policy.hash });
    expect((await propose(gate, 1)).effect).toBe("deny");
  });

  it("a policy that changes is seen when the file was named, not its folder", async () => {
    const { dir, file } = await watching(PERMIT);
    const gate = createGate();
    const watcher = await watchPolicy({ paths: [file], tools: () => TOOLS, gate, debounceMs: 10, pollMs: 0 });
    open.push(() => watcher.close());
    const before = gate.policy;
    writeFileSync(join(dir, "new"), FORBID);
    renameSync(join(dir, "new"), file);
    await until(() => gate.policy !== before);
    expect(gate.policy.rules[0]?.effect).toBe("forbid");
  });

  it("a policy that changes is seen when a file is replaced by a rename, added or removed", async () => {
    const { dir, gate, file, swaps } = await watching(PERMIT);
    writeFileSync(join(dir, "a.cedar.new"), FORBID);
    renameSync(join(dir, "a.cedar.new"), file);
    await until(() => swaps.length === 2);
    writeFileSync(join(dir, "b.cedar"), PERMIT);
    await until(() => swaps.length === 3);
    expect(gate.policy.rules).toHaveLength(2);
    rmSync(file);
    await until(() => swaps.length === 4);
    expect(gate.policy.rules).toHaveLength(1);
  });

  it("a policy that changes is found by looking where nothing reports it: the folder holds a link, and what it leads to changes", async () => {
    const outsideDir = mkdtempSync(join(tmpdir(), "policy-"));
    open.push(() => rmSync(outsideDir, { recursive: true, force: true }));
    const { dir, gate, watcher, swaps } = await watching(PERMIT, { debounceMs: 5, pollMs: 20 });
    writeFileSync(join(outsideDir, "p.cedar"), PERMIT);
    symlinkSync(join(outsideDir, "p.cedar"), join(dir, "b.cedar"));
    await until(() => swaps.length === 2);
    expect(watcher.files).toHaveLength(2);
    await pause(50);
    writeFileSync(join(outsideDir, "p.cedar"), FORBID);
    await until(() => swaps.length === 3);
    expect(gate.policy.rules.map((rule) => rule.effect)).toEqual(["permit", "forbid"]);
  });

  it("does not count a touched file, or a change in comments alone, as a new policy", async () => {
    const { gate, swaps, refusals, file } = await watching(PERMIT);
    utimesSync(file, new Date(), new Date());
    await pause(60);
    expect(swaps).toHaveLength(1);
    writeFileSync(file, `// a comment\n\n${PERMIT}`);
    await until(() => gate.policy.rules[0]?.line === 3);
    expect(swaps).toHaveLength(1);
    expect(refusals).toHaveLength(0);
  });

  it("a policy that changes and is still being written is not taken for a policy, though its first half is a valid one", async () => {
    const { gate, swaps, refusals, file } = await watching(FORBID, { debounceMs: 60 });
    // The permit comes first and the forbid that limits it last: the half would allow what the whole denies.
    let text = PERMIT;
    for (let i = 0; i < 16; i++) {
      writeFileSync(file, text);
      text += "// and so on\n";
      await pause(25);
    }
    writeFileSync(file, `${text}@id("whole")\n${FORBID}`);
    await until(() => swaps.length === 2);
    expect(gate.policy.rules).toHaveLength(2);
    expect((await propose(gate, 1)).effect).toBe("deny");
    expect(refusals).toHaveLength(0);
  });

  it("again while the last change is put on record is seen too", async () => {
    let file = "";
    const { gate, file: path } = await watching(PERMIT, {
      onSwap: async ({ from }) => {
        if (from === noPolicy.hash || file === "") return;
        writeFileSync(file, `@id("third")\n${FORBID}`);
        file = "";
        await pause(30);
      },
    });
    file = path;
    writeFileSync(path, FORBID);
    await until(() => gate.policy.rules[0]?.id === "third");
  });
});

describe("a bad policy", () => {
  it("a bad policy at the start is thrown, and the gate stays as it was", async () => {
    await expect(watching(BROKEN)).rejects.toThrow(PolicyInvalid);
  });

  it("a bad policy is refused with its problems, the old one stays, and the same bad text is reported once", async () => {
    const { gate, swaps, refusals, file, watcher } = await watching(PERMIT, { pollMs: 15 });
    const before = gate.policy;
    writeFileSync(file, BROKEN);
    await until(() => refusals.length === 1);
    await pause(80);
    expect(refusals).toHaveLength(1);
    expect(refusals[0]?.kept).toBe(before.hash);
    expect(refusals[0]?.problems[0]).toMatchObject({ file, line: 1 });
    expect(gate.policy).toBe(before);
    expect(swaps).toHaveLength(1);
    expect((await propose(gate, 1)).effect).toBe("permit");
    expect(await watcher.reload()).toMatchObject({ outcome: "refused", kept: before.hash });
    writeFileSync(file, FORBID);
    await until(() => swaps.length === 2);
  });

  it.each([
    ["names a tool that is not there", 'permit (principal, action == Action::"notes.ad", resource);'],
    ["reads an argument that the tool does not have", `${PERMIT.slice(0, -2)} when { context.arguments.m == 1 };`],
  ])("a bad policy is one that %s", async (_what, text) => {
    const { gate, file, watcher } = await watching(PERMIT);
    const before = gate.policy;
    writeFileSync(file, text);
    expect((await watcher.reload()).outcome).toBe("refused");
    expect(gate.policy).toBe(before);
  });

  it("keeps the old policy when a file is missing, is not text, or is too large", async () => {
    const { dir, gate, file, watcher } = await watching(PERMIT);
    const before = gate.policy;
    rmSync(file);
    expect(await watcher.reload()).toMatchObject({
      outcome: "refused",
      problems: [{ help: "add a file whose name ends in .cedar" }],
    });
    writeFileSync(file, Buffer.from([0x70, 0xff, 0xfe]));
    expect(await watcher.reload()).toMatchObject({
      outcome: "refused",
      problems: [{ file, message: expect.stringContaining("not valid UTF-8") }],
    });
    writeFileSync(file, " ".repeat((16 << 20) + 1));
    expect((await watcher.reload()).outcome).toBe("refused");
    rmSync(dir, { recursive: true });
    expect((await watcher.reload()).outcome).toBe("refused");
    expect(gate.policy).toBe(before);
  });
});

describe("a policy that cannot be recorded", () => {
  it("applies where it is stricter, keeps what it would newly permit denied, and holds alone once recorded", async () => {
    let ledgerWorks = true;
    const recorded: PolicySwap[] = [];
    const { gate, file, watcher } = await watching(PERMIT, {
      debounceMs: 60_000,
      pollMs: 0,
      retries: { firstPauseMs: 5 },
      onSwap: async (swap) => {
        await pause(1);
        if (!ledgerWorks) throw new Error("disk full");
        recorded.push(swap);
      },
    });
    const before = gate.policy;
    ledgerWorks = false;
    writeFileSync(file, `@id("tighter")\n${FORBID}`);
    expect(await watcher.reload()).toMatchObject({ outcome: "pending", error: { message: "disk full" } });
    expect(watcher.pending).toMatchObject({ problem: "disk full" });
    expect((await propose(gate, 1)).effect).toBe("deny");
    const interim = gate.policy.hash;
    expect(interim).not.toBe(before.hash);
    ledgerWorks = true;
    // Neither the file nor the watcher is touched: the retry alone puts it in force.
    await until(() => watcher.pending === undefined);
    expect(recorded.at(-1)).toMatchObject({ from: before.hash, to: gate.policy.hash, interim });
    // The other way round: what only the new policy permits waits for the record.
    ledgerWorks = false;
    writeFileSync(file, PERMIT);
    expect((await watcher.reload()).outcome).toBe("pending");
    expect((await propose(gate, 2)).effect).toBe("deny");
    ledgerWorks = true;
    await until(() => watcher.pending === undefined);
    expect((await propose(gate, 3)).effect).toBe("permit");
  });

  it("a policy change is not reported as pending while it is being recorded for the first time", async () => {
    let begun: (() => void) | undefined;
    const { file, watcher } = await watching(PERMIT, {
      debounceMs: 60_000,
      onSwap: ({ from }) => (from === noPolicy.hash ? undefined : new Promise<void>((resolve) => (begun = resolve))),
    });
    writeFileSync(file, FORBID);
    const reload = watcher.reload();
    await until(() => begun !== undefined);
    expect(watcher.pending).toBeUndefined();
    begun?.();
    expect((await reload).outcome).toBe("swapped");
  });

  it("a policy that cannot be recorded is in force as the stricter of both while the ledger does not answer at all", async () => {
    let hangs = false;
    let answer = (): void => {};
    const { gate, file, watcher } = await watching(PERMIT, {
      retries: { waitMs: 20 },
      onSwap: () => (hangs ? new Promise<void>((resolve) => (answer = resolve)) : undefined),
    });
    hangs = true;
    writeFileSync(file, FORBID);
    expect((await watcher.reload()).outcome).toBe("pending");
    expect((await propose(gate, 1)).effect).toBe("deny");
    answer();
    await until(() => watcher.pending === undefined);
    expect((await propose(gate, 2)).effect).toBe("deny");
  });
});

describe("reload()", () => {
  it("reads at once, and several who ask together share an answer", async () => {
    const { gate, swaps, file, watcher } = await watching(PERMIT, { debounceMs: 60_000 });
    writeFileSync(file, FORBID);
    const answers = await Promise.all([watcher.reload(), watcher.reload(), watcher.reload()]);
    expect(answers.map((answer) => answer.outcome)).toEqual(["swapped", "swapped", "swapped"]);
    expect(swaps).toHaveLength(2);
    expect(await watcher.reload()).toEqual({ outcome: "unchanged", hash: gate.policy.hash });
  });

  it("checks the policy against the tools as they are now", async () => {
    const tools = [...TOOLS];
    const { file, watcher } = await watching(PERMIT, { tools: () => tools, debounceMs: 60_000 });
    writeFileSync(file, `${PERMIT}permit (principal, action == Action::"notes.list", resource);`);
    expect((await watcher.reload()).outcome).toBe("refused");
    tools.push({ ...(TOOLS[0] as ToolSummary), name: "notes.list" });
    expect((await watcher.reload()).outcome).toBe("swapped");
  });

  it("after close swaps nothing", async () => {
    const { gate, file, watcher } = await watching(PERMIT);
    const before = gate.policy;
    watcher.close();
    writeFileSync(file, FORBID);
    expect((await watcher.reload()).outcome).toBe("refused");
    expect(gate.policy).toBe(before);
  });
});

it("reads files in a fixed order and ignores editor backup files", async () => {
  const { dir } = await watching(PERMIT);
  writeFileSync(join(dir, "b.cedar"), "");
  writeFileSync(join(dir, ".#c.cedar"), BROKEN);
  writeFileSync(join(dir, "a.cedar~"), BROKEN);
  expect((await readPolicyFiles([dir])).map((source) => source.file)).toEqual([
    join(dir, "a.cedar"),
    join(dir, "b.cedar"),
  ]);
});

// Policies that permit and policies that forbid take turns, so that a call decided under a mix of two would show.
it("1,000 reloads while calls are decided: each call's policy hash is one that was live, and its answer is that policy's", async () => {
  const reloads = 1_000;
  const effectOf = new Map<string, string>();
  const failures: string[] = [];
  let expectation = "permit";
  const { gate, file, watcher } = await watching(PERMIT, {
    debounceMs: 3_600_000,
    onSwap: ({ to }) => {
      if ((effectOf.get(to) ?? expectation) !== expectation) failures.push(`${to} names two policies`);
      effectOf.set(to, expectation);
    },
  });
  gate.guardrails.register({
    id: "slow",
    agent: "*",
    tool: "*",
    callback: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return undefined;
    },
  });
  let calls = 0;
  let crossed = 0;
  let isOver = false;
  const decideCalls = async (): Promise<void> => {
    while (!isOver) {
      const liveAtStart = gate.policy.hash;
      const decision = await propose(gate, calls++);
      if (decision.policyHash !== liveAtStart) failures.push(`decided under ${decision.policyHash}`);
      if (decision.effect !== effectOf.get(decision.policyHash)) failures.push(`${decision.effect} by another policy`);
      if (gate.policy.hash !== liveAtStart) crossed++;
      decision.release();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const callers = Array.from({ length: 8 }, decideCalls);
  for (let i = 0; i < reloads; i++) {
    expectation = i % 2 === 0 ? "deny" : "permit";
    // Every second policy is new, so that the hashes do not just take turns.
    writeFileSync(file, expectation === "deny" ? `@id("r${i}")\n${FORBID}${PERMIT}` : PERMIT);
    expect((await watcher.reload()).outcome).toBe("swapped");
  }
  isOver = true;
  await Promise.all(callers);
  expect(failures).toEqual([]);
  expect(effectOf.size).toBe(501);
  expect(calls).toBeGreaterThan(reloads);
  // Calls that began under one policy and ended under the next are what this is about.
  expect(crossed).toBeGreaterThan(100);
});

describe("the age of a policy", () => {
  it("grows while its files cannot be read, and ends with the next read", async () => {
    const { dir, watcher } = await watching(PERMIT, { debounceMs: 5, pollMs: 20 });
    renameSync(dir, `${dir}-away`);
    try {
      await until(() => watcher.refusal !== undefined);
      await pause(500);
      expect(watcher.ageMs).toBeGreaterThan(400);
    } finally {
      renameSync(`${dir}-away`, dir);
    }
    await until(() => watcher.ageMs < 400 && watcher.refusal === undefined);
  });
});
