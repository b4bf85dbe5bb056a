// Writes CHANGELOG.md from the files of .changeset. Without an argument it renews the section "Unreleased"; with a
// version it makes that section the version's, sets the version of the package and removes the files.
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root, run, say } from "./steps.mjs";

const HEADINGS = { major: "Breaking changes", minor: "Features", patch: "Fixes" };
const TITLE =
  "# Changelog\n\nEvery change that a user can notice, newest version first. [VERSIONING.md](VERSIONING.md) says what is breaking.\n";

const version = process.argv[2];
if (version !== undefined && !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version)) {
  say(`invalid version \`${version}\`: expected X.Y.Z`);
  process.exit(64);
}
const directory = join(root, ".changeset");
const files = readdirSync(directory)
  .filter((name) => name.endsWith(".md") && name !== "README.md")
  .sort();
const changes = files.map((name) => {
  const [, kind, text] =
    /^---\n"portcullis": (major|minor|patch)\n---\n\n([^]+)$/.exec(readFileSync(join(directory, name), "utf8")) ?? [];
  if (kind === undefined)
    throw new Error(`.changeset/${name}: expected "portcullis": major, minor or patch, and a text`);
  return { kind, text: text.trim().replaceAll(/\n(?=.)/g, "\n  ") };
});
const sections = Object.entries(HEADINGS).flatMap(([kind, heading]) => {
  const texts = changes.filter((change) => change.kind === kind).map(({ text }) => `- ${text}`);
  return texts.length === 0 ? [] : [`### ${heading}\n\n${texts.join("\n")}\n`];
});
const path = join(root, "CHANGELOG.md");
const before = existsSync(path) ? readFileSync(path, "utf8") : "";
const released = /\n(## \d[^]*)$/.exec(before)?.[1] ?? "";
const name = version === undefined ? "Unreleased" : version;
writeFileSync(path, [TITLE, `## ${name}\n`, ...sections, released].filter(Boolean).join("\n"));
if (version !== undefined) {
  run("npm", ["version", version, "--no-git-tag-version", "--ignore-scripts"], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  for (const file of files) rmSync(join(directory, file));
}
