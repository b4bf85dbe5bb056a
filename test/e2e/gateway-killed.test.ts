// A gateway that is killed has no chance to clean up. Its servers go with it all the same, and what they started goes
// then or at the next start.

import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterEach, describe, expect, it } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");
const SERVER = join(ROOT, "src/upstream/fixtures/server.mjs");
const SCRIPT = `
  const { createUpstream } = await import(${JSON.stringify(join(ROOT, "dist/upstream/index.js"))});
  const [server, mark, containment, leak] = process.argv.slice(1);
  const target = { transport: "stdio", command: process.execPath, args: [server, mark], containment };
  const upstream = createUpstream({ name: "s", target });
  const params = JSON.stringify({ name: leak, arguments: { mark } });
  try {
    await upstream.request({ method: "tools/call", params, timeoutMs: 30_000 });
    console.log("ready");
  } catch (error) {
    console.log(error.message);
  }
  if (leak === "count") await upstream.close();
`;

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill("SIGKILL");
});

async function gateway(
  mark: string,
  containment: string,
  leak: string,
): Promise<{ child: ChildProcess; said: string }> {
  const args = ["--input-type=module", "-e", SCRIPT, SERVER, mark, containment, leak];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  running.push(child);
  const said = await new Promise<string>((resolve) =>
    child.stdout?.once("data", (data) => resolve(String(data).trim())),
  );
  return { child, said };
}

/** Commands of processes that have this word on their command line, the gateway itself left out. */
function marked(mark: string): string[] {
  return readdirSync("/proc").flatMap((pid) => {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return words.includes(mark) && !words.includes("--input-type=module")
        ? [words.includes(SERVER) ? "server" : "daemon"]
        : [];
    } catch {
      return [];
    }
  });
}

describe("a gateway that is killed", () => {
  it.runIf(process.platform === "linux").each([
    ["pid-namespace", []],
    ["cgroup", ["daemon"]],
  ])("a gateway that is killed ends its servers: %s", async (containment, left) => {
    const mark = `leaked-${randomUUID()}-${containment}`;
    const { child, said } = await gateway(mark, containment, "leak");
    if (said !== "ready") return console.warn(`skipped: ${said}`);
    expect(marked(mark)).toEqual(expect.arrayContaining(["server", "daemon"]));
    child.kill("SIGKILL");
    await expect.poll(() => marked(mark)).toEqual(left);
    // The next gateway finds what the last one could not end.
    await gateway(`${mark}-next`, containment, "count");
    await expect.poll(() => marked(mark)).toEqual([]);
  });
});
