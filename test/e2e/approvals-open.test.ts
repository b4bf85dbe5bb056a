// A waiting call is visible to the operator at once, and one command opens the page that answers it.

import { spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Client, connect } from "../../src/mcp/client/index.js";
import { openBrowser } from "./browser.js";
import { main } from "./first-hour.js";
import { type Serving, serve } from "./serving.js";

async function until<T>(find: () => T | undefined): Promise<T> {
  for (let i = 0; i < 600; i++) {
    const found = find();
    if (found !== undefined) return found;
    await sleep(50);
  }
  throw new Error("what was waited for did not come within 30 s");
}

describe("approvals open", { timeout: 120_000 }, () => {
  let gateway: Serving;
  let client: Client;
  const temporary: string[] = [];
  beforeAll(async () => {
    gateway = await serve(["--challenge-wait", "0.1"]);
    client = await connect(gateway.url);
  }, 60_000);
  afterAll(async () => {
    await client?.close();
    await gateway?.stop();
    for (const dir of temporary) rmSync(dir, { recursive: true, force: true });
  });

  const challenge = async (title: string): Promise<{ id: string; text: string }> => {
    const text = JSON.stringify(await client.callTool("notes.delete", { title }));
    return { id: /ch_[A-Za-z0-9_-]{8,}/.exec(text)?.[0] as string, text };
  };
  const open = (args: string[], env: Record<string, string> = {}): { url: string; opened: boolean } => {
    const ran = spawnSync(process.execPath, [main, "--json", "--dir", gateway.dir, "approvals", "open", ...args], {
      encoding: "utf8",
      env: { PATH: process.env.PATH ?? "", HOME: gateway.dir, ...env },
    });
    expect(ran.stderr).toBe("");
    return JSON.parse(ran.stdout);
  };
  const redeem = (code: string, admin = gateway.admin): Promise<Response> =>
    fetch(`${admin}/v1/sign-in`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ code }),
    });

  it("a waiting call is logged at once, with the tool, the caller, the link and the command", async () => {
    const { id, text } = await challenge("seen at once");
    const line = gateway
      .stderr()
      .split("\n")
      .find((each) => each.includes(id)) as string;
    expect(JSON.parse(line).fields).toMatchObject({
      challenge: id,
      tool: "notes.delete",
      app: "local",
      url: `${gateway.admin}/approve/${id}`,
      command: `portcullis approve ${id}`,
    });
    // The agent gets the same link.
    expect(text).toContain(`"approval_url":"${gateway.admin}/approve/${id}"`);
  });

  it("a gateway writes one readable line to the operator's terminal when a call waits [U7]", async ({ skip }) => {
    if (spawnSync("script", ["--version"]).status !== 0) return skip("script is not installed");
    const dir = mkdtempSync(join(tmpdir(), "portcullis-terminal-"));
    temporary.push(dir);
    const command = `exec '${process.execPath}' '${main}' --dir '${dir}' serve --port 0 --admin-port 0 --challenge-wait 0.1`;
    const terminal = spawn("script", ["-qec", command, "/dev/null"], { stdio: ["pipe", "pipe", "ignore"] });
    const ended = new Promise((resolve) => terminal.once("exit", resolve));
    let text = "";
    terminal.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
    try {
      const url = await until(() => /MCP\s+(http:\S+)/.exec(text)?.[1]);
      const caller = await connect(url);
      await caller.callTool("notes.delete", { title: "in the terminal" });
      await caller.close();
      const line = await until(() => /notes\.delete of local\/[^\n]*\n/.exec(text)?.[0]);
      const id = /ch_[A-Za-z0-9_-]+/.exec(line)?.[0];
      expect(line).toMatch(/http:\/\/127\.0\.0\.1:\d+\/approve\/ch_/);
      expect(line).toContain(`portcullis approve ${id}`);
      expect(line).toContain(`portcullis approvals open ${id}`);
    } finally {
      terminal.stdin.write("\u0003");
      await ended;
    }
  });

  it("approvals open prints a link that works once where no browser can be opened [U7]", async () => {
    const { url, opened } = open([]);
    expect(opened).toBe(false);
    const code = new URL(url).hash.slice(1);
    expect(url).toBe(`${gateway.admin}/approvals#${code}`);
    const answer = await redeem(code);
    expect(answer.status).toBe(200);
    const cookie = answer.headers.get("set-cookie") as string;
    expect(cookie).toMatch(/; Path=\/v1\/; HttpOnly; SameSite=Strict; Max-Age=43200$/);
    const { page_key: pageKey } = (await answer.json()) as { page_key: string };
    const session = { cookie: cookie.split(";")[0] as string, "portcullis-page-key": pageKey };
    const list = (headers: Record<string, string>, path = "/v1/approvals"): Promise<number> =>
      fetch(`${gateway.admin}${path}`, { headers }).then(({ status }) => status);
    expect(await list(session)).toBe(200);
    // The cookie alone, as a server on another port receives it, is not enough; nor is a session good for what is not the console's.
    expect(await list({ cookie: session.cookie })).toBe(401);
    expect(await list({ "portcullis-page-key": pageKey })).toBe(401);
    expect(await list(session, "/v1/policy")).toBe(401);
    expect(await list({ ...session, "sec-fetch-site": "same-site" })).toBe(403);
    const again = await redeem(code);
    expect(again.status).toBe(401);
    expect(await again.text()).toContain("portcullis console");
  });

  it("the admin port refuses a changed link, and one of another admin port on the same data directory", async () => {
    const code = new URL(open([]).url).hash.slice(1);
    expect((await redeem(code.replace(/^\d/, "9"))).status).toBe(401);
    const other = await serve([], { dir: gateway.dir });
    try {
      expect((await redeem(code, other.admin)).status).toBe(401);
      expect((await redeem(code)).status).toBe(200);
    } finally {
      await other.stop();
    }
  });

  it("approvals open does not put the link on the command line of the browser", async () => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-browser-"));
    temporary.push(dir);
    const program = join(dir, "browser");
    writeFileSync(program, `#!/bin/sh\nprintf '%s' "$1" > '${dir}/drafted' && mv '${dir}/drafted' '${dir}/opened'\n`);
    chmodSync(program, 0o755);
    const { url, opened } = open([], { BROWSER: program });
    expect(opened).toBe(true);
    const seen = await until(() => {
      try {
        return readFileSync(join(dir, "opened"), "utf8");
      } catch {
        return undefined;
      }
    });
    expect(seen).toMatch(/^file:\/\/.*\/admin\/sign-in\.html$/);
    const file = fileURLToPath(seen);
    expect(readFileSync(file, "utf8")).toContain(url);
    if (process.platform !== "win32") expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it("approvals open signs the browser in: the list, one call and its approval without a typed credential [U7]", async ({
    skip,
  }) => {
    const browser: Browser | string = await openBrowser();
    if (typeof browser === "string") return skip(browser);
    try {
      const { id } = await challenge("demo/by-link");
      open([], { BROWSER: "/bin/true" });
      const page = await browser.newPage();
      await page.goto(`file://${join(gateway.dir, "admin", "sign-in.html")}`);
      await page.waitForSelector(`a[href="/console/approvals/${id}"]`);
      // Where there is room, the oldest request is shown beside the list.
      expect(new URL(page.url()).pathname).toMatch(/^\/console\/approvals/);
      await page.click(`a[href="/console/approvals/${id}"]`);
      await page.getByRole("button", { name: /Approve once/ }).click();
      await page
        .getByText(/^Approved\./)
        .first()
        .waitFor();
    } finally {
      await browser.close();
    }
  });
});
