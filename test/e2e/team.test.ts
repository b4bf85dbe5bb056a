// A gateway with keys, as a team's people use it from the command line.

import { spawn, spawnSync } from "node:child_process";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { main } from "./first-hour.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const POLICY = `
@id("calls") permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"write", resource) unless { context.approved };
`;

describe("a gateway with keys", { timeout: 60_000 }, () => {
  let team: Deployment;
  let server: Counting;
  let key: string;
  beforeAll(async () => {
    server = await counting("team");
    team = await deploy(POLICY, {
      limits: { challengeWaitMs: 100 },
      adminUrl: "https://approve.example.com",
    });
    await team.put("blog", { servers: { notes: { url: server.url, noGuardrail: ["*"] } } });
    key = await team.key("blog", "writer");
  });
  afterAll(async () => {
    await team?.close();
    await server?.close();
  });
  // Not spawnSync: the gateway runs in this process and has to answer meanwhile.
  const run = (...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> =>
    new Promise((resolve) => {
      const child = spawn(process.execPath, [main, "--dir", team.dir, ...args], {
        env: { ...process.env, NO_COLOR: "1", WRITER_KEY: key },
        stdio: ["ignore", "pipe", "pipe"],
      });
      let stdout = "";
      let stderr = "";
      child.stdout.on("data", (chunk) => {
        stdout += String(chunk);
      });
      child.stderr.on("data", (chunk) => {
        stderr += String(chunk);
      });
      child.once("close", (code) => resolve({ code, stdout, stderr }));
    });

  it("a gateway with keys is called with the key in an environment variable, and not without it", async () => {
    const called = await run("call", "read", '{"text":"hi"}', "--url", team.url, "--key-env", "WRITER_KEY");
    expect(called).toMatchObject({ code: 0, stdout: expect.stringContaining("team says hi") });
    expect((await run("call", "read", "{}", "--url", team.url)).code).not.toBe(0);
    const unset = await run("ls", "--url", team.url, "--key-env", "NO_SUCH_KEY");
    expect(unset).toMatchObject({ code: 64, stderr: expect.stringContaining("NO_SUCH_KEY is not set") });
    expect(spawnSync("grep", ["-r", key, team.dir]).stdout.toString()).toBe("");
  });

  it("a gateway with keys shows its operator the state of the servers and their stderr, and no secret", async () => {
    const secret = "s3cr3t-of-the-broken-one";
    expect((await run("server", "show", "crew", "broken")).stderr).toContain("is not in use");
    await team.put("crew", {});
    await team.runtime.storage.secrets.put(
      "crew",
      "TOKEN",
      team.runtime.sealer.seal({ kind: "secret", app: "crew", name: "TOKEN" }, secret),
      "test",
    );
    const script = "console.error('no such setting: COLOUR, token', process.env.TOKEN); process.exit(3)";
    const env = { TOKEN: "${secret:TOKEN}" };
    await team.put("crew", {
      servers: { notes: { url: server.url }, broken: { command: process.execPath, args: ["-e", script], env } },
    });
    const crew = await team.client(await team.key("crew", "mate"));
    await crew.listTools();
    await crew.close();
    const scrape = async (): Promise<string> => (await request(`${team.runtime.admin?.url}/metrics`)).body.text();
    // Between two attempts a server has failed, and during one it is starting.
    const listed = await vi.waitFor(
      async () => {
        const found = await run("server", "ls", "crew");
        expect(found.stdout).toMatch(/crew +notes +ready +2 /);
        expect(found.stdout).toMatch(/crew +broken +failed/);
        return found;
      },
      { timeout: 60_000 },
    );
    const shown = await run("server", "show", "crew", "broken");
    expect(shown.stdout).toMatch(/problem .*; stderr ends: no such setting: COLOUR, token \[secret\]/);
    expect(shown.stdout).toMatch(/ended +exit code 3/);
    expect(listed.stdout).toContain("stderr ends: no such setting: COLOUR, token [secret]");
    expect(await run("server", "show", "broken")).toMatchObject({
      code: 64,
      stderr: expect.stringContaining("several applications"),
    });
    expect(JSON.stringify([listed, shown])).not.toContain(secret);
    await expect.poll(scrape, { timeout: 60_000 }).toMatch(/portcullis_servers\{portcullis_state="failed"\} 1/);
    expect(await scrape()).not.toContain("crew");
  });

  it("approvals watch reports a waiting call once, and finds the admin port by itself", async () => {
    const child = spawn(process.execPath, [main, "--json", "--dir", team.dir, "approvals", "watch"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let heard = "";
    child.stdout.on("data", (chunk) => {
      heard += String(chunk);
    });
    const ended = new Promise((resolve) => child.once("close", resolve));
    try {
      await run("call", "write", '{"text":"draft"}', "--url", team.url, "--key-env", "WRITER_KEY");
      for (let tries = 0; tries < 100 && heard === ""; tries++)
        await new Promise((resolve) => setTimeout(resolve, 100));
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      const lines = heard.trim().split("\n");
      expect(lines).toHaveLength(1);
      expect(JSON.parse(lines[0] as string)).toMatchObject({ tool: "write", app: "blog", agent: "writer" });
      expect(server.calls).not.toContain("write");
    } finally {
      child.kill("SIGTERM");
    }
    expect(await ended).toBe(0);
  });

  it("a gateway with keys serves its approval page under the configured host name, and under no other", async () => {
    const asked = async (host: string): Promise<number> => {
      const url = new URL("/approve/ch_any", team.runtime.admin?.url);
      return (await request(url, { headers: { host } })).statusCode;
    };
    // It leads to the console.
    expect(await asked("approve.example.com")).toBe(302);
    expect(await asked("rebound.example.com")).toBe(403);
  });
});
