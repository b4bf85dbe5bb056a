// The documentation site is built from a clean copy of the pages, without the network, and every page is in it.

import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";

const ROOT = resolve(import.meta.dirname, "..");
const DIST = join(ROOT, "site", "dist");

/** A network namespace without an interface, where this user may make one. */
const OFFLINE = spawnSync("unshare", ["--map-root-user", "--net", "true"]).status === 0;

describe("npm run docs", () => {
  beforeAll(() => {
    // Installs the tools, which needs the registry.
    execFileSync("npm", ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"], {
      cwd: join(ROOT, "site"),
      stdio: "ignore",
    });
    const command = [process.execPath, join(ROOT, "scripts", "docs.mjs")];
    const [program, ...args] = OFFLINE ? ["unshare", "--map-root-user", "--net", ...command] : command;
    const built = spawnSync(program as string, args, { cwd: ROOT, encoding: "utf8" });
    expect(built.status, built.stdout + built.stderr).toBe(0);
  });

  it("makes a page of every Markdown file, and one of each published subpath", () => {
    const pages = readdirSync(DIST, { recursive: true }).map((name) => String(name).replaceAll("\\", "/"));
    const tracked = execFileSync("git", ["ls-files", "docs/*.md"], { cwd: ROOT, encoding: "utf8" }).trim().split("\n");
    expect(tracked.length).toBeGreaterThan(60);
    expect(tracked.filter((page) => !pages.includes(page.replace(/\.md$/, ".html")))).toEqual([]);
    for (const page of [
      "index",
      "api/policy",
      "api/mcp/client",
      "api/mcp/transports/http",
      "docs/reference/policy-yaml",
    ])
      expect(pages).toContain(`${page}.html`);
  });

  it("npm run docs has a search index with words of the guides and of the API", () => {
    const chunks = readdirSync(join(DIST, "assets", "chunks")).filter((name) => name.includes("localSearchIndex"));
    expect(chunks.length).toBeGreaterThan(0);
    const index = chunks.map((name) => readFileSync(join(DIST, "assets", "chunks", name), "utf8")).join("");
    for (const word of ["guardrail", "callToolSecure", "policy.yaml"]) expect(index).toContain(word);
  });

  it("loads nothing from another host", () => {
    const home = readFileSync(join(DIST, "index.html"), "utf8");
    const loaded = [...home.matchAll(/<(?:script|link|img)\b[^>]*(?:src|href)="([^"]+)"/g)].map(([, url]) => url);
    expect(loaded.length).toBeGreaterThan(0);
    expect(loaded.filter((url) => /^(https?:)?\/\//.test(url as string))).toEqual([]);
  });
});
