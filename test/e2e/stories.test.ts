// docs/stories.md is the table of user stories and modes: it names every test that exists, and no other.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { root } from "./serving.js";
import { STORIES } from "./stories.js";

const MODES = ["demo", "module", "imported", "applications", "workers", "host", "replicas"];

it("docs/stories.md lists every story, and each story has a test in each mode", () => {
  const files = readdirSync(import.meta.dirname).filter((name) => /^stories-.*\.test\.ts$/.test(name));
  expect(files.sort()).toEqual(MODES.map((mode) => `stories-${mode}.test.ts`).sort());
  for (const mode of MODES) {
    const text = readFileSync(join(import.meta.dirname, `stories-${mode}.test.ts`), "utf8");
    expect(text).toContain(`runStories("${mode}", ${mode});`);
  }
  const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const table = [
    row(["story", ...MODES]),
    `|${"---|".repeat(MODES.length + 1)}`,
    ...Object.keys(STORIES).map((story) => row([story.replace(/ \[[A-Z0-9 ]+\]$/, ""), ...MODES.map(() => "✓")])),
  ];
  expect(readFileSync(join(root, "docs/stories.md"), "utf8")).toContain(`\n${table.join("\n")}\n`);
});
