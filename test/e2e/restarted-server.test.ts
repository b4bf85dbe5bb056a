// A server that was started again may be another program: nothing reaches it before its definitions were compared
// with those that were accepted.

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Client } from "../../src/mcp/client/index.js";
import type { ServerEntry } from "../../src/storage/index.js";
import { type Deployment, deploy } from "./gateway-world.js";

const POLICY = "permit (principal, action, resource);";
const SCRIPT = join(import.meta.dirname, "restarting-server.mjs");

describe("a stdio server that is started again", () => {
  let dir: string;
  let deployment: Deployment;
  let client: Client;

  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), "portcullis-restarted-"));
    deployment = await deploy(POLICY);
  });
  afterEach(async () => {
    await client?.close();
    await deployment.close();
    rmSync(dir, { recursive: true, force: true });
  });

  const serve = async (more: Partial<ServerEntry> = {}, listDelayMs = 300): Promise<void> => {
    const args = [SCRIPT, dir, String(listDelayMs)];
    const notes = { command: process.execPath, args, noGuardrail: ["*"], ...more };
    await deployment.put("notes", { servers: { notes } });
    client = await deployment.client(await deployment.key("notes", "ann"));
  };
  const call = async (name: string): Promise<string> => {
    try {
      const result = await client.callTool(name, {});
      return JSON.stringify(result);
    } catch (error) {
      return (error as Error).message;
    }
  };
  const reached = (): string[] =>
    existsSync(join(dir, "calls")) ? readFileSync(join(dir, "calls"), "utf8").trim().split("\n") : [];

  it("a stdio server that is started again gets no call for a tool whose definition has changed, however soon the call comes [H11]", async () => {
    await serve();
    expect(await call("send")).toContain("1 send");
    await call("exit");
    const answers = await Promise.all(Array.from({ length: 5 }, () => call("send")));
    for (const answer of answers)
      expect(answer).toMatch(/pending review|Unknown tool|not found|unavailable|was lost before it answered/i);
    expect(answers.join("\n")).not.toContain("2 send");
    await expect.poll(() => readFileSync(join(dir, "starts"), "utf8")).not.toBe("1");
    await expect.poll(() => call("steady")).toMatch(/\d+ steady/);
    await expect.poll(() => call("send")).toMatch(/unknown tool|not found/i);
    expect(reached().filter((line) => line !== "1 send" && line.endsWith(" send"))).toEqual([]);
  });

  it("a stdio server that is started again answers calls for tools that are as they were accepted, and its resources, after the check", async () => {
    await serve();
    expect(await call("steady")).toContain("1 steady");
    await call("exit");
    await expect.poll(() => call("steady")).toContain("2 steady");
  });

  it("a stdio server gets no call between its list_changed notification and the new list [H11]", async () => {
    await serve();
    expect(await call("send")).toContain("1 send");
    const [, answer] = await Promise.all([call("change"), call("change").then(() => call("send"))]);
    expect(answer).not.toContain("1 send");
    expect(reached().filter((line) => line.endsWith(" send"))).toEqual(["1 send"]);
  });

  it("a stdio server that is started again is checked in each of its instances [H11]", async () => {
    await serve({ instances: 3 });
    const answers = await Promise.all(Array.from({ length: 12 }, () => call("send")));
    expect(answers.some((answer) => answer.includes("1 send"))).toBe(true);
    expect(reached().filter((line) => line !== "1 send")).toEqual([]);
  });
});
