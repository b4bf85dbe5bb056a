// The page on which a person answers, in a real browser.

import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Client, connect } from "../../src/mcp/client/index.js";
import { openBrowser } from "./browser.js";
import { root, type Serving, serve } from "./serving.js";

describe("the approval page", { timeout: 120_000 }, () => {
  let browser: Browser | string;
  let gateway: Serving;
  let client: Client;
  beforeAll(async () => {
    browser = await openBrowser();
    if (typeof browser === "string") return;
    gateway = await serve(["--challenge-wait", "0.1"]);
    client = await connect(gateway.url);
  }, 300_000);
  afterAll(async () => {
    await client?.close();
    await gateway?.stop();
    if (typeof browser !== "string") await browser?.close();
  });

  const challenge = async (title: string): Promise<string> => {
    const answer = await client.callTool("notes.delete", { title });
    return /ch_[A-Za-z0-9_-]{8,}/.exec(JSON.stringify(answer))?.[0] as string;
  };
  const open = async (id: string, options: object = {}): Promise<{ page: Page; broken: string[] }> => {
    const page = await (browser as Browser).newPage({ viewport: { width: 900, height: 900 }, ...options });
    const broken: string[] = [];
    page.on("pageerror", (error) => broken.push(error.message));
    // A style or script that the page's own rules refuse is said on the console.
    page.on("console", (message) => {
      if (message.type() === "error" && !message.text().includes("401")) broken.push(message.text());
    });
    await page.goto(`${gateway.admin}/approve/${id}`);
    return { page, broken };
  };
  const token = (): string => readFileSync(join(gateway.dir, "operator.token"), "utf8").trim();
  const give = async (page: Page, credential: string): Promise<void> => {
    await page.fill("#token", credential);
    await page.click("#credential button");
  };
  const picture = async (page: Page, name: string): Promise<void> => {
    const folder = join(root, ".test-results", "pictures");
    mkdirSync(folder, { recursive: true });
    await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
  };

  it("the approval page shows nothing to a wrong credential", async ({ skip }) => {
    if (typeof browser === "string") return skip(browser);
    const id = await challenge("secret plans");
    const { page, broken } = await open(id);
    expect(await page.content()).not.toContain("secret plans");
    await give(page, "not-the-token");
    await page.waitForSelector("#problem:not([hidden])");
    expect(await page.textContent("#problem")).toContain("missing or wrong");
    expect(await page.isVisible("#call")).toBe(false);
    expect(await page.content()).not.toContain("secret plans");
    await picture(page, "wrong-credential");
    expect(broken).toEqual([]);
    await page.close();
  });

  it("the approval page shows the full arguments, with what cannot be seen made visible, and a denial reaches the agent [U7]", async ({
    skip,
  }) => {
    if (typeof browser === "string") return skip(browser);
    const title = `<img src=x onerror=alert(1)> \u202egnp.exe ${"long ".repeat(300)}the end`;
    const id = await challenge(title);
    const { page, broken } = await open(id);
    await give(page, token());
    await page.waitForSelector("#call:not([hidden]), #problem:not([hidden])");
    expect(await page.textContent("#problem")).toBe("");
    expect(await page.isVisible("#credential")).toBe(false);
    const shown = (await page.textContent("#arguments")) as string;
    expect(shown).toContain("<img src=x onerror=alert(1)>");
    expect(shown).toContain("\\u202e");
    expect(shown).not.toContain("\u202e");
    expect(shown).toContain("the end");
    expect(await page.locator("#arguments img").count()).toBe(0);
    // All of it lies above the buttons; nothing waits unseen below the edge of a box.
    expect(
      await page.evaluate(
        "(({scrollHeight, clientHeight}) => scrollHeight <= clientHeight)(document.getElementById('arguments'))",
      ),
    ).toBe(true);
    expect(await page.textContent("#tool")).toContain("notes.delete");
    expect(await page.textContent("#rules")).toContain("delete-needs-approval");
    await picture(page, "waiting");
    await page.fill("#why", "not on a Monday");
    await page.click("#deny");
    await page.waitForSelector("#answer", { state: "hidden" });
    expect(await page.textContent("#state")).toContain("denied");
    await picture(page, "denied");
    expect(JSON.stringify(await client.callTool("notes.delete", { title }))).toContain("not on a Monday");
    expect(broken).toEqual([]);
    await page.close();
  });

  it("the approval page approves one call, also on a small dark screen by the keyboard [U7]", async ({ skip }) => {
    if (typeof browser === "string") return skip(browser);
    const id = await challenge("demo/old");
    const { page, broken } = await open(id, { viewport: { width: 360, height: 640 }, colorScheme: "dark" });
    expect(await page.evaluate("document.activeElement.id")).toBe("token");
    await page.keyboard.type(token());
    await page.keyboard.press("Enter");
    await page.waitForSelector("#call:not([hidden])");
    // Nothing is wider than the screen.
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    await picture(page, "small-and-dark");
    await page.click("#approve");
    await page.waitForSelector("#answer", { state: "hidden" });
    expect(await page.textContent("#state")).toContain("approved");
    await picture(page, "approved");
    expect(JSON.stringify(await client.callTool("notes.delete", { title: "demo/old" }))).not.toContain("approve");
    expect(broken).toEqual([]);
    await page.close();
  });
});
