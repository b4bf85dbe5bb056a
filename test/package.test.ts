// What is published: whoever reads the README in the installed package finds what it points to.

import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = resolve(import.meta.dirname, "..");

describe("the package", () => {
  it("holds every file that its README links to and that `portcullis gen` emits, and stays small", {
    timeout: 60_000,
  }, () => {
    // A script of the package would build it again under the feet of other tests.
    const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
    const npm = spawnSync("npm", args, { cwd: ROOT, encoding: "utf8", shell: process.platform === "win32" });
    const [packed] = JSON.parse(npm.stdout) as [{ size: number; files: { path: string }[] }];
    const files = new Set(packed.files.map(({ path }) => path));
    const readme = readFileSync(join(ROOT, "README.md"), "utf8");
    const links = [...readme.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map((link) => link[1] as string);
    expect(links.length).toBeGreaterThan(5);
    expect(links.filter((link) => !files.has(link))).toEqual([]);
    const runtimes = "src/codegen/runtimes";
    const emitted = readdirSync(join(ROOT, runtimes), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => relative(join(ROOT, "src"), join(entry.parentPath, entry.name)).replaceAll(sep, "/"));
    expect(emitted.length).toBeGreaterThan(10);
    expect(emitted.filter((file) => !files.has(`dist/${file}`))).toEqual([]);
    expect(packed.size).toBeLessThan(3_000_000);
  });
});
