// The public surface: what a user can import, what that loads, and what is in the package. Every name here is a promise:
// adding or removing one is an edit of test/surface.json, on purpose, with a changeset.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { moduleOf } from "./modules.js";

const ROOT = resolve(import.meta.dirname, "..");
const readJson = (file: string): unknown => JSON.parse(readFileSync(join(ROOT, file), "utf8"));

interface Entry {
  types: string;
  default: string;
}
interface Surface {
  exports: string[];
  /** Our modules and packages of others that importing it may load at once. */
  mayLoad: string[];
}
const manifest = readJson("package.json") as {
  name: string;
  exports: Record<string, Entry>;
  bin: { portcullis: string };
};
const golden = readJson("test/surface.json") as Record<string, Surface>;
const { "./package.json": _, ...entries } = manifest.exports;

describe("the subpaths", () => {
  it("the published subpaths are those of test/surface.json", () => {
    expect(Object.keys(entries).sort()).toEqual(Object.keys(golden).sort());
  });

  it.each(Object.entries(entries))("the subpath %s is built, with its types", (_path, entry) => {
    expect([entry.types, entry.default].filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
  });
});

describe.each(Object.entries(golden))("%s", (path, { exports, mayLoad }) => {
  const subpath = join(manifest.name, path).replaceAll("\\", "/");

  it("a subpath exports what test/surface.json lists [U14]", { timeout: 120_000 }, async () => {
    const names = node(["--input-type=module", "-e", `console.log(Object.keys(await import("${subpath}")).join())`]);
    expect(names.trim().split(",").sort()).toEqual(exports);
  });

  it("a subpath loads only the modules that it needs [U14]", { timeout: 120_000 }, async () => {
    const urls = node([join(import.meta.dirname, "surface", "loaded.mjs"), subpath]).split("\n");
    expect(partsOf(urls).filter((part) => !mayLoad.includes(part))).toEqual([]);
  });
});

/** In a process of its own, inside the package, so that its name leads to itself. */
function node(args: string[]): string {
  const done = spawnSync(process.execPath, args, { cwd: ROOT, encoding: "utf8", timeout: 60_000 });
  if (done.status !== 0) throw new Error(`node ${args.join(" ")} failed: ${done.stderr}`);
  return done.stdout;
}

/** Modules as `src/policy`, entry points as `src/server.js`, packages by their names. */
function partsOf(urls: readonly string[]): string[] {
  const parts = urls.map((url) => {
    const [, dependency] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url) ?? [];
    if (dependency !== undefined) return dependency;
    const [, ours] = /\/dist\/(.+)/.exec(url) ?? [];
    return ours === undefined ? "" : `src/${moduleOf(ours) ?? ours}`;
  });
  return [...new Set(parts)].filter((part) => part !== "").sort();
}

it("the check of loaded modules sees ES modules, CommonJS and modules of this package", () => {
  const urls = [
    "file:///a/dist/policy/x.js",
    "file:///a/node_modules/ws/lib/y.js",
    "file:///a/node_modules/@b/c/z.cjs",
    "",
  ];
  expect(partsOf(urls)).toEqual(["@b/c", "src/policy", "ws"]);
  const loaded = partsOf(node([join(import.meta.dirname, "surface", "loaded.mjs"), "ws"]).split("\n"));
  expect(loaded).toEqual(["ws"]);
});

describe("the package", () => {
  let paths: string[];
  beforeAll(() => {
    const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
    const packed = spawnSync("npm", args, { cwd: ROOT, encoding: "utf8", shell: process.platform === "win32" });
    const [{ files }] = JSON.parse(packed.stdout) as [{ files: { path: string }[] }];
    paths = files.map((file) => file.path);
  });

  it("the package holds the build, the examples and what a user has to read", () => {
    const wanted = [
      ...Object.values(entries).flatMap((entry) => [entry.types, entry.default]),
      manifest.bin.portcullis,
      "README.md",
      "LICENSE",
      "SECURITY.md",
      "docs/errors.md",
      "examples/verify-proof.mjs",
      "examples/policy.example.yaml",
    ];
    expect(wanted.map((path) => path.replace(/^\.\//, "")).filter((path) => !paths.includes(path))).toEqual([]);
  });

  it("the package holds no test, fixture, source or source map", () => {
    expect(
      paths.filter((path) =>
        /\.(test|contract|map)\b|\/fixtures\/|^(src|test|bench|scripts)\/(?!README\.md$)/.test(path),
      ),
    ).toEqual([]);
  });

  it("the package names no path of the machine it was built on", () => {
    const telling = paths.filter((path) => {
      const text = readFileSync(join(ROOT, path), "utf8");
      return text.includes(ROOT) || text.includes("sourceMappingURL=");
    });
    expect(telling).toEqual([]);
  });

  it("the package starts its command with Node", () => {
    expect(readFileSync(join(ROOT, manifest.bin.portcullis), "utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
  });
});

describe("changesets", () => {
  const folder = join(ROOT, ".changeset");
  const files = readdirSync(folder).filter((name) => name.endsWith(".md") && name !== "README.md");

  it.each(files)("the changeset %s names its release type and the reason", (file) => {
    const text = readFileSync(join(folder, file), "utf8");
    expect(text).toMatch(/^---\n"portcullis": (patch|minor|major)\n---\n\n\S[^]{30,}\n$/);
  });
});
