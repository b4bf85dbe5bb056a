// Three replicas behind a balancer, under a mixed load, while one fault after the other happens to them, their disks,
// their clocks and their store. Each fault is followed by the same checks; the records of all ledgers are checked in the end.

import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createKey } from "../../src/auth/index.js";
import { read, verify } from "../../src/ledger/index.js";
import { contentId } from "../../src/policy/index.js";
import { type Cut, type FaultyLine, faultyLine } from "../../src/storage/fixtures/faulty-line.js";
import { openStorage, type Storage } from "../../src/storage/index.js";
import { FAKETIME, missingPrograms } from "../setup/programs.js";
import { type Balancer, startBalancer } from "./balancer.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Replica, type Replicas, startReplicas } from "./replicas.js";
import { childrenOf, slack } from "./serving.js";

export const FAULTS = [
  "kill",
  "kill worker",
  "stop",
  "store swallows",
  "store refuses",
  "store closes",
  "slow disk",
  "full disk",
  "frozen disk",
  "clock forward",
  "clock back",
  "store restored",
  "server swallows",
  "server refuses",
] as const;
export type FaultName = (typeof FAULTS)[number];

/** One of each is what `npm test` runs, another one with each seed. */
const KINDS: readonly (readonly FaultName[])[] = [
  ["kill", "stop"],
  ["store swallows", "store refuses", "store closes", "store restored"],
  ["slow disk", "full disk", "frozen disk"],
  ["clock forward", "clock back", "server swallows", "server refuses"],
];

const CALLERS = 4;
const CALL_MS = 20_000;
const PROBE_MS = 1_000;
const PROBE_TIMEOUT_MS = 900;
/** By requirement. */
const RECOVERY_MS = 5_000;
/** Checks that took longer are printed, to find what a recovery waits for. */
const SLOW_CHECK_MS = 1_000;
const TEXT = { type: "object", properties: { text: { type: "string" } } } as const;

const policyText = (isToggleOpen: boolean): string => `
permit (principal, action, resource);
@id("never") forbid (principal, action == Action::"never", resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"publish", resource) unless { context.approved };
${isToggleOpen ? "" : '@id("toggle") forbid (principal, action == Action::"toggle", resource);'}
`;

/** A file system of its own for one ledger: small enough to fill, and served by a process that can be stopped. */
interface Disk {
  readonly dir: string;
  fill(): void;
  empty(): void;
  freeze(): void;
  thaw(): void;
  close(): void;
}

/** Why disks cannot be made to fail here; undefined when they can. */
export function noDisks(): string | undefined {
  if (process.getuid?.() !== 0) return "skipped: mounting a file system needs root";
  if (!existsSync("/dev/fuse")) return "skipped: there is no /dev/fuse";
  return missingPrograms("bindfs", "fusermount3");
}

export const noClocks = (): string | undefined => missingPrograms(FAKETIME);

const TMPFS_BYTES = 4 * 1024 ** 3;
const FILL_TRIES = 50;

async function makeDisk(base: string, name: string): Promise<Disk> {
  const backing = join(base, `${name}-backing`);
  const dir = join(base, `${name}-disk`);
  mkdirSync(backing);
  mkdirSync(dir);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${TMPFS_BYTES}`, "tmpfs", backing]);
  const server: ChildProcess = spawn("bindfs", ["-f", backing, dir], { stdio: "ignore" });
  const isMounted = (): boolean => readFileSync("/proc/mounts", "utf8").includes(` ${dir} fuse`);
  await until(async () => isMounted(), `bindfs on ${dir}`);
  const resize = (bytes: number): void =>
    void execFileSync("mount", ["-o", `remount,size=${bytes}`, "tmpfs", backing], { stdio: "pipe" });
  return {
    dir,
    fill: () => {
      for (let left = FILL_TRIES; ; left--) {
        const { blocks, bfree, bsize } = statfsSync(backing);
        try {
          return resize((blocks - bfree) * bsize);
        } catch (error) {
          // The ledger has grown in between, and a file system does not shrink below what it holds.
          if (left === 0) throw error;
        }
      }
    },
    empty: () => resize(TMPFS_BYTES),
    freeze: () => void server.kill("SIGSTOP"),
    thaw: () => void server.kill("SIGCONT"),
    close: () => {
      server.kill("SIGCONT");
      spawnSync("fusermount3", ["-uz", dir]);
      server.kill("SIGKILL");
      spawnSync("umount", ["-l", backing]);
    },
  };
}

async function until(isSo: () => Promise<boolean>, what: string, withinMs = 120_000): Promise<number> {
  const began = performance.now();
  while (!(await isSo())) {
    if (performance.now() - began > withinMs) throw new Error(`not within ${withinMs} ms: ${what}`);
    await sleep(50);
  }
  return performance.now() - began;
}

/** A small generator, so that a seed repeats the order of faults and their victims. */
function random(seed: number): () => number {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 32;
  };
}

interface Answer {
  readonly isGood: boolean;
  readonly code: string;
}

let nextId = 0;
async function call(url: string, token: string, name: string, text: string): Promise<Answer> {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  try {
    const response = await fetch(url, {
      method: "POST",
      signal: AbortSignal.timeout(CALL_MS),
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": name,
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: nextId++,
        method: "tools/call",
        params: { name, arguments: { text }, _meta: meta },
      }),
    });
    const body = (await response.json()) as {
      result?: { isError?: boolean; structuredContent?: { code?: string } };
      error?: { data?: { code?: string } };
    };
    const isGood = body.result !== undefined && body.result.isError !== true;
    const code = body.error?.data?.code ?? body.result?.structuredContent?.code ?? String(response.status);
    return { isGood, code: isGood ? "ok" : code };
  } catch {
    // The connection broke or the time was over: nothing was acknowledged.
    return { isGood: false, code: "no answer" };
  }
}

/** What one probe of `/readyz` returned: its status, or 0 without an answer in time. */
interface Sample {
  readonly at: number;
  readonly replica: string;
  readonly status: number;
  readonly reasons: string;
}

/** A time in which replicas have to report that they are not ready, after a grace. */
interface Period {
  readonly name: FaultName;
  readonly replicas: ReadonlySet<string>;
  readonly expects: "not ready" | "ready" | "either";
  readonly from: number;
  readonly graceMs: number;
  to: number;
  /** When every check passed again. */
  recovered: number;
}

export interface ChaosReport {
  readonly seed: number;
  readonly faults: readonly string[];
  readonly skipped: readonly string[];
  readonly acknowledged: number;
  readonly approved: number;
  readonly denied: number;
  readonly problems: readonly string[];
  readonly recoveriesMs: Readonly<Record<string, number>>;
}

export interface ChaosOptions {
  readonly seed: number;
  /** Each fault once in a random order, then further ones until the time is over. */
  readonly seconds: number;
  /** All of them unless given. */
  readonly faults?: readonly FaultName[];
  readonly store?: "postgres" | "sqlite";
  /** Processes of each replica. */
  readonly workers?: number;
  /** Between two calls of a caller; 10 unless given. */
  readonly pauseMs?: number;
}

/** One fault of each kind. */
export function faultsOfEachKind(seed: number): readonly FaultName[] {
  const next = random(seed);
  return KINDS.map((names) => names[Math.floor(next() * names.length)] as FaultName);
}

/** Names from `CHAOS_FAULTS`, separated by commas; `otherwise` without it. */
export function chosenFaults(otherwise: readonly FaultName[] = FAULTS): readonly FaultName[] {
  const names = process.env.CHAOS_FAULTS?.split(",").map((name) => name.trim());
  const unknown = names?.find((name) => !FAULTS.includes(name as FaultName));
  if (unknown !== undefined) throw new Error(`CHAOS_FAULTS: ${unknown} is not one of ${FAULTS.join(", ")}`);
  return (names as FaultName[] | undefined) ?? otherwise;
}

export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const { seed, seconds, faults = chosenFaults(), store = "postgres", workers = 1, pauseMs = 10 } = options;
  const chaos = new Chaos(seed, store === "sqlite", workers, pauseMs);
  try {
    await chaos.start();
    return await chaos.run(seconds, faults);
  } finally {
    await chaos.close();
  }
}

class Chaos {
  readonly #seed: number;
  readonly #random: () => number;
  readonly #base = mkdtempSync(join(tmpdir(), "portcullis-chaos-"));
  readonly #reached = new Map<string, number>();
  readonly #acknowledged = new Set<string>();
  readonly #approvedCalls = new Set<string>();
  readonly #problems: string[] = [];
  readonly #samples: Sample[] = [];
  readonly #periods: Period[] = [];
  readonly #lines = new Map<string, FaultyLine>();
  readonly #disks = new Map<string, Disk>();
  readonly #recoveriesMs: Record<string, number> = {};
  #denied = 0;
  #isOver = false;
  #isToggleOpen = true;
  #token = "";
  #newestKey = "";
  #revokedKey = "";
  #replicas!: Replicas;
  #storage!: Storage;
  #downstream!: Counting;
  #serverLine!: FaultyLine;
  #balancer!: Balancer;
  readonly #began = performance.now();

  readonly #isSqlite: boolean;
  readonly #workers: number;

  /** Between two calls of a caller. */
  readonly #pauseMs: number;

  constructor(seed: number, isSqlite: boolean, workers: number, pauseMs: number) {
    this.#pauseMs = pauseMs;
    this.#isSqlite = isSqlite;
    this.#workers = workers;
    this.#seed = seed;
    this.#random = random(seed);
  }

  async start(): Promise<void> {
    this.#downstream = await counting("chaos", (server) => {
      const options = { noGuardrailRequired: true } as const;
      const note = (text = ""): void => void this.#reached.set(text, (this.#reached.get(text) ?? 0) + 1);
      for (const name of ["count", "never", "toggle"]) {
        server.tool(name, name, TEXT, ({ text }) => (note(`${name} ${text}`), "done"), options);
      }
      server.tool("publish", "needs an approval", TEXT, ({ text }) => (note(`publish ${text}`), "done"), options);
    });
    const names = ["r1", "r2", "r3"];
    if (noDisks() === undefined) for (const name of names) this.#disks.set(name, await makeDisk(this.#base, name));
    for (const name of names) writeFileSync(this.#clockFile(name), "+0");
    const more = this.#workers > 1 ? ["--workers", String(this.#workers)] : [];
    this.#replicas = await startReplicas(3, policyText(true), more, {
      isSqlite: this.#isSqlite,
      line: async (direct, name) => {
        if (this.#isSqlite) return direct;
        const line = await faultyLine(direct);
        this.#lines.set(name, line);
        return line.url;
      },
      ledgerDir: (name) => join(this.#disks.get(name)?.dir ?? this.#base, `ledger-${name}`),
      env: (name) => (noClocks() === undefined ? this.#clockEnvironment(name) : {}),
    });
    this.#storage = await openStorage(this.#replicas.storage, { waitMs: 30_000 });
    this.#serverLine = await faultyLine(this.#downstream.url);
    const document = { servers: { up: { url: this.#serverLine.url, noGuardrail: ["*"] } } };
    await this.#storage.applications.put("busy", document, "test");
    this.#token = await this.#newKey("worker");
    this.#newestKey = await this.#newKey("first");
    const revoked = await this.#newKey("revoked");
    await this.#revoke(revoked);
    this.#revokedKey = revoked;
    this.#balancer = await startBalancer(this.#replicas.all, 200);
    for (const replica of this.#replicas.all) {
      await until(async () => (await this.#callAt(replica, "count")).isGood, `a first call at ${replica.name}`);
    }
    await until(async () => this.#balancer.inUse.length === 3, "three replicas in use");
  }

  async run(seconds: number, chosen: readonly FaultName[]): Promise<ChaosReport> {
    const end = performance.now() + seconds * 1_000;
    const load = [
      ...Array.from({ length: CALLERS }, (_, id) => this.#callPermitted(id)),
      this.#callDenied(),
      this.#callApproved(),
      this.#probe(),
    ];
    const skipped: string[] = [];
    const possible = chosen.filter((name) => {
      const reason = this.#whyImpossible(name);
      if (reason !== undefined) skipped.push(`${name}: ${reason}`);
      return reason === undefined;
    });
    const order = possible.map((name) => ({ name, at: this.#random() })).sort((a, b) => a.at - b.at);
    const faults = order.map(({ name }) => name);
    const happened: FaultName[] = [];
    for (let i = 0; i < faults.length || performance.now() < end; i++) {
      const name = faults[i] ?? (possible[Math.floor(this.#random() * possible.length)] as FaultName);
      happened.push(name);
      await this.#change();
      await this.#happen(name);
    }
    this.#isOver = true;
    await Promise.all(load);
    this.#judgeSamples();
    await this.#judgeRecords();
    return {
      seed: this.#seed,
      faults: happened,
      skipped,
      acknowledged: this.#acknowledged.size,
      approved: this.#approvedCalls.size,
      denied: this.#denied,
      problems: this.#problems,
      recoveriesMs: this.#recoveriesMs,
    };
  }

  async close(): Promise<void> {
    this.#isOver = true;
    for (const disk of this.#disks.values()) disk.thaw();
    await this.#storage?.close().catch(() => {});
    await this.#balancer?.close();
    await this.#replicas?.close();
    for (const line of this.#lines.values()) await line.close().catch(() => {});
    await this.#serverLine?.close().catch(() => {});
    await this.#downstream?.close();
    for (const disk of this.#disks.values()) disk.close();
    rmSync(this.#base, { recursive: true, force: true });
  }

  #whyImpossible(name: FaultName): string | undefined {
    if (name.endsWith("disk")) return noDisks();
    if (name.startsWith("clock")) return noClocks();
    if (name === "kill worker" && this.#workers === 1) return "there is one process";
    const isOfNetwork = name.startsWith("store") && name !== "store restored";
    return this.#isSqlite && isOfNetwork ? "SQLite has no connection" : undefined;
  }

  // ---- load --------------------------------------------------------------------------------------------------

  #callAt(replica: Replica, tool: string, token = this.#token): Promise<Answer> {
    return call(replica.url, token, tool, `check-${nextId++}`);
  }

  async #callPermitted(id: number): Promise<void> {
    for (let n = 0; !this.#isOver; n++) {
      const text = `${id}-${n}`;
      const { isGood } = await call(this.#balancer.url, this.#token, "count", text);
      if (isGood) this.#acknowledged.add(`count ${text}`);
      await sleep(isGood ? this.#pauseMs : 100);
    }
  }

  async #callDenied(): Promise<void> {
    for (let n = 0; !this.#isOver; n++) {
      const { isGood, code } = await call(this.#balancer.url, this.#token, "never", String(n));
      if (isGood) this.#problems.push(`denied call ${n} was answered with a result`);
      if (code === "POLICY_DENY") this.#denied++;
      await sleep(100);
    }
  }

  /** Opens a request, approves it at the admin port, and calls from all sides at once until one call is served. */
  async #callApproved(): Promise<void> {
    for (let n = 0; !this.#isOver; n++) {
      await sleep(200);
      const text = `approved-${n}`;
      if ((await call(this.#balancer.url, this.#token, "publish", text)).code !== "CHALLENGE") continue;
      if (!(await this.#answer(text, "approve"))) continue;
      const tries = this.#replicas.all.map((replica) => call(replica.url, this.#token, "publish", text));
      const served = (await Promise.all(tries)).filter(({ isGood }) => isGood).length;
      if (served > 1) this.#problems.push(`${text} was served ${served} times`);
      if (served === 1) this.#approvedCalls.add(`publish ${text}`);
      // The other calls opened the request again, and an agent may have only so many.
      await this.#answer(text, "deny");
    }
  }

  async #answer(text: string, answer: "approve" | "deny"): Promise<boolean> {
    const operator = readFileSync(join(this.#replicas.dir, "operator.token"), "utf8").trim();
    const headers = { authorization: `Bearer ${operator}`, "content-type": "application/json" };
    for (const { admin } of this.#replicas.all) {
      try {
        const signal = AbortSignal.timeout(5_000);
        const listed = await fetch(`${admin}/v1/approvals?state=pending`, { headers, signal });
        const { approvals = [] } = (await listed.json()) as { approvals?: { id: string; arguments_preview: string }[] };
        const mine = approvals.find((each) => each.arguments_preview.includes(`"${text}"`));
        if (!mine) continue;
        const body = JSON.stringify({ reason: "chaos" });
        const url = `${admin}/v1/approvals/${mine.id}/${answer}`;
        if ((await fetch(url, { method: "POST", headers, body, signal })).ok) return true;
      } catch {
        // The next replica is asked.
      }
    }
    return false;
  }

  /** Before each fault another key, another revoked key, and another policy; replicas that miss them follow later. */
  async #change(): Promise<void> {
    const key = await this.#newKey(`key-${nextId++}`);
    await this.#revoke(this.#newestKey);
    this.#revokedKey = this.#newestKey;
    this.#newestKey = key;
    this.#isToggleOpen = !this.#isToggleOpen;
    writeFileSync(join(this.#replicas.dir, "policy", "test.cedar"), policyText(this.#isToggleOpen));
    for (const { child } of this.#replicas.all) child.kill("SIGHUP");
  }

  async #newKey(name: string): Promise<string> {
    const request = { app: "busy", agent: name, name, permissions: ["invoke(*)"] };
    return (await createKey(this.#storage.keys, request, "test")).token;
  }

  async #revoke(token: string): Promise<void> {
    await this.#storage.keys.revoke(token.split("_").slice(0, 2).join("_"), "test");
  }

  // ---- faults ------------------------------------------------------------------------------------------------

  #clockFile(name: string): string {
    return join(this.#base, `${name}.clock`);
  }

  #clockEnvironment(name: string): NodeJS.ProcessEnv {
    return {
      LD_PRELOAD: FAKETIME,
      FAKETIME_TIMESTAMP_FILE: this.#clockFile(name),
      FAKETIME_CACHE_DURATION: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
      NO_FAKE_STAT: "1",
    };
  }

  async #happen(name: FaultName): Promise<void> {
    const victim = this.#replicas.all[Math.floor(this.#random() * 3)] as Replica;
    const all = this.#replicas.all;
    switch (name) {
      case "kill":
        return this.#during(name, [victim], "not ready", 1_000, async () => {
          await this.#replicas.kill(victim);
          await sleep(2_000);
          await this.#replicas.start(victim);
        });
      case "kill worker":
        return this.#during(name, [victim], "either", 0, async () => {
          const workers = (): number[] => childrenOf(victim.child.pid as number);
          // With port 0 a replica has other ports after its only worker has ended.
          await until(async () => workers().length === this.#workers, "a second worker");
          await sleep(500);
          workers()
            .slice(-1)
            .forEach((pid) => spawnSync("kill", ["-KILL", String(pid)]));
          await sleep(1_000);
        });
      case "stop":
        return this.#during(name, [victim], "not ready", 1_000, async () => {
          victim.child.kill("SIGSTOP");
          await sleep(4_000);
          victim.child.kill("SIGCONT");
        });
      case "store swallows":
        return this.#cut(name, "swallow", this.#random() < 0.5 ? [victim] : all);
      case "store refuses":
        return this.#cut(name, "refuse", this.#random() < 0.5 ? [victim] : all);
      case "store closes":
        return this.#cut(name, "close", this.#random() < 0.5 ? [victim] : all);
      case "slow disk":
        return this.#during(name, [victim], "either", 0, () => this.#slow(victim));
      case "full disk":
        return this.#during(name, [victim], "not ready", 4_000, async () => {
          this.#diskOf(victim).fill();
          await sleep(7_000);
          this.#diskOf(victim).empty();
        });
      case "frozen disk":
        return this.#during(name, [victim], "not ready", 7_000, async () => {
          this.#diskOf(victim).freeze();
          await sleep(10_000);
          this.#diskOf(victim).thaw();
        });
      case "clock forward":
      case "clock back":
        return this.#during(name, [victim], "ready", 0, async () => {
          writeFileSync(this.#clockFile(victim.name), name === "clock forward" ? "+86400" : "-86400");
          await sleep(4_000);
          writeFileSync(this.#clockFile(victim.name), "+0");
          await sleep(2_000);
        });
      case "store restored":
        return this.#restore();
      case "server swallows":
      case "server refuses":
        // Long enough for every circuit to be open with its longest pause.
        return this.#during(name, all, "ready", 0, async () => {
          await this.#serverLine.cut(name === "server swallows" ? "swallow" : "refuse");
          await sleep(12_000);
          await this.#serverLine.mend();
        });
    }
  }

  #cut(name: FaultName, how: Cut, victims: readonly Replica[]): Promise<void> {
    return this.#during(name, victims, "not ready", 4_500, async () => {
      for (const victim of victims) await this.#lineOf(victim).cut(how);
      await sleep(7_000);
      for (const victim of victims) await this.#lineOf(victim).mend();
    });
  }

  async #slow(victim: Replica): Promise<void> {
    for (let i = 0; i < 10; i++) {
      this.#diskOf(victim).freeze();
      await sleep(350);
      this.#diskOf(victim).thaw();
      await sleep(50);
    }
  }

  /** What was changed after the backup is lost, and replicas have to follow the store back. */
  async #restore(): Promise<void> {
    const revocable = await this.#newKey(`revocable-${nextId++}`);
    const approved = `before-backup-${nextId++}`;
    const publish = ({ url }: Replica): Promise<Answer> => call(url, this.#token, "publish", approved);
    await until(async () => {
      const { code } = await call(this.#balancer.url, this.#token, "publish", approved);
      return code === "CHALLENGE" && this.#answer(approved, "approve");
    }, "an approved request");
    const restore = await this.#replicas.backup();
    await this.#recovered();
    const lost = await this.#newKey(`lost-${nextId++}`);
    const revoked = revocable;
    await this.#revoke(revoked);
    for (const replica of this.#replicas.all) {
      await until(async () => (await this.#callAt(replica, "count", lost)).isGood, "the new key is known");
      await until(async () => !(await this.#callAt(replica, "count", revoked)).isGood, "the revocation is known");
    }
    await until(async () => (await publish(this.#replicas.all[0] as Replica)).isGood, "the approval is used");
    this.#approvedCalls.add(`publish ${approved}`);
    await this.#during("store restored", this.#replicas.all, "either", 0, restore, async () => {
      for (const replica of this.#replicas.all) {
        // The copy has the approval as not used; a second run is found in the end as well.
        if ((await publish(replica)).isGood) this.#problems.push(`${approved} was served again after the restore`);
        if ((await this.#callAt(replica, "count", lost)).code !== "UNAUTHENTICATED") return false;
        const { isGood, code } = await this.#callAt(replica, "count", revoked);
        if (isGood) this.#problems.push(`a key that was revoked is in force at ${replica.name} after the restore`);
        if (code !== "UNAUTHENTICATED") return false;
      }
      return true;
    });
  }

  #diskOf({ name }: Replica): Disk {
    return this.#disks.get(name) as Disk;
  }

  #lineOf({ name }: Replica): FaultyLine {
    return this.#lines.get(name) as FaultyLine;
  }

  async #during(
    name: FaultName,
    replicas: readonly Replica[],
    expects: Period["expects"],
    graceMs: number,
    fault: () => Promise<void>,
    alsoRecovered: () => Promise<boolean> = async () => true,
  ): Promise<void> {
    const names = new Set(replicas.map((replica) => replica.name));
    const from = performance.now();
    const period: Period = { name, replicas: names, expects, from, graceMs, to: Infinity, recovered: Infinity };
    this.#periods.push(period);
    await fault();
    period.to = performance.now();
    await this.#recovered(alsoRecovered);
    period.recovered = performance.now();
    const tookMs = Math.round(period.recovered - period.to);
    this.#recoveriesMs[name] = Math.max(this.#recoveriesMs[name] ?? 0, tookMs);
    const at = Math.round((from - this.#began) / 1_000);
    console.log(`${at} s: ${name} at ${[...names].join(", ")}, recovered in ${tookMs} ms`);
    if (tookMs > RECOVERY_MS * slack()) this.#problems.push(`${name}: recovered in ${tookMs} ms`);
  }

  /** Every replica is ready, serves, denies, and has the newest keys and the newest policy in force. */
  async #recovered(also: () => Promise<boolean> = async () => true): Promise<void> {
    let missing = "";
    const waits = new Map<string, number>();
    let looked = performance.now();
    const isSo = async (): Promise<boolean> => {
      for (const replica of this.#replicas.all) {
        const checks: [string, () => Promise<boolean>][] = [
          ["ready", async () => (await probe(replica)).status === 200],
          ["serves", async () => (await this.#callAt(replica, "count")).isGood],
          ["denies", async () => (await this.#callAt(replica, "never")).code === "POLICY_DENY"],
          ["newest key", async () => (await this.#callAt(replica, "count", this.#newestKey)).isGood],
          ["revoked key", async () => !(await this.#callAt(replica, "count", this.#revokedKey)).isGood],
          ["policy", async () => (await this.#callAt(replica, "toggle")).isGood === this.#isToggleOpen],
        ];
        for (const [what, check] of checks) {
          missing = `${what} at ${replica.name}`;
          const isGood = await check();
          waits.set(missing, (waits.get(missing) ?? 0) + performance.now() - looked);
          looked = performance.now();
          if (!isGood) return false;
        }
      }
      missing = "what the fault is about";
      return also();
    };
    await until(isSo, "recovery").catch(() => {
      const reasons = this.#replicas.all.map(
        ({ name }) => this.#samples.findLast(({ replica }) => replica === name)?.reasons,
      );
      throw new Error(`no recovery (seed ${this.#seed}): ${missing}; ${reasons.join(" ")}`);
    });
    for (const [what, ms] of waits) if (ms > SLOW_CHECK_MS) console.log(`waited ${Math.round(ms)} ms for "${what}"`);
  }

  // ---- judgement ---------------------------------------------------------------------------------------------

  async #probe(): Promise<void> {
    while (!this.#isOver) {
      const began = performance.now();
      await Promise.all(
        this.#replicas.all.map(async (replica) => {
          const { status, reasons } = await probe(replica);
          this.#samples.push({ at: began, replica: replica.name, status, reasons });
        }),
      );
      await sleep(Math.max(0, PROBE_MS - (performance.now() - began)));
    }
  }

  /** `/readyz` told the truth: not ready while a fault concerned the replica, ready while none did. */
  #judgeSamples(): void {
    for (const { at, replica, status, reasons } of this.#samples) {
      const fault = this.#periods.find(({ from, recovered }) => at >= from - PROBE_MS && at <= recovered);
      const when = `${Math.round((at - this.#began) / 1_000)} s, ${replica}`;
      const concerns = fault?.replicas.has(replica) === true;
      if (fault && concerns && fault.expects === "not ready") {
        const isCertain = at > fault.from + fault.graceMs * slack() && at < fault.to - PROBE_MS;
        if (isCertain && status === 200) this.#problems.push(`${when}: ready during "${fault.name}"`);
      } else if (status === 503 && (!concerns || fault?.expects === "ready") && slack() === 1) {
        this.#problems.push(`${when}: not ready without a fault: ${reasons}`);
      }
    }
  }

  async #judgeRecords(): Promise<void> {
    for (const [text, times] of this.#reached) {
      if (text.startsWith("never ")) this.#problems.push(`denied call ${text} was executed`);
      if (times > 1) this.#problems.push(`${text} was executed ${times} times`);
    }
    const acknowledged = [...this.#acknowledged, ...this.#approvedCalls];
    for (const text of acknowledged) {
      if (this.#reached.get(text) !== 1) this.#problems.push(`${text} was acknowledged and not executed`);
    }
    // What was interrupted is settled at the next start.
    for (const replica of this.#replicas.all) await this.#replicas.kill(replica);
    for (const replica of this.#replicas.all) await this.#replicas.start(replica);
    for (const replica of this.#replicas.all) await this.#replicas.kill(replica);
    const decisions = new Map<string, number>();
    const outcomes = new Map<string, number>();
    const add = (counts: Map<string, number>, key: string): void => void counts.set(key, (counts.get(key) ?? 0) + 1);
    const places = Array.from({ length: this.#workers }, (_, i) => (this.#workers > 1 ? `worker-${i + 1}` : ""));
    const ledgers = this.#replicas.all.flatMap(({ ledgerDir }) => places.map((place) => join(ledgerDir, place)));
    for (const ledger of ledgers) {
      const { problems } = await verify(ledger);
      for (const problem of problems) this.#problems.push(`${ledger}: ${JSON.stringify(problem)}`);
      for await (const { record } of read(ledger)) {
        if (record.kind === "decision" && record.effect === "permit")
          add(decisions, `${record.tool} ${record.args_cid}`);
        if (record.kind === "outcome") add(outcomes, `${record.tool} ${record.args_cid}`);
      }
    }
    for (const text of this.#reached.keys()) {
      const [tool, ...rest] = text.split(" ");
      const key = `${tool} ${contentId(JSON.stringify({ text: rest.join(" ") }))}`;
      if (decisions.get(key) !== 1) this.#problems.push(`${text} has ${decisions.get(key) ?? 0} decisions on record`);
      if (outcomes.get(key) !== 1) this.#problems.push(`${text} has ${outcomes.get(key) ?? 0} outcomes on record`);
    }
  }
}

async function probe({ admin }: Replica): Promise<{ status: number; reasons: string }> {
  try {
    const answer = await fetch(`${admin}/readyz`, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
    return { status: answer.status, reasons: await answer.text() };
  } catch {
    return { status: 0, reasons: "" };
  }
}
