// Writes docs/requirements.md from test/requirements.json and the titles of the tests. A test shows a requirement when
// its title ends with the id in brackets: `it("denies without a permit [U7 L10]", …)`.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { root, say } from "./steps.mjs";

export const PAGE = "docs/requirements.md";
const DATA = "test/requirements.json";
const TITLE = /(["'`])((?:\\.|(?!\1)[^\\\n])+) \[((?:[A-Z]\d{1,2})(?: [A-Z]\d{1,2})*)\]\1/g;

const HEAD = `# Requirements

What Portcullis must do, by id, with the files that do it and the tests that show it. A requirement without a test
that would fail without it is not met. Stories of \`test/e2e/stories.ts\` are tests in each of the seven modes of
[stories.md](stories.md).

Faults, recovery and operations have a table of their own: [recovery.md](recovery.md).

This page is generated: the texts are in \`test/requirements.json\`, and a test is listed when its title ends with the id,
as in \`"… [U7]"\`. \`npm run format\` writes it; \`test/requirements.test.ts\` fails when it is out of date.
`;

/** `readRequirements` returns the families and the requirements, in the order of the page. */
export function readRequirements() {
  return JSON.parse(readFileSync(join(root, DATA), "utf8"));
}

/** The the files whose titles are read: tests, contracts and what they share. */
function testFiles() {
  return ["src", "test"].flatMap((directory) =>
    readdirSync(join(root, directory), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && isTestFile(join(entry.parentPath, entry.name)))
      .map((entry) =>
        join(entry.parentPath, entry.name)
          .slice(root.length + 1)
          .replaceAll("\\", "/"),
      )
      .sort(),
  );
}

function isTestFile(path) {
  const name = path.slice(root.length + 1).replaceAll("\\", "/");
  if (name === "test/requirements.test.ts") return false;
  return name.startsWith("test/") ? name.endsWith(".ts") : /\.(test|contract)\.ts$/.test(name);
}

/** `tagsOf` returns the titles of one file that end with ids. */
export function tagsOf(file, text) {
  return [...text.matchAll(TITLE)].map(([, , title, ids]) => ({ file, title, ids: ids.split(" ") }));
}

export function readTags() {
  return testFiles().flatMap((file) => tagsOf(file, readFileSync(join(root, file), "utf8")));
}

/** `problemsOf` names the requirements without enough tests, and the tags of unknown ids. */
export function problemsOf({ requirements }, tags) {
  const known = new Set(requirements.map(({ id }) => id));
  const unknown = tags.flatMap(({ file, title, ids }) =>
    ids.filter((id) => !known.has(id)).map((id) => `${file}: "${title}" names ${id}, which is not a requirement`),
  );
  const few = requirements.flatMap(({ id, clauses }) => {
    const shown = tags.filter(({ ids }) => ids.includes(id)).length;
    return shown < clauses.length ? [`${id} has ${clauses.length} clauses and ${shown} tests`] : [];
  });
  return [...unknown, ...few];
}

export function render({ families, requirements }, tags) {
  const parts = Object.entries(families).map(([letter, name]) => {
    const rows = requirements.filter(({ id }) => id.startsWith(letter)).map((each) => row(each, tags));
    return `## ${letter} · ${name}\n\n| id | requirement | done by | shown by |\n|---|---|---|---|\n${rows.join("\n")}\n`;
  });
  return [HEAD, ...parts].join("\n");
}

function row({ id, clauses, doneBy }, tags) {
  const titles = new Map();
  for (const tag of tags.filter(({ ids }) => ids.includes(id))) {
    titles.set(tag.file, [...(titles.get(tag.file) ?? []), `"${tag.title.replaceAll("|", "\\|")}"`]);
  }
  const shown = [...titles].map(([file, names]) => `\`${file}\`: ${[...new Set(names)].join(", ")}`);
  const files = doneBy.map((file) => `\`${file}\``);
  return `| ${id} | ${clauses.join("; ")} | ${files.join(", ")} | ${shown.join("; ")} |`;
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const tags = readTags();
  const requirements = readRequirements();
  writeFileSync(join(root, PAGE), render(requirements, tags));
  const problems = problemsOf(requirements, tags);
  for (const problem of problems) say(problem);
  if (problems.length > 0) process.exit(1);
}
