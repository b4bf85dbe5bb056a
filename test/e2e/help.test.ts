// Help as a reader meets it: grouped, with examples and exit codes, within 80 columns.

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { Command } from "commander";
import { expect, it } from "vitest";
import { has } from "../setup/programs.js";
import { main } from "./first-hour.js";
import { portcullis, root } from "./serving.js";

interface Commands {
  readonly COMMANDS: Readonly<Record<string, Readonly<Record<string, string>>>>;
  addCommand(program: Command, name: string): Promise<boolean>;
}
interface Help {
  readonly EXIT_HELP: string;
  addExamples(command: Command): void;
}

const EXIT_CODES =
  /Exit codes: 0 ok, 1 error, 2 denied, 3 invalid policy, 4 not authenticated,\s+5 waits for approval, 64 wrong usage/;

it("the help of the program groups its commands, and ends with examples and exit codes", () => {
  const { code, stdout } = portcullis(["--help"]);
  expect(code).toBe(0);
  const headings = stdout.split("\n").filter((line) => /^[A-Z][a-z ]+:$/.test(line));
  expect(headings).toEqual([
    "Options:",
    "Start:",
    "Call tools:",
    "Decide:",
    "Audit:",
    "Applications:",
    "Host:",
    "Operate:",
    "Develop:",
    "Commands:",
    "Examples:",
  ]);
  expect(stdout).toMatch(EXIT_CODES);
  expect(stdout.split("\n").filter((line) => line.length > 80)).toEqual([]);
});

it("the help of a command groups many options and shows its own examples", () => {
  const { stdout } = portcullis(["help", "serve"]);
  for (const heading of ["Listen:", "Decide:", "Identify callers:", "Approve:", "Record:", "Store:", "Limits:"]) {
    expect(stdout).toContain(`\n${heading}\n`);
  }
  expect(stdout).toContain("portcullis serve --observe --keep-arguments");
  expect(stdout).toMatch(EXIT_CODES);
  expect(stdout.split("\n").filter((line) => line.length > 80)).toEqual([]);
  // Every option has a group, apart from --help.
  const [, others = ""] = /\nOptions:\n(.*?)\n\n/s.exec(stdout) ?? [];
  expect(others.match(/^ {2}-/gm)).toHaveLength(1);
});

it("a mistyped command is answered with the nearest one", () => {
  const { code, stderr } = portcullis(["sevre"]);
  expect(code).toBe(64);
  expect(stderr).toContain("Did you mean serve?");
});

it("the help of every command shows an example and the exit codes", async () => {
  const { COMMANDS, addCommand }: Commands = await import(join(root, "dist", "cli", "commands.js"));
  const { addExamples, EXIT_HELP }: Help = await import(join(root, "dist", "cli", "help.js"));
  for (const name of Object.values(COMMANDS).flatMap((group) => Object.keys(group))) {
    const program = new Command("portcullis").addHelpText("afterAll", EXIT_HELP);
    expect(await addCommand(program, name), name).toBe(true);
    const command = program.commands.find((each) => each.name() === name) as Command;
    addExamples(command);
    let text = "";
    command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
    expect(text, name).toMatch(new RegExp(`\\nExamples:\\n {2}portcullis (--dir [a-z]+ )?${name}\\b`));
    expect(text, name).toMatch(EXIT_CODES);
  }
});

it("a mistake in the use of a command shows its usage and an example", () => {
  const { code, stderr } = portcullis(["audit", "replay"]);
  expect(code).toBe(64);
  expect(stderr).toBe(
    "error: missing required argument 'policy'\nusage: portcullis audit replay [options] <policy...>\nexample: portcullis audit replay new.cedar\n(portcullis audit replay --help shows more)\n",
  );
});

it.skipIf(!has("bash"))(
  "the help of the program and of each command is printed in 0.3 s of CPU",
  { timeout: 240_000 },
  () => {
    const cpuSeconds = (words: string): number => {
      const script = `TIMEFORMAT="%U %S"; time "${process.execPath}" ${words} >/dev/null`;
      const { stderr } = spawnSync("bash", ["-c", script], {
        encoding: "utf8",
        env: { ...process.env, NODE_OPTIONS: "" },
      });
      const [user = Number.NaN, system = Number.NaN] = stderr.trim().split(" ").map(Number);
      return user + system;
    };
    /** On a busy machine the same work takes more: what counts is the best of several runs, and six bare starts of Node. */
    const isPrompt = (words: string): boolean => {
      for (let run = 0; run < 10; run++) {
        const seconds = cpuSeconds(words);
        if (seconds <= 0.3 || seconds <= 6 * cpuSeconds("-e 0")) return true;
      }
      return false;
    };
    for (const words of ["", "serve", "demo", "doctor", "ls", "policy", "audit"]) {
      expect(isPrompt(`"${main}" ${words} --help`), `portcullis ${words} --help`).toBe(true);
    }
  },
);
