// Help as a reader meets it: grouped, with examples and exit codes, within 80 columns.

import { expect, it } from "vitest";
import { portcullis } from "./serving.js";

const EXIT_CODES =
  /Exit codes: 0 ok, 1 error, 2 denied, 3 invalid policy, 4 not authenticated,\s+5 waits for approval, 64 wrong usage/;

it("groups the commands of the program, and ends with examples and exit codes", () => {
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

it("groups the options of a command that has many, and shows its own examples", () => {
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

it("suggests the command that was mistyped", () => {
  const { code, stderr } = portcullis(["sevre"]);
  expect(code).toBe(64);
  expect(stderr).toContain("Did you mean serve?");
});
