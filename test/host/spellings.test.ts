// Every option of every profile, in every spelling that the profile takes, by the real program: what the profile makes of it
// must do the same as the spelling in the program's manual, and that must be no mistake to the program.

import { execFile, execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MAKE, NPM_VERBS } from "../../src/host/profiles/build.js";
import { CURL } from "../../src/host/profiles/curl.js";
import { ALONE, DEPTH, WITH_FILE, WITH_VALUE } from "../../src/host/profiles/find.js";
import { SUBCOMMANDS } from "../../src/host/profiles/git-options.js";
import type { OptionTable } from "../../src/host/profiles/grammar.js";
import { isProblem, profiles } from "../../src/host/profiles/index.js";
import { CAT, GREP, JQ, LS, RG } from "../../src/host/profiles/search.js";
import { TAR } from "../../src/host/profiles/tar.js";
import { AWK, SED } from "../../src/host/profiles/text.js";
import type { ProfileName } from "../../src/host/index.js";
import { ensurePrograms, has } from "./support/machine.js";
import { type Spelling, spellingsOf } from "./support/spellings.js";

ensurePrograms({
  bzip2: "bzip2",
  curl: "curl",
  gawk: "gawk",
  git: "git",
  jq: "jq",
  make: "make",
  rg: "ripgrep",
  xz: "xz-utils",
  zstd: "zstd",
});

const AT_ONCE = 4;
let base = "";
let world = "";

beforeAll(() => {
  base = mkdtempSync(join(tmpdir(), "spellings-"));
  world = join(base, "world");
  mkdirSync(join(world, "sub"), { recursive: true });
  writeFileSync(join(world, "a.txt"), "one\ntwo needle\n\nthree\n");
  writeFileSync(join(world, "sub/b.txt"), "needle two\n");
  writeFileSync(join(world, "a.json"), '{ "b": [1, "é"], "a": null }\n');
  writeFileSync(join(world, "Makefile"), "all:\n\t@echo made\n");
  writeFileSync(join(world, "sub/Makefile"), "all:\n\t@echo made below\n");
  writeFileSync(join(world, "package.json"), '{ "name": "x", "version": "1.0.0", "scripts": { "test": "echo" } }\n');
  execFileSync("tar", ["-cf", "a.tar", "sub"], { cwd: world });
  if (has("git")) makeRepository();
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

function makeRepository(): void {
  const git = (...args: string[]): void => {
    const identity = ["-c", "user.name=test", "-c", "user.email=t@example.invalid"];
    execFileSync("git", [...identity, ...args], { cwd: world, stdio: "ignore", env: environment("git") });
  };
  git("init", "-q", "--template=", "-b", "main");
  git("add", "a.txt");
  git("commit", "-qm", "first");
  git("add", "sub", "Makefile");
  git("commit", "-qm", "second");
  git("tag", "-am", "a tag", "v1");
  git("remote", "add", "origin", "https://example.invalid/x");
  writeFileSync(join(world, "a.txt"), "one\ntwo needle\n\nthree changed\n");
}

interface Outcome {
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
  /** What it left in the folder, for those that write. */
  readonly files?: readonly string[];
}

function environment(name: ProfileName): Record<string, string> {
  return { PATH: process.env.PATH ?? "", HOME: base, LANG: "C.UTF-8", ...profiles[name].env };
}

function run(program: string, args: readonly string[], name: ProfileName, cwd = world): Promise<Outcome> {
  return new Promise((resolve) => {
    const child = execFile(
      program,
      args,
      { cwd, env: environment(name), timeout: 20_000, maxBuffer: 10_000_000 },
      (error, stdout, stderr) => resolve({ code: error === null ? 0 : (error.code ?? "killed"), stdout, stderr }),
    );
    child.stdin?.end();
  });
}

/** tar writes: each run has a folder of its own. */
async function runInCopy(program: string, args: readonly string[], name: ProfileName): Promise<Outcome> {
  const folder = mkdtempSync(join(base, "copy-"));
  for (const file of ["a.tar", "a.txt", "sub"]) cpSync(join(world, file), join(folder, file), { recursive: true });
  const outcome = await run(program, args, name, folder);
  return { ...outcome, files: readdirSync(folder, { recursive: true }).map(String).sort() };
}

interface Program {
  readonly name: ProfileName;
  /** The file, where it is not the profile's name. */
  readonly program?: string;
  readonly first?: readonly string[];
  readonly table: OptionTable;
  readonly samples?: Readonly<Record<string, string>>;
  /** What stands around an option for it to mean something. */
  readonly around?: (option: string, words: readonly string[]) => readonly string[];
  readonly mistakes?: (outcome: Outcome) => boolean;
  readonly runs?: typeof run;
  readonly arranged?: (argv: readonly string[]) => readonly string[];
  readonly isIgnored?: (option: string) => boolean;
  readonly mayLack?: readonly string[];
}

/** GNU's and git's words for a command line they do not understand; their exit codes are above 1. */
function isMistake({ code, stderr }: Outcome): boolean {
  const words = /unknown|unrecognized|unrecognised|invalid option|ambiguous argument|requires an argument|usage:/i;
  return (code !== 0 && code !== 1) || words.test(stderr);
}

async function wrongSpellings(program: Program): Promise<string[]> {
  const spellings = spellingsOf(program.table, (option) => program.samples?.[option]);
  const wrong: string[] = [];
  const waiting = [...spellings];
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const problem = await compare(program, next);
      if (problem !== undefined) wrong.push(problem);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  expect(spellings.length).toBeGreaterThan(0);
  return wrong;
}

async function compare(program: Program, { option, typed, plain }: Spelling): Promise<string | undefined> {
  const { name, first = [], around = (_, words) => words, runs = run, mistakes = isMistake } = program;
  const file = program.program ?? name;
  const asked = [...first, ...around(option, typed)];
  const arranged = profiles[name].arrange(asked);
  if (isProblem(arranged)) return `${asked.join(" ")}: refused: ${arranged.problem}`;
  const isIgnored = program.isIgnored?.(option) === true;
  const manual = [...first, ...around(option, isIgnored ? [] : plain)];
  const argv = program.arranged?.(arranged.argv) ?? arranged.argv;
  const [got, wanted] = [await runs(file, argv, name), await runs(file, manual, name)];
  if (mistakes(wanted) && program.mayLack?.includes(option) !== true)
    return `${manual.join(" ")}: no option of ${file}: ${wanted.stderr}`;
  const same = got.code === wanted.code && got.stdout === wanted.stdout && `${got.files}` === `${wanted.files}`;
  return same
    ? undefined
    : `${asked.join(" ")}: ${argv.join(" ")} gave ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`;
}

function check(title: string, program: Program): void {
  const file = program.program ?? program.name;
  test(title, { timeout: 60_000 }, async ({ skip }) => {
    if (!has(file)) skip(`${file} is not installed here`);
    expect(await wrongSpellings(program)).toEqual([]);
  });
}

const isColor = (option: string): boolean => /^--colou?r$/.test(option);

describe("tools that read", () => {
  check("ls", {
    name: "ls",
    table: LS,
    samples: {
      "--sort": "size",
      "--time": "ctime",
      "--format": "commas",
      "--ignore": "a*",
      "-I": "a*",
      "--time-style": "iso",
      "-w": "20",
      "--width": "20",
    },
    isIgnored: isColor,
  });
  check("cat", { name: "cat", table: CAT, around: (_, words) => [...words, "a.txt"] });
  check("grep", {
    name: "grep",
    table: GREP,
    samples: {
      "-e": "two",
      "--regexp": "two",
      "--include": "b*",
      "--exclude": "b*",
      "--exclude-dir": "sub",
    },
    around: (option, words) => [...words, ...(/^(-e|--regexp)$/.test(option) ? [] : ["needle"]), "-r", "a.txt", "sub"],
    isIgnored: isColor,
  });
  check("rg", {
    name: "rg",
    table: RG,
    samples: {
      "-g": "b*",
      "--glob": "b*",
      "--iglob": "B*",
      "-t": "txt",
      "--type": "txt",
      "-T": "txt",
      "--type-not": "txt",
      "-e": "two",
      "--regexp": "two",
      "-r": "X",
      "--replace": "X",
      "--sort": "path",
      "--sortr": "path",
      "--max-filesize": "10",
    },
    around: (option, words) => [
      ...words,
      // The order of files is chance with several threads.
      ...(/^(-j|--threads)$/.test(option) ? [] : ["-j1"]),
      ...(/^(-e|--regexp|--files|--type-list)$/.test(option) ? [] : ["needle"]),
      ...(option === "--type-list" ? [] : ["a.txt"]),
    ],
    runs: async (...args) => {
      const outcome = await run(...args);
      return { ...outcome, stdout: outcome.stdout.replace(/[0-9.]+(?= seconds)|"(nanos|secs|human)":[^,}]+/g, "") };
    },
    isIgnored: isColor,
    // A build without PCRE2; -d came with version 14.
    mayLack: ["-P", "--pcre2", "-d"],
  });
  check("jq", { name: "jq", table: JQ, around: (_, words) => [...words, ".", "a.json"] });
  test("jq's options with words of their own", async ({ skip }) => {
    if (!has("jq")) skip("jq is not installed here");
    for (const args of [
      ["--arg", "n", "v", "-n", "$n"],
      ["--argjson", "n", "[1]", "-n", "$n"],
      ["--indent", "3", ".", "a.json"],
    ]) {
      const arranged = profiles.jq.arrange(args);
      const argv = isProblem(arranged) ? [] : arranged.argv;
      expect(await run("jq", argv, "jq")).toEqual(await run("jq", args, "jq"));
    }
  });
});

describe("tools with a language of their own", () => {
  check("sed", {
    name: "sed",
    table: SED,
    samples: { "-e": "s/two/2/", "--expression": "s/two/2/", "-l": "5", "--line-length": "5" },
    around: (option, words) => [...words, ...(/^(-e|--expression)$/.test(option) ? [] : ["1l"]), "a.txt"],
  });
  check("awk", {
    name: "awk",
    program: "gawk",
    table: AWK,
    samples: { "-F": "e", "-v": "n=2" },
    around: (_, words) => [...words, "{ print n $1 }", "a.txt"],
  });
  test("find", { timeout: 60_000 }, async () => {
    const samples: Record<string, string> = {
      "-type": "f",
      "-size": "-2k",
      "-mtime": "-2",
      "-mmin": "-90",
      "-atime": "-2",
      "-ctime": "-2",
      "-perm": "-400",
      "-links": "1",
      "-printf": "%f\\n",
      "-regex": ".*txt",
      "-iregex": ".*TXT",
    };
    const one = ["-name", "a*"];
    const cases = [
      ...[...ALONE].map((word) => {
        if (word === "(" || word === ")") return ["(", ...one, ")"];
        if (word === "!" || word === "-not") return [word, ...one];
        return /^-(a|and|o|or)$/.test(word) ? [...one, word, "-name", "*.txt"] : [...one, word];
      }),
      ...[...DEPTH].map((word) => [word, "1"]),
      ...Object.keys(WITH_VALUE).map((word) => [word, samples[word] ?? "*a*"]),
      ...[...WITH_FILE].map((word) => [word, "package.json"]),
    ];
    for (const expression of cases) {
      const arranged = profiles.find.arrange(["sub", "a.txt", ...expression]);
      if (isProblem(arranged)) throw new Error(`${expression.join(" ")}: ${arranged.problem}`);
      const wanted = await run("find", ["sub", "a.txt", ...expression], "find");
      expect(wanted, expression.join(" ")).toMatchObject({ code: 0, stderr: "" });
      expect(await run("find", arranged.argv, "find")).toEqual(wanted);
    }
  });
});

describe("git", () => {
  const rest: Readonly<Record<string, readonly string[]>> = {
    log: ["--", "a.txt"],
    show: ["HEAD"],
    diff: ["HEAD~1"],
    "rev-parse": ["HEAD"],
    blame: ["a.txt"],
    "ls-tree": ["HEAD"],
    "cat-file": ["HEAD"],
    shortlog: ["HEAD"],
  };
  const samples = {
    "-S": "needle",
    "-G": "needle",
    "-L": "1,2",
    "-e": "needle",
    "-M": "50",
    "-C": "50",
    "--find-renames": "50%",
    "--find-copies": "50%",
    "--diff-filter": "AM",
    "--diff-algorithm": "patience",
    "--stat": "40,20",
    "--dirstat": "files,10",
    "--word-diff": "porcelain",
    "--since": "2001-01-01",
    "--after": "2001-01-01",
    "--until": "2101-01-01",
    "--before": "2101-01-01",
    "--author": "test",
    "--committer": "test",
    "--grep": "first",
    "--format": "%(refname)",
    "--pretty": "oneline",
    "--date": "iso",
    "--decorate": "full",
    "--branches": "ma*",
    "--tags": "v*",
    "--remotes": "o*",
    "--contains": "HEAD~1",
    "--no-contains": "HEAD~1",
    "--merged": "main",
    "--no-merged": "main",
    "--points-at": "main",
    "--sort": "refname",
    "--abbrev-ref": "strict",
    "--match": "v*",
    "--exclude": "x*",
    "--dirty": "-changed",
    "--porcelain": "v2",
    "--untracked-files": "no",
    "-u": "no",
    "--ignored": "matching",
  };
  for (const [name, table] of Object.entries(SUBCOMMANDS)) {
    if (name === "stash") continue; // Nothing but the one word.
    check(`git ${name}`, {
      name: "git",
      first: [name],
      table,
      samples: {
        ...samples,
        ...(/^(log|show)$/.test(name) ? { "--format": "%h" } : {}),
        ...(name === "grep" ? { "-C": "1" } : {}),
      },
      around: (option, words) => {
        if (name === "ls-files" && /^(-i|--ignored)$/.test(option)) return [...words, "-o", "--exclude-standard"];
        if (name === "cat-file") return [...words, "HEAD"];
        if (name !== "grep") return [...words, ...(rest[name] ?? [])];
        if (option === "--and" || option === "--or") return ["-e", "needle", ...words, "-e", "two"];
        if (option === "--not") return ["-e", "needle", "--and", ...words, "-e", "three"];
        return option === "-e" ? words : [...words, "needle"];
      },
    });
  }
  test("git stash list, -C and --no-pager", async ({ skip }) => {
    if (!has("git")) skip("git is not installed here");
    for (const args of [
      ["stash", "list"],
      ["-C", "sub", "status", "--short"],
      ["--no-pager", "log", "-1", "--oneline"],
    ]) {
      const arranged = profiles.git.arrange(args);
      const argv = isProblem(arranged) ? [arranged.problem] : arranged.argv;
      expect(await run("git", argv, "git")).toEqual(await run("git", args, "git"));
    }
  });
});

describe("builds and archives", () => {
  check("make", { name: "make", table: MAKE, samples: { "-C": "sub", "--directory": "sub" } });
  check("tar", {
    name: "tar",
    table: TAR,
    samples: {
      "-f": "a.tar",
      "--file": "a.tar",
      "-C": "sub",
      "--directory": "sub",
      "--exclude": "b*",
      "--strip-components": "1",
    },
    around: (option, words) => {
      if (/^(-f|--file)$/.test(option)) return ["-t", ...words];
      if (/^(-t|-x|--list|--extract|--get)$/.test(option)) return [...words, "-f", "a.tar"];
      if (/^(-c|--create)$/.test(option)) return [...words, "-f", "new.tar", "a.txt"];
      if (/^(-z|-j|-J|--gzip|--bzip2|--xz|--zstd)$/.test(option)) return ["-c", ...words, "-f", "new.tar", "a.txt"];
      return ["-x", "-f", "a.tar", ...words];
    },
    // -k meets the files that are there.
    mistakes: ({ code, stderr }) => (code !== 0 && !/exists/.test(stderr)) || /unrecognized|Try 'tar/.test(stderr),
    runs: runInCopy,
  });
  test("npm", { timeout: 60_000 }, async ({ skip }) => {
    if (!has("npm")) skip("npm is not in the system's folders");
    const offline = Object.entries(NPM_VERBS).filter(([verb]) => !["view", "ci", "explain"].includes(verb));
    for (const [verb, { flags, passesOn }] of offline) {
      const name = verb === "run" ? ["test"] : [];
      const arranged = profiles.npm.arrange([
        verb,
        ...flags,
        ...name,
        ...(passesOn === true ? ["--", "-x", "a b"] : []),
      ]);
      const outcome = await run("npm", isProblem(arranged) ? [arranged.problem] : arranged.argv, "npm");
      expect(outcome.code, `${verb}: ${outcome.stderr}`).toBe(0);
      expect(outcome.stderr).not.toMatch(/unknown|usage/i);
      if (passesOn === true) expect(outcome.stdout).toContain("-x a b");
    }
  });
});

describe("curl", () => {
  let server: Server;
  beforeAll(async () => {
    server = createServer((request, response) => {
      const { authorization: _, host: __, ...headers } = request.headers;
      let body = "";
      request.on("data", (chunk) => (body += chunk));
      request.on("end", () => {
        response.sendDate = false;
        response.end(JSON.stringify({ method: request.method, url: request.url, headers, body }));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  });
  afterAll(() => server.close());
  const address = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}/x`;

  check("every option", {
    name: "curl",
    table: CURL,
    samples: {
      "-X": "PUT",
      "--request": "PUT",
      "-H": "X-A: b",
      "--header": "X-A: b",
      "-d": "a=1",
      "--data": "a=1",
      "--data-raw": "@a",
      "--json": "{}",
      "--data-urlencode": "a=b c@d",
      "-A": "me",
      "--user-agent": "me",
      "-e": "https://r.example/",
      "--referer": "https://r.example/",
      "--max-redirs": "3",
      "--retry": "1",
      "--url": "https://target.example/x",
    },
    around: (option, words) => [...words, ...(option === "--url" ? [] : ["https://target.example/x"])],
    // The profile refuses this machine, so the address is put in afterwards.
    runs: (file, argv, name) => {
      const target = argv.map((word) => (word === "https://target.example/x" ? address() : word));
      return run(file, target.includes("-s") ? target : [...target, "-s"], name);
    },
    // 2: what was typed is no command line. Whether there is IPv6 here is another question.
    mistakes: ({ code }) => code === 2,
  });
});

describe("the check itself", () => {
  test("sees a form that the program does not know", async ({ skip }) => {
    if (!has("git") || !has("curl")) skip("git or curl is not installed here");
    expect(isMistake(await run("git", ["diff", "-U", "5"], "git"))).toBe(true);
    expect((await run("curl", ["--max-time=2", "http://127.0.0.1:1/"], "curl")).code).toBe(2);
  });
});
