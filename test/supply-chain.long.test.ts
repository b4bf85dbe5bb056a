// What users install: nothing of it runs code at installation, and its parts are listed.

import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Sbom, sbomOf } from "../scripts/release/sbom.mjs";
import { unpack } from "../src/lib/unpack.js";

const ROOT = resolve(import.meta.dirname, "..");
const INSTALL_SCRIPTS = ["preinstall", "install", "postinstall"];
/** npm's codes for a registry that cannot be reached. */
const UNREACHABLE = /ENOTCACHED|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH/;

interface Facts {
  readonly name?: string;
  readonly version?: string;
  readonly integrity?: string;
  readonly resolved?: string;
  readonly hasInstallScript?: boolean;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly optional?: boolean;
  readonly link?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const lock = readJson(join(ROOT, "package-lock.json")) as { packages: Record<string, Facts> };
const manifest = readJson(join(ROOT, "package.json")) as { name: string; version: string; license: string };
// The console is a workspace: its directory and the link to it are ours, and nothing of it is published but its bundle.
const installed = Object.entries(lock.packages).filter(([path, { link }]) => path.startsWith("node_modules/") && !link);
const production = installed.filter(([, facts]) => facts.dev !== true);

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-supply-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe("the lock file", () => {
  it("the lock file names no production package that has an install script [G8]", () => {
    expect(production.length).toBeGreaterThan(30);
    expect(production.filter(([, facts]) => facts.hasInstallScript).map(([path]) => path)).toEqual([]);
  });

  it("the lock file records no download address, so that any registry can serve it", () => {
    expect(installed.filter(([, facts]) => facts.resolved !== undefined)).toEqual([]);
  });

  it("the lock file has a hash for everything that is installed for users or on Linux x64 and arm64", () => {
    const isForeign = ({ os = ["linux"], cpu = ["x64"] }: Facts): boolean =>
      !os.includes("linux") || !(cpu.includes("x64") || cpu.includes("arm64"));
    const without = installed.filter(([, facts]) => facts.integrity === undefined);
    expect(without.filter(([, facts]) => !(facts.dev && facts.optional && isForeign(facts)))).toEqual([]);
  });

  it("the lock file names the optional packages of every platform, without which `npm ci` refuses it [H12]", () => {
    const missing = Object.entries(lock.packages).flatMap(([path, facts]) =>
      Object.keys(facts.optionalDependencies ?? {}).filter(
        (name) => !(`${path}/node_modules/${name}` in lock.packages) && !(`node_modules/${name}` in lock.packages),
      ),
    );
    expect(missing).toEqual([]);
  });
});

describe("the image", () => {
  it("the image is built from images named by digest and from the lock file, without scripts", () => {
    const text = readFileSync(join(ROOT, "deploy/Dockerfile"), "utf8");
    const [, digest = ""] = /^ARG NODE_IMAGE_DIGEST=(\S+)$/m.exec(text) ?? [];
    expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    // `# syntax=` names an image, too, which reads the whole file and runs the build.
    expect(text).not.toMatch(/^#\s*syntax\s*=/im);
    const images = [...text.matchAll(/^FROM (\S+)/gm)].map(([, image = ""]) => image);
    expect(images.length).toBeGreaterThan(0);
    expect(images.filter((image) => !image.endsWith("@${NODE_IMAGE_DIGEST}"))).toEqual([]);
    const installs = [...text.matchAll(/npm (?:ci|install|i|prune)\b[^\n]*/g)].map(([command]) => command);
    expect(installs.filter((command) => !/^npm (ci|prune) .*--ignore-scripts/.test(command))).toEqual([]);
  });
});

describe("the workflows", () => {
  it("the workflows name every action by its commit, so that a moved tag changes no build and no release", () => {
    const at = join(ROOT, ".github/workflows");
    const uses = readdirSync(at).flatMap((name) =>
      [...readFileSync(join(at, name), "utf8").matchAll(/\buses:\s*(\S+)/g)].map(([, action = ""]) => action),
    );
    expect(uses.length).toBeGreaterThan(0);
    expect(uses.filter((action) => !/@[0-9a-f]{40}$/.test(action))).toEqual([]);
  });
});

describe("installing the package", () => {
  it("installing the package runs no script of any dependency, with scripts allowed [G8]", { timeout: 300_000 }, ({
    skip,
  }) => {
    if (process.platform === "win32") return skip("npm's script shell is replaced by a POSIX shell script here");
    const packed = npm(ROOT, ["pack", "--json", "--ignore-scripts", "--pack-destination", dir]);
    const [{ filename }] = JSON.parse(packed.stdout) as [{ filename: string }];
    // npm starts every script by this shell, so each one leaves a line.
    const ran = join(dir, "scripts-that-ran");
    const shell = join(dir, "shell.sh");
    writeFileSync(shell, `#!/bin/sh\necho "$npm_package_name $npm_lifecycle_event" >> '${ran}'\n`);
    chmodSync(shell, 0o755);
    const install = (name: string, what: string): ReturnType<typeof npm> => {
      const at = join(dir, name);
      mkdirSync(at);
      writeFileSync(
        join(at, "package.json"),
        JSON.stringify({ name: `install-${name}`, version: "1.0.0", private: true }),
      );
      return npm(at, ["install", what, "--prefer-offline", "--ignore-scripts=false", `--script-shell=${shell}`]);
    };

    // A package with a script shows that scripts run, and are seen, under these options.
    mkdirSync(join(dir, "scripted"));
    const scripted = { name: "scripted", version: "1.0.0", scripts: { postinstall: "exit 0" } };
    writeFileSync(join(dir, "scripted", "package.json"), JSON.stringify(scripted));
    npm(join(dir, "scripted"), ["pack", "--pack-destination", dir]);
    install("control", join(dir, "scripted-1.0.0.tgz"));
    expect(readFileSync(ran, "utf8")).toBe("scripted postinstall\n");
    rmSync(ran);

    const done = install("user", join(dir, filename));
    if (done.status !== 0 && UNREACHABLE.test(done.stderr))
      return skip("no registry can be reached: nothing was installed");
    expect(done.stderr).not.toContain("npm error");
    expect(existsSync(ran) ? readFileSync(ran, "utf8") : "").toBe("");
    const tree = join(dir, "user", "node_modules");
    const { packages } = readJson(join(tree, ".package-lock.json")) as { packages: Record<string, Facts> };
    expect(Object.keys(packages).length).toBeGreaterThan(30);
    for (const [path, facts] of Object.entries(packages)) {
      expect(facts.hasInstallScript, path).toBeUndefined();
      const own = readJson(join(dir, "user", path, "package.json")) as { scripts?: Record<string, string> };
      expect(
        INSTALL_SCRIPTS.filter((name) => own.scripts?.[name] !== undefined),
        path,
      ).toEqual([]);
      // npm compiles a package with this file although it names no script.
      expect(existsSync(join(dir, "user", path, "binding.gyp")), path).toBe(false);
    }

    const version = spawnSync(join(tree, ".bin", "portcullis"), ["--version"], { encoding: "utf8" });
    expect(version.stdout.trim()).toBe(manifest.version);
    if (process.platform !== "linux" || !["x64", "arm64"].includes(process.arch)) return;
    const load = `
      const { loadKoffi } = await import(${JSON.stringify(join(tree, "portcullis", "dist", "lib", "koffi.js"))});
      console.log(loadKoffi().load(null).func("getpid", "int", [])() === process.pid);`;
    const loaded = spawnSync(process.execPath, ["--input-type=module", "-e", load], { encoding: "utf8" });
    expect(loaded.stdout.trim(), loaded.stderr).toBe("true");
  });
});

describe("the bill of materials", () => {
  it("the bill of materials lists every production package of the lock file and no development package [M9]", () => {
    const sbom = sbomOf(manifest, "1.2.3", lock, (path) => lock.packages[path]?.dev !== true);
    expectCycloneDx(sbom);
    const listed = sbom.components.map(({ name, version }) => `${name}@${version}`);
    const expected = new Set(production.map(([path, facts]) => labelOf(path, facts)));
    expect(listed.sort()).toEqual([...expected].sort());
    for (const component of sbom.components) {
      expect(component.hashes, component.name).toEqual([
        { alg: "SHA-512", content: expect.stringMatching(/^[0-9a-f]{128}$/) },
      ]);
    }
  });

  it("the bill of materials names for a dependency the version that Node would load, also when it is nested", () => {
    const nested = {
      packages: {
        "": { dependencies: { a: "1", b: "2" } },
        "node_modules/a": { version: "1.0.0", dependencies: { "@s/b": "1" }, peerDependencies: { c: "*" } },
        "node_modules/a/node_modules/@s/b": { version: "1.0.0", dependencies: { c: "*" } },
        "node_modules/@s/b": { version: "2.0.0", optionalDependencies: { absent: "*" } },
        "node_modules/c": { version: "3.0.0", integrity: "sha512-AAAA" },
      },
    };
    const { dependencies } = sbomOf({ name: "p" }, "1.0.0", nested, () => true);
    expect(dependencies).toEqual([
      { ref: "pkg:npm/%40s/b@1.0.0", dependsOn: ["pkg:npm/c@3.0.0"] },
      { ref: "pkg:npm/%40s/b@2.0.0", dependsOn: [] },
      { ref: "pkg:npm/a@1.0.0", dependsOn: ["pkg:npm/%40s/b@1.0.0", "pkg:npm/c@3.0.0"] },
      { ref: "pkg:npm/c@3.0.0", dependsOn: [] },
      { ref: "pkg:npm/p@1.0.0", dependsOn: ["pkg:npm/a@1.0.0"] },
    ]);
  });

  it("the bill of materials is in the release archive and lists exactly the packages there [M9]", {
    timeout: 200_000,
  }, async () => {
    const key = join(dir, "release.pem");
    const env = { ...process.env, PORTCULLIS_GZIP_LEVEL: "1" };
    const release = (...args: string[]): void => {
      const script = join(ROOT, "scripts", "release.mjs");
      const done = spawnSync(process.execPath, [script, ...args], { encoding: "utf8", env });
      expect(done.status, done.stderr).toBe(0);
    };
    release("keys", "--secret-key", key);
    release("--secret-key", key, "--out", dir, "--url", "https://releases.example.com");
    const made = join(dir, manifest.version);
    const archive = readdirSync(made).find((name) => name.endsWith(".tar.gz")) as string;
    const out = join(dir, "unpacked");
    await unpack(join(made, archive), out, `portcullis-${manifest.version}`);
    const sbom = readJson(join(out, "sbom.cdx.json")) as Sbom;
    expectCycloneDx(sbom);
    const inside = readdirSync(out, { recursive: true })
      .map((name) => String(name).replaceAll("\\", "/"))
      .filter((name) => /^(.*\/)?node_modules\/(@[^/]+\/)?[^/]+\/package\.json$/.test(name))
      .map((name) => readJson(join(out, name)) as { name: string; version: string })
      .map(({ name, version }) => `${name}@${version}`);
    expect(inside.length).toBeGreaterThan(30);
    const listed = sbom.components.map(({ name, version }) => `${name}@${version}`);
    expect(listed.sort()).toEqual([...new Set(inside)].sort());
  });
});

function expectCycloneDx(sbom: Sbom): void {
  expect(sbom).toMatchObject({ bomFormat: "CycloneDX", specVersion: "1.5", version: 1 });
  const own = sbom.metadata.component;
  expect(own).toMatchObject({ type: "application", name: "portcullis", purl: `pkg:npm/portcullis@${own.version}` });
  const refs = [own["bom-ref"], ...sbom.components.map((component) => component["bom-ref"])];
  expect(new Set(refs).size).toBe(refs.length);
  for (const component of sbom.components) {
    expect(component.type).toBe("library");
    expect(component.purl).toBe(`pkg:npm/${component.name.replace("@", "%40")}@${component.version}`);
    expect(component.hashes?.length, component.name).toBeGreaterThan(0);
  }
  // The graph is closed, and everything in it is reached from the package itself.
  expect(sbom.dependencies.map(({ ref }) => ref).sort()).toEqual([...refs].sort());
  const edges = new Map(sbom.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]));
  const reached = new Set<string>();
  const next = [own["bom-ref"]];
  for (let ref = next.pop(); ref !== undefined; ref = next.pop()) {
    if (reached.has(ref)) continue;
    reached.add(ref);
    expect(edges.has(ref), ref).toBe(true);
    next.push(...(edges.get(ref) ?? []));
  }
  expect([...reached].sort()).toEqual([...refs].sort());
}

function labelOf(path: string, facts: Facts): string {
  const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
  return `${facts.name ?? name}@${facts.version}`;
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, "utf8"));
}

function npm(cwd: string, args: string[]) {
  const options = ["--no-audit", "--no-fund", "--loglevel=error"];
  return spawnSync("npm", [...args, ...options], { cwd, encoding: "utf8", shell: process.platform === "win32" });
}
