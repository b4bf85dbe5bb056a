// Does a version work? It is started as a client would start it, must say that it is that version, read a file that its
// policy allows and refuse one that it does not. All of it in a directory of its own: no policy and no ledger of anybody's.

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { entryOf, type Home } from "./home.js";

const STOP_MS = 3_000;
const MAX_COMPLAINT = 2_000;

interface Answer {
  readonly id?: number;
  readonly result?: { readonly serverInfo?: { readonly version?: string }; readonly data?: string };
  readonly error?: { readonly data?: { readonly code?: string } };
}

/** Undefined when it works, otherwise what went wrong. */
export async function whyUnhealthy(home: Home, version: string, timeoutMs: number): Promise<string | undefined> {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-health-")));
  try {
    const root = join(base, "root");
    const config = join(base, "policy.yaml");
    mkdirSync(root);
    writeFileSync(join(root, "hello.txt"), version);
    writeFileSync(config, `version: 1\nallowedRoots: [${JSON.stringify(root)}]\nsandbox: preferred\n`);
    // Through the shim where the platform can start it without a shell: as users start it.
    const [command, ...first] = process.platform === "win32" ? [process.execPath, entryOf(home, version)] : [home.shim];
    const args = [...first, "host", "--config", config, "--state", join(base, "state")];
    const child = spawn(command as string, args, { cwd: base, stdio: "pipe" });
    const why = await converse(child, version, root, config, timeoutMs);
    // One that did not answer is not waited for.
    await stop(child, why === undefined ? STOP_MS : 0);
    return why;
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
}

function converse(
  child: ChildProcessWithoutNullStreams,
  version: string,
  root: string,
  config: string,
  timeoutMs: number,
): Promise<string | undefined> {
  return new Promise((resolve) => {
    let complaint = "";
    child.stderr.on("data", (chunk: Buffer) => {
      if (complaint.length < MAX_COMPLAINT) complaint += chunk.toString("utf8");
    });
    const fail = (what: string): void =>
      resolve(complaint === "" ? what : `${what}: ${complaint.trim().slice(0, MAX_COMPLAINT)}`);
    const timer = setTimeout(() => fail(`no answer within ${timeoutMs} ms`), timeoutMs);
    child.once("error", (error) => fail(`cannot be started (${error.message})`));
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      fail(`ended with ${signal ?? code} before it had answered`);
    });
    child.stdin.on("error", () => {
      // The process ended; `close` reports it.
    });
    const answers = new Map<number, Answer>();
    createInterface({ input: child.stdout }).on("line", (line) => {
      const answer = parse(line);
      if (answer?.id === undefined) return fail(`printed ${JSON.stringify(line.slice(0, 200))} instead of an answer`);
      answers.set(answer.id, answer);
      if (answers.size === 3) resolve(judge(answers, version));
    });
    const client = { name: "portcullis-health", version };
    const ask = (id: number, method: string, params: object): void => {
      child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    };
    ask(1, "initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: client });
    ask(2, "fs.read", { path: join(root, "hello.txt") });
    ask(3, "fs.read", { path: config });
  });
}

function judge(answers: ReadonlyMap<number, Answer>, version: string): string | undefined {
  const reported = answers.get(1)?.result?.serverInfo?.version;
  if (reported !== version) return `reports version ${reported}`;
  if (answers.get(2)?.result?.data !== version) return "cannot read a file that its policy allows";
  if (answers.get(3)?.error?.data?.code !== "POLICY_DENY")
    return "does not refuse a file that its policy does not allow";
  return undefined;
}

function parse(line: string): Answer | undefined {
  try {
    return JSON.parse(line) as Answer;
  } catch {
    return undefined;
  }
}

async function stop(child: ChildProcessWithoutNullStreams, graceMs: number): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.stdin.end();
  const timer = setTimeout(() => child.kill("SIGKILL"), graceMs);
  await gone;
  clearTimeout(timer);
}
