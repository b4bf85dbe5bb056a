// Completion in real shells, each with the script that the command prints. A shell that is not installed is skipped.

import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { has, missingPrograms } from "../setup/programs.js";
import { main } from "./first-hour.js";

let home: string;
const env = (): Record<string, string> => ({
  PATH: `${join(home, "bin")}:${process.env.PATH}`,
  HOME: home,
  TERM: "dumb",
  PORTCULLIS_DIR: join(home, "data"),
});
const run = (program: string, args: readonly string[], input = ""): string => {
  const ran = spawnSync(program, args, { cwd: home, input, encoding: "utf8", env: env(), timeout: 60_000 });
  return ran.stdout + ran.stderr;
};

beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "portcullis-completion-"));
  mkdirSync(join(home, "bin"));
  const shim = join(home, "bin", "portcullis");
  writeFileSync(shim, `#!/bin/sh\nexec "${process.execPath}" "${main}" "$@"\n`);
  chmodSync(shim, 0o755);
  expect(run("portcullis", ["app", "add", "blog"])).toContain("blog");
  for (const shell of ["bash", "zsh", "fish"]) {
    writeFileSync(join(home, `script.${shell}`), run("portcullis", ["completion", shell]));
  }
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

/** Words typed so far, the last one being completed, and what is offered. */
const CASES: readonly [string, readonly string[]][] = [
  ["dis", ["disconnect"]],
  ["connect cur", ["cursor"]],
  ["connect cursor --ap", ["--app"]],
  ["connect cursor --app b", ["blog"]],
  ["app show b", ["blog"]],
  ["--json policy exp", ["explain"]],
  ["serve --log-level w", ["warning"]],
  ["import --from gem", ["gemini"]],
  ["serve --outcomes ", ["flush", "lazy"]],
];

describe("bash", () => {
  it.skipIf(!has("bash"))(
    `offers subcommands, options after positionals, and values ${missingPrograms("bash") ?? ""}`,
    () => {
      for (const [line, expected] of CASES) {
        const words = ["portcullis", ...line.split(" ")].map((word) => `'${word}'`).join(" ");
        const script = `. ./script.bash; COMP_WORDS=(${words}); COMP_CWORD=$((\${#COMP_WORDS[@]}-1)); _portcullis; printf '%s\\n' "\${COMPREPLY[@]}"`;
        expect(run("bash", ["--norc", "-c", script]).trim().split("\n"), line).toEqual(expected);
      }
    },
  );
});

describe("fish", () => {
  it.skipIf(!has("fish"))(
    `offers subcommands, options after positionals, and values ${missingPrograms("fish") ?? ""}`,
    () => {
      for (const [line, expected] of CASES) {
        const script = `source script.fish; complete -C 'portcullis ${line}'`;
        const offered = run("fish", ["--no-config", "-c", script]).trim().split("\n");
        expect(offered.map((each) => each.split("\t")[0]).sort(), line).toEqual([...expected].sort());
      }
    },
  );
});

describe("zsh", () => {
  it.skipIf(!has("zsh"))(
    `offers subcommands, options after positionals, and values ${missingPrograms("zsh") ?? ""}`,
    () => {
      // Completion runs only in the line editor: an interactive shell on a terminal of its own types each line and a tab.
      const unique = CASES.filter(([, expected]) => expected.length === 1);
      const lines = unique.map(([line]) => line);
      writeFileSync(
        join(home, "typed.zsh"),
        `zmodload zsh/zpty
zpty shell zsh -f -i
send() { zpty -w -n shell "$1"; }
send $'PS1=; autoload -U compinit; compinit -u -D; source ./script.zsh; print ready > ready\\n'
for i in {1..200}; do [[ -e ready ]] && break; sleep 0.05; done
send $'record() { print -r -- "$BUFFER" >> typed; BUFFER=; }; zle -N record; bindkey "^X" record; print bound > bound\\n'
for i in {1..200}; do [[ -e bound ]] && break; sleep 0.05; done
n=0
while IFS= read -r words; do
  (( n++ ))
  send "portcullis $words"$'\\t\\x18'
  for i in {1..400}; do [[ -e typed && $(wc -l < typed) -ge $n ]] && break; sleep 0.05; done
done < lines
zpty -d shell
`,
      );
      writeFileSync(join(home, "lines"), lines.map((line) => `${line}\n`).join(""));
      run("zsh", ["-f", "typed.zsh"]);
      const typed = readFileSync(join(home, "typed"), "utf8").trimEnd().split("\n");
      expect(typed.map((line) => line.trimEnd())).toEqual(
        unique.map(([line, [word]]) => `portcullis ${[...line.split(" ").slice(0, -1), word].join(" ")}`),
      );
    },
  );
});
