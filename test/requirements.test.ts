// docs/requirements.md is generated from test/requirements.json and the tests; docs/recovery.md and docs/threat-model.md
// cite tests that exist.

import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { PAGE, problemsOf, readRequirements, readTags, render, tagsOf } from "../scripts/requirements.mjs";

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

const readFile = (file: string): string | undefined => {
  const path = join(ROOT, file);
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
};

/** A title is a whole text in the file, between its quotes, with or without ids of requirements at its end. */
function isTestName(text: string, name: string): boolean {
  const title = name.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`(["'\`])${title}(?: \\[[A-Z0-9 ]+\\])?\\1`).test(text);
}

describe("docs/requirements.md", () => {
  const all = readRequirements();
  const tags = readTags();

  it("docs/requirements.md is up to date with test/requirements.json and the titles of the tests", () => {
    expect(readFile(PAGE)).toBe(render(all, tags));
  });

  it("test/requirements.json has every id once, in order", () => {
    expect(all.requirements.map(({ id }) => id)).toEqual(IDS);
  });

  it("each requirement has at least one test for each of its clauses", () => {
    expect(problemsOf(all, tags)).toEqual([]);
  });

  it.each(all.requirements)("the requirement $id has a text and names files that exist", ({ clauses, doneBy }) => {
    expect(clauses.filter((clause) => clause.trim() === "")).toEqual([]);
    expect(clauses.join("; ").length).toBeGreaterThan(10);
    expect(doneBy.length).toBeGreaterThan(0);
    expect(doneBy.filter((file) => readFile(file) === undefined)).toEqual([]);
  });

  it.each([
    ["docs/recovery.md", 40],
    ["docs/stories.md", 25],
  ])("%s names tests that exist", (page, least) => {
    const text = readFileSync(join(ROOT, page), "utf8");
    const cited = [...text.matchAll(/`((?:src|test)\/[^`]+\.ts)`: ((?:"[^"]*"(?:, )?)+)/g)];
    expect(cited.length).toBeGreaterThan(least);
    const missing = cited.flatMap(([, file = "", names = ""]) =>
      [...names.matchAll(/"([^"]*)"/g)]
        .map(([, name = ""]) => name)
        .filter((name) => !isTestName(readFile(file) ?? "", name))
        .map((name) => `${file}: ${name}`),
    );
    expect(missing).toEqual([]);
  });

  it("test/requirements.json has the ids of the gathered requirements", ({ skip }) => {
    if (!existsSync(GATHERED)) return skip("the gathered requirements are not beside this repository");
    const ids = [...readFileSync(GATHERED, "utf8").matchAll(/^\| ([A-Z]\d+) \|/gm)].map(([, id]) => id);
    expect(ids).toEqual(IDS);
  });
});

describe("the generator of docs/requirements.md", () => {
  const requirement = { id: "U1", clauses: ["it works", "it ends"], doneBy: ["a.ts"] };
  const all = { families: { U: "the call" }, requirements: [requirement] };
  const text = [
    'it("works [U1]", () => {});',
    "it.each([])(`ends after ${ms} ms [U1 U2]`, () => {});",
    'it("has no id", () => {}); // it("[U1]", and "quotes" [U1]',
    'it.skipIf(has("x"))("runs [not run] [U2]", () => {});',
  ].join("\n");

  it("tagsOf finds the ids at the end of titles, and only there", () => {
    expect(tagsOf("a.test.ts", text)).toEqual([
      { file: "a.test.ts", title: "works", ids: ["U1"] },
      { file: "a.test.ts", title: "ends after ${ms} ms", ids: ["U1", "U2"] },
      { file: "a.test.ts", title: "runs [not run]", ids: ["U2"] },
    ]);
  });

  it("problemsOf reports unknown ids and requirements with fewer tests than clauses", () => {
    const [works] = tagsOf("a.test.ts", text);
    expect(problemsOf(all, works === undefined ? [] : [works])).toEqual(["U1 has 2 clauses and 1 tests"]);
    expect(problemsOf(all, tagsOf("a.test.ts", text))).toEqual([
      'a.test.ts: "ends after ${ms} ms" names U2, which is not a requirement',
      'a.test.ts: "runs [not run]" names U2, which is not a requirement',
    ]);
  });

  it("render writes one row for a requirement, with its tests by file", () => {
    expect(render(all, tagsOf("a.test.ts", text))).toContain(
      '\n## U · the call\n\n| id | requirement | done by | shown by |\n|---|---|---|---|\n| U1 | it works; it ends | `a.ts` | `a.test.ts`: "works", "ends after ${ms} ms" |\n',
    );
  });
});

/** `file`: "title", as the pages cite a test. */
function citations(text: string): [file: string, title: string][] {
  return [...text.matchAll(/`([^`]+\.test\.ts|[^`]+\.contract\.ts)`: "([^"]+)"/g)].map(([, file = "", title = ""]) => [
    file,
    title,
  ]);
}

function uncited(text: string): string[] {
  return citations(text).flatMap(([file, title]) =>
    isTestName(readFile(file) ?? "", title) ? [] : [`${file}: ${title}`],
  );
}

describe("the threat model", () => {
  const text = readFileSync(join(ROOT, "docs/threat-model.md"), "utf8");
  const rows = [...text.matchAll(/^\| (?!attack |item |\d|-)(.*?) \| (.*) \| (.*) \|$/gm)];

  it("names, for every attack, tests that have these titles", () => {
    expect(rows.length).toBeGreaterThan(30);
    for (const [, attack = "", , shownBy = ""] of rows) {
      expect([attack, citations(shownBy).length > 0]).toEqual([attack, true]);
      expect([attack, uncited(shownBy)]).toEqual([attack, []]);
    }
  });

  it("SECURITY.md names, for everything that is defended, tests that have these titles", () => {
    const [, section = ""] = readFileSync(join(ROOT, "SECURITY.md"), "utf8").split("## What Portcullis defends");
    const [defended = ""] = section.split("\n## ");
    const claims = defended.split(/^- /m).slice(1);
    expect(claims.length).toBeGreaterThan(10);
    for (const claim of claims) {
      const text = claim.replaceAll(/\s+/g, " ");
      expect([text, citations(text).length > 0]).toEqual([text, true]);
      expect([text, uncited(text)]).toEqual([text, []]);
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
