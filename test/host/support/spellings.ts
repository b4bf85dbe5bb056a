// Every way in which an option of a table may be typed, and the one spelling of each that its program surely knows; and a
// bench to run both on.

import { execFile, execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ProfileName } from "../../../src/host/index.js";
import type { OptionTable, ValueRule } from "../../../src/host/profiles/grammar.js";
import { isProblem, profiles } from "../../../src/host/profiles/index.js";
import { has } from "../../setup/programs.js";

interface Spelling {
  readonly option: string;
  /** As a caller might type it. */
  readonly typed: readonly string[];
  /** The same as the program's own manual has it. */
  readonly plain: readonly string[];
}

/** `sample` gives a value that shows whether it was understood. */
function spellingsOf(table: OptionTable, sample: (option: string) => string | undefined): Spelling[] {
  const between = table.longValues === "word" ? " " : "=";
  return [
    ...table.flags.map((option) => ({ option, typed: [option], plain: [option] })),
    ...Object.entries(table.values ?? {}).flatMap(([option, rule]) => {
      const value = sample(option) ?? usual(rule, option);
      const isLong = option.startsWith("--");
      const plain = isLong && between === "=" ? [`${option}=${value}`] : [option, value];
      const joined = isLong ? `${option}=${value}` : option + value;
      return [[joined], [option, value]].map((typed) => ({ option, typed, plain }));
    }),
    ...Object.entries(table.optional ?? {}).flatMap(([option, rule]) => {
      const value = sample(option) ?? usual(rule, option);
      const joined = option.startsWith("--") ? `${option}=${value}` : option + value;
      const mayBeAlone = typeof rule !== "function" || rule("") === undefined;
      return [[joined], ...(mayBeAlone ? [[option]] : [])].map((typed) => ({ option, typed, plain: typed }));
    }),
  ];
}

function usual(rule: ValueRule, option: string): string {
  const value = rule === "number" ? "2" : "auto";
  if (rule === "number" || (typeof rule === "function" && rule(value) === undefined)) return value;
  throw new Error(`give a sample value for ${option} in spellings.test.ts`);
}

export interface Outcome {
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
  /** What it left in the directory, for those that write. */
  readonly files?: readonly string[];
}

type Run = (program: string, args: readonly string[], name: ProfileName) => Promise<Outcome>;

export interface Program {
  readonly name: ProfileName;
  /** The file, where it is not the profile's name. */
  readonly program?: string;
  readonly first?: readonly string[];
  readonly table: OptionTable;
  readonly samples?: Readonly<Record<string, string>>;
  /** What stands around an option for it to mean something. */
  readonly around?: (option: string, words: readonly string[]) => readonly string[];
  readonly isMistake?: (outcome: Outcome) => boolean;
  readonly runs?: Run;
  /** Options that the profile takes and makes nothing of. */
  readonly isIgnored?: (option: string) => boolean;
  /** Options that not every build has. */
  readonly mayLack?: readonly string[];
}

/** GNU's and git's words for a command line they do not understand; their exit codes are above 1. */
export function isMistake({ code, stderr }: Outcome): boolean {
  const words = /unknown|unrecognized|unrecognised|invalid option|ambiguous argument|requires an argument|usage:/i;
  return (code !== 0 && code !== 1) || words.test(stderr);
}

const AT_ONCE = 4;

export interface Bench {
  readonly run: Run;
  /** For programs that write: each run has a directory of its own. */
  readonly runInCopy: Run;
  /** Every spelling that does not do what the manual's does, with what it did instead. */
  wrongSpellings(program: Program): Promise<string[]>;
  close(): void;
}

export function makeBench(): Bench {
  const base = mkdtempSync(join(tmpdir(), "spellings-"));
  const world = join(base, "world");
  const runIn = (cwd: string, program: string, args: readonly string[], name: ProfileName): Promise<Outcome> => {
    const env = environment(base, name);
    return new Promise((resolve) => {
      const child = execFile(
        program,
        args,
        { cwd, env, timeout: 20_000, maxBuffer: 10_000_000 },
        (error, stdout, stderr) => resolve({ code: error === null ? 0 : (error.code ?? "killed"), stdout, stderr }),
      );
      child.stdin?.end();
    });
  };
  const run: Run = (...call) => runIn(world, ...call);
  fill(world);
  if (has("git")) makeRepository(world, environment(base, "git"));
  return {
    run,
    async runInCopy(...call) {
      const directory = mkdtempSync(join(base, "copy-"));
      for (const file of ["a.tar", "a.txt", "sub"])
        cpSync(join(world, file), join(directory, file), { recursive: true });
      const outcome = await runIn(directory, ...call);
      return { ...outcome, files: readdirSync(directory, { recursive: true }).map(String).sort() };
    },
    wrongSpellings: (program) => wrongSpellings(program, program.runs ?? run),
    close: () => rmSync(base, { recursive: true, force: true }),
  };
}

function environment(home: string, name: ProfileName): Record<string, string> {
  return { PATH: process.env.PATH ?? "", HOME: home, LANG: "C.UTF-8", ...profiles[name].env };
}

function fill(world: string): void {
  mkdirSync(join(world, "sub"), { recursive: true });
  writeFileSync(join(world, "a.txt"), "one\ntwo needle\n\nthree\n");
  writeFileSync(join(world, "sub/b.txt"), "needle two\n");
  writeFileSync(join(world, "a.json"), '{ "b": [1, "é"], "a": null }\n');
  writeFileSync(join(world, "Makefile"), "all:\n\t@echo made\n");
  writeFileSync(join(world, "sub/Makefile"), "all:\n\t@echo made below\n");
  writeFileSync(join(world, "package.json"), '{ "name": "x", "version": "1.0.0", "scripts": { "test": "echo" } }\n');
  execFileSync("tar", ["-cf", "a.tar", "sub"], { cwd: world });
}

function makeRepository(world: string, env: Record<string, string>): void {
  const git = (...args: string[]): void => {
    const identity = ["-c", "user.name=test", "-c", "user.email=t@example.invalid"];
    execFileSync("git", [...identity, ...args], { cwd: world, stdio: "ignore", env });
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

async function wrongSpellings(program: Program, run: Run): Promise<string[]> {
  const manuals = new Map<string, Promise<Outcome>>();
  const runOnce: Run = (file, args, name) => {
    const key = JSON.stringify(args);
    const known = manuals.get(key) ?? run(file, args, name);
    manuals.set(key, known);
    return known;
  };
  const waiting = spellingsOf(program.table, (option) => program.samples?.[option]);
  const wrong: string[] = waiting.length === 0 ? ["the table is empty"] : [];
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const problem = await compare(program, next, run, runOnce);
      if (problem !== undefined) wrong.push(problem);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return wrong;
}

async function compare(
  program: Program,
  { option, typed, plain }: Spelling,
  run: Run,
  runManual: Run,
): Promise<string | undefined> {
  const { name, first = [], around = (_, words) => words } = program;
  const file = program.program ?? name;
  const asked = [...first, ...around(option, typed)];
  const arranged = profiles[name].arrange(asked);
  if (isProblem(arranged)) return `${asked.join(" ")}: refused: ${arranged.problem}`;
  const manual = [...first, ...around(option, program.isIgnored?.(option) === true ? [] : plain)];
  const [got, wanted] = [await run(file, arranged.argv, name), await runManual(file, manual, name)];
  if ((program.isMistake ?? isMistake)(wanted) && program.mayLack?.includes(option) !== true)
    return `${manual.join(" ")}: no option of ${file}: ${wanted.stderr}`;
  const same = got.code === wanted.code && got.stdout === wanted.stdout && `${got.files}` === `${wanted.files}`;
  const shown = `${asked.join(" ")}: ${arranged.argv.join(" ")}`;
  return same ? undefined : `${shown} gave ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`;
}
