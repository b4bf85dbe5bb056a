// The published package: it contains every file that its README links to, and its changelog is made from changesets.

import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative, resolve, sep } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = resolve(import.meta.dirname, "..");

describe("the package", () => {
  it("the package holds every file that its README links to and that `portcullis gen` emits, and stays small", {
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

describe("npm run changelog", () => {
  it("npm run changelog gathers changesets by kind, keeps earlier versions and, at a release, sets the version", () => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-changelog-"));
    try {
      for (const name of ["scripts", ".changeset"]) mkdirSync(join(dir, name));
      for (const name of ["changelog.mjs", "steps.mjs"])
        cpSync(join(ROOT, "scripts", name), join(dir, "scripts", name));
      writeFileSync(join(dir, "package.json"), JSON.stringify({ name: "p", version: "1.0.0" }));
      writeFileSync(join(dir, "CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\n- stale\n\n## 1.0.0\n\n- first\n");
      const changes = { a: "patch", b: "major", c: "patch" };
      for (const [name, kind] of Object.entries(changes))
        writeFileSync(join(dir, ".changeset", `${name}.md`), `---\n"portcullis": ${kind}\n---\n\nchange ${name}\n`);
      const changelog = (...args: string[]): string => {
        const script = join(dir, "scripts", "changelog.mjs");
        const done = spawnSync(process.execPath, [script, ...args], { cwd: dir, encoding: "utf8" });
        expect(done.status, done.stderr).toBe(0);
        return readFileSync(join(dir, "CHANGELOG.md"), "utf8").replace(/^[^]*?\n## /, "## ");
      };
      const changed =
        "### Breaking changes\n\n- change b\n\n### Fixes\n\n- change a\n- change c\n\n## 1.0.0\n\n- first\n";
      expect(changelog()).toBe(`## Unreleased\n\n${changed}`);
      expect(readdirSync(join(dir, ".changeset"))).toEqual(["a.md", "b.md", "c.md"]);
      expect(changelog("1.1.0")).toBe(`## 1.1.0\n\n${changed}`);
      expect(readdirSync(join(dir, ".changeset"))).toEqual([]);
      expect(JSON.parse(readFileSync(join(dir, "package.json"), "utf8"))).toMatchObject({ version: "1.1.0" });
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  });
});
