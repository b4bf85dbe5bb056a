// Carries out the setup operations that attacks.json describes.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  cpSync,
  linkSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { pidOf } from "./machine.js";

export interface SetupOp {
  readonly op: string;
  readonly [field: string]: unknown;
}

export interface Attack {
  readonly id: string;
  readonly category: string;
  readonly title: string;
  readonly setup: readonly SetupOp[];
  readonly request: { readonly tool: string; readonly arguments: unknown };
  readonly expected: "allow" | "deny";
  readonly accept?: readonly string[];
  readonly repeat?: number;
  readonly parallel?: number;
  readonly needs?: readonly string[];
  readonly oracle?: { readonly forbidOutput?: readonly string[]; readonly noProcess?: string };
  readonly check?: {
    readonly contains?: string;
    readonly exitCode?: number;
    readonly file?: string;
    readonly fileContent?: string;
    readonly noLeftovers?: string;
    readonly noSetuid?: string;
    readonly maxMs?: number;
    readonly maxResponseBytes?: number;
    readonly maxConcurrent?: number;
    readonly processPattern?: string;
  };
}

export interface AttackFile {
  readonly fixture: readonly SetupOp[];
  readonly policy: Record<string, unknown>;
  readonly cases: readonly Attack[];
}

const here = dirname(fileURLToPath(import.meta.url));
export const CANARY = "CANARY-7f3a9c";

export function readAttacks(): AttackFile {
  return JSON.parse(readFileSync(join(here, "../fixtures/attacks.json"), "utf8")) as AttackFile;
}

/** Further cases of the same kinds, against the same fixture and policy. */
export function readMoreAttacks(): readonly Attack[] {
  return (JSON.parse(readFileSync(join(here, "../fixtures/more-attacks.json"), "utf8")) as AttackFile).cases;
}

/** Variants of every kind in the two files above, again in the same form. */
export function readEvenMoreAttacks(): readonly Attack[] {
  return (JSON.parse(readFileSync(join(here, "../fixtures/even-more-attacks.json"), "utf8")) as AttackFile).cases;
}

/** `${ROOT}` and the like, and `@repeat:PREFIX|UNIT|N`, everywhere in a value. */
export function fill<T>(value: T, names: Readonly<Record<string, string>>): T {
  if (typeof value === "string") {
    const text = value.replace(/\$\{(\w+)\}/g, (whole, name: string) => names[name] ?? whole);
    const repeat = /^@repeat:(.*)\|(.*)\|(\d+)$/s.exec(text);
    return (repeat === null ? text : (repeat[1] ?? "") + (repeat[2] ?? "").repeat(Number(repeat[3]))) as T;
  }
  if (Array.isArray(value)) return value.map((entry) => fill(entry, names)) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [fill(k, names), fill(v, names)])) as T;
}

export function namesFor(base: string): Record<string, string> {
  const ROOT = `${base}/root`;
  return { BASE: base, ROOT, WZ: `${ROOT}/out`, OUT: `${base}/outside`, CANARY };
}

const GIT = [
  "-c",
  "user.name=test",
  "-c",
  "user.email=test@example.invalid",
  "-c",
  "commit.gpgsign=false",
  "-c",
  "init.defaultBranch=main",
];

function git(repo: string, ...args: string[]): string {
  return execFileSync("git", [...GIT, ...args], {
    cwd: repo,
    env: { PATH: process.env.PATH, HOME: repo },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
}

/** Things to undo when the case is over. */
export type Undo = () => Promise<void> | void;

export async function carryOut(op: SetupOp): Promise<Undo | undefined> {
  const text = (field: string): string => String((op[field] as string | number | undefined) ?? "");
  const path = text("path");
  switch (op.op) {
    case "mkdir":
      mkdirSync(path, { recursive: true });
      return;
    case "write":
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text("content"), { mode: op.mode === undefined ? 0o644 : Number.parseInt(text("mode"), 8) });
      return;
    case "append":
      appendFileSync(path, text("content"));
      return;
    case "touch":
      utimesSync(path, new Date(), new Date());
      return;
    case "rm_rf":
      rmSync(path, { recursive: true });
      return;
    case "symlink":
      symlinkSync(text("target"), path);
      return;
    case "hardlink":
      linkSync(text("target"), path);
      return;
    case "fifo":
      execFileSync("mkfifo", [path]);
      return;
    case "mknod":
      execFileSync("mknod", [path, text("type"), text("major"), text("minor")]);
      return;
    case "sparse":
      writeFileSync(path, "");
      truncateSync(path, Number(op.bytes));
      return;
    case "git_repo":
      mkdirSync(path, { recursive: true });
      git(path, "init", "-q", "--template=");
      for (const [file = "", content = "", message = ""] of op.commits as string[][]) {
        writeFileSync(join(path, file), content);
        git(path, "add", file);
        git(path, "commit", "-qm", message);
      }
      return;
    case "git_config":
      git(text("repo"), "config", ...(op.args as string[]));
      return;
    case "git_ref": {
      const head = git(text("repo"), "rev-parse", "HEAD").trim();
      writeFileSync(join(text("repo"), ".git/refs/heads", text("ref")), `${head}\n`);
      return;
    }
    case "git_fake_signed_commit":
      return fakeSignedCommit(text("repo"));
    case "server_env": {
      const name = text("name");
      const before = process.env[name];
      process.env[name] = text("value");
      return () => {
        if (before === undefined) delete process.env[name];
        else process.env[name] = before;
      };
    }
    case "build_preload":
      return buildPreload(path, text("onlyIn"), dirname(path));
    case "fuse_bindfs":
      mkdirSync(path, { recursive: true });
      execFileSync("bindfs", [text("source"), path]);
      return () => {
        execFileSync("fusermount3", ["-uz", path]);
      };
    case "sigstop_fuse": {
      const pid = pidOf((line) => line.startsWith("bindfs ") && line.endsWith(` ${path}`));
      process.kill(pid, "SIGSTOP");
      return () => {
        process.kill(pid, "SIGCONT");
      };
    }
    case "race_exchange":
      return await exchange(text("a"), text("b"));
    default:
      throw new Error(`unknown setup operation ${op.op}`);
  }
}

function fakeSignedCommit(repo: string): undefined {
  const plain = git(repo, "cat-file", "commit", "HEAD");
  const cut = plain.indexOf("\n\n");
  const signature =
    "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQEzBAABCAAdFiEEfake\n =fake\n -----END PGP SIGNATURE-----";
  const signed = `${plain.slice(0, cut)}\n${signature}${plain.slice(cut)}`;
  const id = execFileSync("git", ["hash-object", "-t", "commit", "-w", "--stdin"], {
    cwd: repo,
    input: signed,
    encoding: "utf8",
  }).trim();
  git(repo, "update-ref", "HEAD", id);
}

function buildPreload(path: string, onlyIn: string, directory: string): undefined {
  const source = `#include <stdio.h>
#include <string.h>
#include <errno.h>
extern char *program_invocation_short_name;
__attribute__((constructor)) static void run(void) {
  if (strcmp(program_invocation_short_name, "${onlyIn}")) return;
  FILE *f = fopen("${directory}/pwned", "w");
  if (f) fclose(f);
}
`;
  execFileSync("gcc", ["-D_GNU_SOURCE", "-shared", "-fPIC", "-o", path, "-x", "c", "-"], { input: source });
}

/** Gives up when the exchanger does not start; a race without an opponent proves nothing. */
export async function exchange(a: string, b: string): Promise<Undo> {
  const child = spawn(process.execPath, [join(here, "exchange.mjs"), a, b], { stdio: ["pipe", "pipe", "inherit"] });
  await once(child.stdout, "data");
  return async () => {
    child.stdin.end();
    if (child.exitCode === null) await once(child, "exit");
  };
}

/** The fixture is made once and copied; its repositories only for those who run commands in them. */
export function copyTree(from: string, to: string, withRepositories: boolean): void {
  const filter = (path: string): boolean => withRepositories || !path.endsWith("/repo");
  cpSync(from, to, { recursive: true, verbatimSymlinks: true, filter });
}
