// The console in a real browser, against a real gateway with two applications: every screen, on a phone and on a desk, and
// approval requests that are answered by the keyboard.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openBrowser } from "../e2e/browser.js";
import { root } from "../e2e/serving.js";
import { openWorld, type World } from "./world.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** The screens that the console declares; a new one is opened here without being named. */
const SCREENS = [...readFileSync(join(root, "console/src/screens.ts"), "utf8").matchAll(/\bpath: "(\w+)"/g)].map(
  ([, path]) => path as string,
);
/** The narrowest phone, a usual one and a desk. */
const WIDTHS_PX = [320, 390, 1280];
const DESK_PX = 1280;
/** Markup, a bidirectional override and an address that runs code. */
const HOSTILE = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>\u202Egpj.exe javascript:window.ran=1`;

describe("the console in a browser", () => {
  let world: World;
  let browser: Browser | string;
  let page: Page;
  let hostile: string;
  const errors: string[] = [];

  beforeAll(async () => {
    browser = await openBrowser();
    if (typeof browser === "string") return;
    world = await openWorld(6, []);
    hostile = await world.ask(HOSTILE, HOSTILE);
    page = await browser.newPage({ viewport: { width: DESK_PX, height: 900 } });
    // A refusal by the content security policy is an error of the console too.
    page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
    page.on("pageerror", (error) => errors.push(error.message));
    await page.goto(`${world.admin}/console/`);
    await page.getByLabel("Operator token or approver key").fill(world.operatorToken);
    await page.keyboard.press("Enter");
    await page.waitForSelector("nav");
  });
  afterAll(async () => {
    if (typeof browser !== "string") await browser?.close();
    await world?.close();
  });
  beforeEach(({ skip }) => {
    if (typeof browser === "string") skip(browser);
    errors.length = 0;
  });

  const open = async (path: string): Promise<void> => {
    await page.goto(`${world.admin}/console/${path}`);
    await page.locator("main h1, main h2").first().waitFor();
    await expect.poll(() => page.locator(".loading").count()).toBe(0);
  };
  /** What reaches beyond the right edge of the page, where the page scrolls sideways. */
  const beyond = async (widthPx: number): Promise<string[]> => {
    await page.setViewportSize({ width: widthPx, height: 900 });
    return page.evaluate(`(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      if (scrollWidth <= clientWidth) return [];
      const wide = [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > clientWidth + 0.5);
      return [scrollWidth - clientWidth + " px", ...wide.slice(0, 12).map((each) => each.tagName + "." + each.className)];
    })()`);
  };
  const violations = async (): Promise<string[]> => {
    await page.evaluate(AXE);
    return page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
      violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => id + ": " + html)))`);
  };
  const get = async <T>(path: string): Promise<T> => {
    const answer = await fetch(world.admin + path, { headers: { authorization: `Bearer ${world.operatorToken}` } });
    return (await answer.json()) as T;
  };
  const newestDecision = async (): Promise<string> => {
    const { items } = await get<{ items: { id: string }[] }>("/v1/decisions?tool=notes.delete&limit=1");
    return encodeURIComponent((items[0] as { id: string }).id);
  };

  it("every screen of the console opens without an error, fits a phone and a desk, and axe-core finds nothing", async () => {
    const wrong: string[] = [];
    const items = [`approvals/${hostile}`, `decisions/${await newestDecision()}`, "applications/blog"];
    for (const path of [...SCREENS, ...items]) {
      await page.setViewportSize({ width: DESK_PX, height: 900 });
      await open(path);
      for (const found of await violations()) wrong.push(`${path}: ${found}`);
      for (const widthPx of WIDTHS_PX) {
        const wide = await beyond(widthPx);
        if (wide.length > 0) wrong.push(`${path} at ${widthPx} px: ${wide.join(" ")}`);
      }
      for (const error of errors.splice(0)) wrong.push(`${path}: ${error}`);
    }
    expect(wrong).toEqual([]);
  });

  it("a hostile argument of a tool is shown as inert text, in its approval request and in its decision", async () => {
    await page.setViewportSize({ width: DESK_PX, height: 900 });
    for (const path of [`approvals/${hostile}`, `decisions/${await newestDecision()}`]) {
      await open(path);
      const shown = page.getByRole("group", { name: "Arguments", exact: true });
      const text = await shown.innerText();
      expect(text).toContain("<script>window.ran=1</script>");
      expect(text).toContain("\\u202egpj.exe javascript:window.ran=1");
      expect(await page.locator("main img, main script, a[href^='javascript:' i]").count()).toBe(0);
    }
    expect(await page.evaluate("window.ran")).toBeUndefined();
    expect(errors).toEqual([]);
  });

  it("an effect is as wide as its words in the list of decisions, and an approval request names its server", async () => {
    await page.setViewportSize({ width: DESK_PX, height: 900 });
    await open("decisions");
    const widthOf = async (word: string): Promise<number> => {
      const box = await page.locator(".decision-row .pill").getByText(word, { exact: true }).first().boundingBox();
      return box?.width ?? Number.NaN;
    };
    expect(await widthOf("Denied")).toBeLessThan(await widthOf("Permitted"));
    await open(`approvals/${hostile}`);
    expect(await page.locator(".request .facts div", { hasText: "Server" }).locator("dd").innerText()).toBe("notes");
  });

  it("the keyboard alone approves one request, which then runs once, and denies another with a reason", async () => {
    const first = await world.ask("approved by keyboard");
    const second = await world.ask("denied by keyboard");
    await page.setViewportSize({ width: DESK_PX, height: 900 });
    await open("approvals");
    const press = (...keys: string[]): Promise<void> =>
      keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
    const shows = async (id: string): Promise<void> => {
      await page.waitForURL((url) => url.pathname.endsWith(`/${id}`));
      await page.locator("#approve-once").waitFor();
    };
    await shows(hostile);
    await press("j");
    await shows(first);
    await press("j");
    await shows(second);
    await press("k");
    await shows(first);
    await press("a", "Enter");
    await page
      .getByText(/^Approved\./)
      .first()
      .waitFor();
    // The focus is on what comes next.
    await page.locator(".outcome button:focus").waitFor();
    await open(`approvals/${second}`);
    await press("d");
    await page.keyboard.type("not on a Friday");
    await press("Enter");
    await page
      .getByText(/^Denied\./)
      .first()
      .waitFor();

    const answer = (item: string): Promise<string> =>
      world.blog.callTool("notes.delete", { item }).then(JSON.stringify, String);
    expect(await answer("approved by keyboard")).toContain("delete approved by keyboard: done");
    expect(await answer("denied by keyboard")).toContain("not on a Friday");
    const { processes } = await get<{ processes: { stderr?: string }[] }>("/v1/applications/blog/servers/notes");
    const ran = processes.map(({ stderr }) => stderr).join("");
    expect(ran.match(/^ran delete .*$/gm)).toEqual(["ran delete approved by keyboard"]);
    expect(errors).toEqual([]);
  });
});
