// Two applications in one gateway process: one is attacked with, the other is measured.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { setPriority, tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, request } from "undici";
import { createKey } from "../../src/auth/index.js";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Serving, serve } from "./serving.js";

const SCRIPT = join(import.meta.dirname, "noisy-attacks.mjs");
const SERVER = join(import.meta.dirname, "noisy-server.mjs");
const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"pay", resource) unless { context.approved };`;
/** An attacker gives way: in service it is on another machine, and what counts is what the gateway makes of it. */
const GIVES_WAY = 15;

/** The names of all attacks. */
export const ATTACKS = JSON.parse(
  spawnSync(process.execPath, [SCRIPT, "{}"], { encoding: "utf8" }).stdout,
) as readonly string[];

export interface Measured {
  readonly calls: number;
  /** Answers other than 200, and failed connections. */
  readonly failures: readonly string[];
  readonly p99Ms: number;
  /** Of the time, the share in which the gateway could have run and had to wait for a core; 0 where it is not known. */
  readonly waitedShare: number;
}

export interface Neighbours {
  readonly serving: Serving;
  /** Calls of the quiet application, one after the other on two connections. */
  measure(seconds: number): Promise<Measured>;
  /** Answers by status. */
  attack(name: string, seconds: number, scale: number): Promise<Record<string, number>>;
  /** What the operator gets from the admin port. */
  adminStatus(): Promise<number>;
  /** The most memory the gateway process has had since the last attack began, in MiB; undefined where it is not known. */
  peakMiB(): number | undefined;
  close(): Promise<void>;
}

export async function openNeighbours(): Promise<Neighbours> {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-neighbours-"));
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), POLICY);
  const downstream: Counting = await counting("quiet");
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  const noisy = { command: process.execPath, args: [SERVER], noGuardrail: ["*"], pin: "off" as const };
  await storage.applications.put("quiet", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  await storage.applications.put("noisy", { servers: { up: noisy } }, "test");
  const permissions = ["invoke(*)", "read(*)", "list"];
  const keyOf = async (app: string): Promise<string> =>
    (await createKey(storage.keys, { app, agent: "one", name: app, permissions }, "test")).token;
  const quietKey = await keyOf("quiet");
  const noisyKey = await keyOf("noisy");
  await storage.close();
  const serving = await serve(["--ws-port", "0", "--challenge-wait", "0", "--log-level", "critical"], { dir });
  const websocket = serving.urls.find((url) => url.startsWith("ws:")) as string;
  const children = new Set<ChildProcess>();
  const dispatcher = new Agent({ connections: 2, pipelining: 1 });
  const token = readFileSync(join(dir, "operator.token"), "utf8").trim();

  const call = async (times: number[], failures: string[]): Promise<void> => {
    const started = performance.now();
    try {
      const answer = await request(new URL("/tools/read", serving.url), {
        method: "POST",
        dispatcher,
        headers: { authorization: `Bearer ${quietKey}`, "content-type": "application/json" },
        body: '{"text":"quiet"}',
      });
      const text = await answer.body.text();
      if (answer.statusCode !== 200) failures.push(`${answer.statusCode} ${text.slice(0, 200)}`);
    } catch (error) {
      failures.push(String((error as Error).message));
    }
    times.push(performance.now() - started);
  };

  return {
    serving,
    measure: async (seconds) => {
      const times: number[] = [];
      const failures: string[] = [];
      const started = performance.now();
      const waitedMs = waitedForCoreMs(serving.child.pid);
      const until = Date.now() + seconds * 1_000;
      const one = async (): Promise<void> => {
        while (Date.now() < until) await call(times, failures);
      };
      await Promise.all([one(), one()]);
      times.sort((a, b) => a - b);
      const waitedShare = (waitedForCoreMs(serving.child.pid) - waitedMs) / (performance.now() - started);
      return { calls: times.length, failures, p99Ms: times[Math.floor(times.length * 0.99)] ?? 0, waitedShare };
    },
    attack: (attack, seconds, scale) => {
      const { url, admin } = serving;
      forgetPeak(serving.child.pid);
      const settings = JSON.stringify({ attack, url, admin, websocket, key: noisyKey, seconds, scale });
      const child = spawn(process.execPath, [SCRIPT, settings], { stdio: ["ignore", "pipe", "inherit"] });
      children.add(child);
      if (child.pid !== undefined) setPriority(child.pid, GIVES_WAY);
      let said = "";
      child.stdout.on("data", (chunk: Buffer) => {
        said += chunk.toString("utf8");
      });
      return new Promise((resolve, reject) => {
        child.once("close", (code) => {
          children.delete(child);
          if (code === 0) resolve(JSON.parse(said) as Record<string, number>);
          else reject(new Error(`the attack ended with ${code}: ${said}`));
        });
      });
    },
    adminStatus: async () => {
      const headers = { authorization: `Bearer ${token}`, connection: "close" };
      const answer = await request(`${serving.admin}/v1/approvals`, { headers });
      await answer.body.dump();
      return answer.statusCode;
    },
    peakMiB: () => {
      if (process.platform !== "linux") return undefined;
      const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${serving.child.pid}/status`, "utf8")) ?? [];
      return Number(kib) / 1024;
    },
    close: async () => {
      for (const child of children) child.kill("SIGKILL");
      await dispatcher.close();
      await serving.stop();
      await downstream.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** What counts is the peak of each attack: `5` resets `VmHWM`. */
function forgetPeak(pid: number | undefined): void {
  if (process.platform === "linux") writeFileSync(`/proc/${pid}/clear_refs`, "5");
}

/** How long the main thread of a process has waited for a core, by the scheduler of Linux. */
function waitedForCoreMs(pid: number | undefined): number {
  if (process.platform !== "linux") return 0;
  const [, waitedNs] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ");
  return Number(waitedNs) / 1e6;
}
