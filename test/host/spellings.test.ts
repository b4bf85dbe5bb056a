// Every option of every profile, in every spelling that the profile takes, by the real program: what the profile makes of it
// must do the same as the spelling in the program's manual, and that must be no mistake to the program.

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MAKE, NPM_VERBS, TAR } from "../../src/host/profiles/build.js";
import { CURL } from "../../src/host/profiles/curl.js";
import { SUBCOMMANDS } from "../../src/host/profiles/git-options.js";
import { isProblem, profiles } from "../../src/host/profiles/index.js";
import {
  ALONE,
  AWK,
  CAT,
  DEPTH,
  GREP,
  JQ,
  LS,
  RG,
  SED,
  WITH_FILE,
  WITH_VALUE,
} from "../../src/host/profiles/search.js";
import { has, missingPrograms } from "../setup/programs.js";
import { isMistake, makeBench, type Program } from "./support/spellings.js";

const bench = makeBench();
const { run } = bench;
afterAll(() => bench.close());

function check(title: string, program: Program): void {
  const file = program.program ?? program.name;
  test(title, { timeout: 60_000 }, async ({ skip }) => {
    const missing = missingPrograms(file, ...(file === "tar" ? ["bzip2", "xz", "zstd"] : []));
    if (missing !== undefined) skip(missing);
    expect(await bench.wrongSpellings(program)).toEqual([]);
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
  test("the profile of jq reads options with separate words as jq does", async ({ skip }) => {
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
  test("the profile of find reads every spelling of its options as find does", { timeout: 60_000 }, async () => {
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
    // Of a commit: what is not committed yet has the time of asking.
    blame: ["HEAD", "a.txt"],
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
  test("the profile of git permits stash list, -C and --no-pager", async ({ skip }) => {
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
    isMistake: ({ code, stderr }) => (code !== 0 && !/exists/.test(stderr)) || /unrecognized|Try 'tar/.test(stderr),
    runs: bench.runInCopy,
  });
  test("the profile of npm reads every spelling of its options as npm does", { timeout: 60_000 }, async ({ skip }) => {
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
    // 2: the words are not a command line. Whether there is IPv6 here is another question.
    isMistake: ({ code }) => code === 2,
  });
});

describe("the check itself", () => {
  test("the check of spellings detects a form that the program does not know [M4]", async ({ skip }) => {
    if (!has("git") || !has("curl")) skip("git or curl is not installed here");
    expect(isMistake(await run("git", ["diff", "-U", "5"], "git"))).toBe(true);
    expect((await run("curl", ["--max-time=2", "http://127.0.0.1:1/"], "curl")).code).toBe(2);
  });
});
