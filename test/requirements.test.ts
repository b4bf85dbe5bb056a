// docs/requirements.md tells the truth: every promise is there, with files that exist and tests that have those names.

import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = resolve(import.meta.dirname, "..");
const GATHERED = join(ROOT, "../shared/requirements.md");

// biome-ignore format: one line a family
const IDS = [
  "U1", "U2", "U3", "U4", "U5", "U6", "U7", "U8", "U9", "U10", "U11", "U12", "U13", "U14",
  "H1", "H2", "H3", "H4", "H5", "H6", "H7", "H8", "H9", "H10", "H11", "H12", "H13",
  "G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8",
  "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10",
  "M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "M12",
];

interface Row {
  id: string;
  promise: string;
  keptBy: string;
  shownBy: string;
}

function rowsOf(text: string): Row[] {
  return [...text.matchAll(/^\| ([A-Z]\d+) \| (.*?) \| (.*?) \| (.*) \|$/gm)].map(
    ([, id = "", promise = "", keptBy = "", shownBy = ""]) => ({ id, promise, keptBy, shownBy }),
  );
}

const NOT_YET = /^not yet \((gateway|host|lattice)\)$/;

/** What is wrong with a row, in words. `read` gives a file's text, or nothing when there is none. */
function problemsOf({ id, promise, keptBy, shownBy }: Row, read: (file: string) => string | undefined): string[] {
  if (promise.trim().length < 10) return [`${id} says nothing`];
  if (NOT_YET.test(keptBy)) return shownBy === "–" ? [] : [`${id} is not built yet and has a test`];
  const files = [...keptBy.matchAll(/`([^`]+)`/g)].map(([, file = ""]) => file);
  if (files.length === 0) return [`${id} names neither a file nor the part it waits for`];
  const found = files.filter((file) => read(file) === undefined).map((file) => `${id}: there is no ${file}`);
  const tests = [...shownBy.matchAll(/(?:^|; )`([^`]+)`: ((?:"[^"]*"(?:, )?)+)/g)];
  if (tests.length !== shownBy.split("; `").length) found.push(`${id}: "shown by" is not file: "name", "name"; …`);
  for (const [, file = "", names = ""] of tests) {
    const text = read(file);
    if (text === undefined) found.push(`${id}: there is no ${file}`);
    for (const [, name = ""] of names.matchAll(/"([^"]*)"/g)) {
      if (text !== undefined && !isTestName(text, name)) found.push(`${id}: ${file} has no test "${name}"`);
    }
  }
  return found;
}

/** A title is a whole text in the file, between its quotes. */
function isTestName(text: string, name: string): boolean {
  return [`"${name}"`, `\`${name}\``, `'${name}'`].some((title) => text.includes(title));
}

const readFile = (file: string): string | undefined => {
  const path = join(ROOT, file);
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
};

describe("the list of promises", () => {
  const rows = rowsOf(readFileSync(join(ROOT, "docs/requirements.md"), "utf8"));

  it("has every id once, in order", () => {
    expect(rows.map((row) => row.id)).toEqual(IDS);
  });

  it.each(rows.map((row) => [row.id, row] as const))("%s names files that exist and tests that are there", (_, row) => {
    expect(problemsOf(row, readFile)).toEqual([]);
  });

  it("names tests of recovery that are there", () => {
    const text = readFileSync(join(ROOT, "docs/recovery.md"), "utf8");
    const cited = [...text.matchAll(/`((?:src|test)\/[^`]+\.ts)`: ((?:"[^"]*"(?:, )?)+)/g)];
    expect(cited.length).toBeGreaterThan(40);
    const missing = cited.flatMap(([, file = "", names = ""]) =>
      [...names.matchAll(/"([^"]*)"/g)]
        .map(([, name = ""]) => name)
        .filter((name) => !isTestName(readFile(file) ?? "", name))
        .map((name) => `${file}: ${name}`),
    );
    expect(missing).toEqual([]);
  });

  it("has the ids of the gathered requirements", ({ skip }) => {
    if (!existsSync(GATHERED)) return skip("the gathered requirements are not beside this repository");
    const ids = [...readFileSync(GATHERED, "utf8").matchAll(/^\| ([A-Z]\d+) \|/gm)].map(([, id]) => id);
    expect(ids).toEqual(IDS);
  });
});

describe("a row that is wrong is found", () => {
  const files: Record<string, string> = { "a.ts": "", "a.test.ts": 'it("works", () => {}); // it fails' };
  const row = { id: "U1", promise: "it works well", keptBy: "`a.ts`", shownBy: '`a.test.ts`: "works"' };

  it.each<[string, Partial<Row>, string[]]>([
    ["nothing wrong", {}, []],
    ["not built", { keptBy: "not yet (host)", shownBy: "–" }, []],
    [
      "a part nobody knows",
      { keptBy: "not yet (moon)", shownBy: "–" },
      ["U1 names neither a file nor the part it waits for"],
    ],
    ["not built, with a test", { keptBy: "not yet (host)" }, ["U1 is not built yet and has a test"]],
    ["no such file", { keptBy: "`b.ts`" }, ["U1: there is no b.ts"]],
    ["no such test file", { shownBy: '`b.test.ts`: "works"' }, ["U1: there is no b.test.ts"]],
    ["no such test", { shownBy: '`a.test.ts`: "works", "it fails"' }, ['U1: a.test.ts has no test "it fails"']],
    ["no test", { shownBy: "–" }, ['U1: "shown by" is not file: "name", "name"; …']],
    [
      "a file without names",
      { shownBy: '`a.test.ts`: "works"; `a.ts`' },
      ['U1: "shown by" is not file: "name", "name"; …'],
    ],
    ["no words", { promise: "" }, ["U1 says nothing"]],
  ])("%s", (_, change, problems) => {
    expect(problemsOf({ ...row, ...change }, (file) => files[file])).toEqual(problems);
  });
});

describe("the threat model", () => {
  const text = readFileSync(join(ROOT, "docs/threat-model.md"), "utf8");
  const rows = [...text.matchAll(/^\| (?!attack |item |\d|-)(.*?) \| (.*) \| (.*) \|$/gm)];

  it("names, for every attack, tests that exist", () => {
    expect(rows.length).toBeGreaterThan(30);
    for (const [, attack = "", , shownBy = ""] of rows) {
      const files = [...shownBy.matchAll(/`([^`]+)`/g)].map(([, file = ""]) => file);
      expect([attack, files.length > 0]).toEqual([attack, true]);
      expect([attack, files.filter((file) => !existsSync(join(ROOT, file)))]).toEqual([attack, []]);
    }
  });

  it("names, for every clause, a test that has this title", () => {
    const clauses = [...text.matchAll(/^\| (\d+) \| (.*) \| `([^`]+)`: "(.*)" \|$/gm)];
    const items = new Set(clauses.map(([, item]) => Number(item)));
    expect([...items].sort((a, b) => a - b)).toEqual(Array.from({ length: 23 }, (_, i) => i + 1));
    const missing = clauses.filter(([, , , file = "", title = ""]) => !isTestName(readFile(file) ?? "", title));
    expect(missing.map(([row]) => row)).toEqual([]);
  });
});
