// Wraps the prose of Markdown files at one width. `--check` changes nothing and fails on a line that is too long.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { root, say } from "./steps.mjs";

export const WIDTH = 120;

/** Written by programs, or compared line by line with code. */
const GENERATED = ["CHANGELOG.md", "docs/errors.md", "docs/metrics.md", "docs/reference/", "docs/requirements.md"];
/** Pages that still have long lines. Entries are only ever removed. */
const NOT_YET = ["docs/recovery.md", "docs/stories.md", "docs/threat-model.md"];

const VERBATIM = /^\s*(#|\||<|>|\[[^\]]+\]:|(-{3,}|\*{3,})$)/;
const ITEM = /^(\s*)([-*+]|\d+[.)])(\s+)/;
/** A word at the start of a line that Markdown would take for something else. */
const NOT_FIRST = /^([-+*#>|=]+|\d+[.)])$/;
/** Code spans and links stay on one line. */
const WORD = /(?:`[^`]*`|!?\[[^\]]*\]\([^)]*\)|[^\s`[]|\[|`)+/g;

export function wrap(text) {
  const out = [];
  let block;
  let fence = "";
  const flush = () => {
    if (block) out.push(...fill(block));
    block = undefined;
  };
  for (const line of text.split("\n")) {
    const [, mark] = /^\s*(`{3,}|~{3,})/.exec(line) ?? [];
    if (fence !== "" || mark !== undefined || line.trim() === "" || VERBATIM.test(line)) {
      flush();
      out.push(line);
      if (fence === "" && mark !== undefined) fence = mark;
      else if (mark !== undefined && line.trim() === fence) fence = "";
      continue;
    }
    const item = ITEM.exec(line);
    if (item || !block) {
      flush();
      const first = item?.[0] ?? /^\s*/.exec(line)[0];
      block = { first, rest: " ".repeat(first.length), text: line.slice(first.length) };
    } else block.text += ` ${line.trim()}`;
    if (/ {2}$|\\$/.test(line)) flush();
  }
  flush();
  return out.join("\n");
}

function fill({ first, rest, text }) {
  const lines = [];
  let line = first;
  let isEmpty = true;
  for (const [word] of text.matchAll(WORD)) {
    const fits = line.length + (isEmpty ? 0 : 1) + word.length <= WIDTH;
    if (!isEmpty && !fits && !NOT_FIRST.test(word)) {
      lines.push(line);
      line = rest;
      isEmpty = true;
    }
    line += (isEmpty ? "" : " ") + word;
    isEmpty = false;
  }
  return [...lines, line];
}

/** The lines of a text that are too long and could be shorter, as `line: text`. */
export function tooLong(text) {
  const wrapped = new Set(wrap(text).split("\n"));
  return text
    .split("\n")
    .map((line, index) => ({ line, number: index + 1 }))
    .filter(({ line }) => line.length > WIDTH && !wrapped.has(line))
    .map(({ line, number }) => `${number}: ${line.slice(0, 60)} …`);
}

export function pages() {
  const names = ["", "docs", "bench", "examples"].flatMap((directory) =>
    readdirSync(join(root, directory), { recursive: directory !== "" })
      .map((name) => join(directory, String(name)).replaceAll("\\", "/"))
      .filter((name) => name.endsWith(".md")),
  );
  const isLeftOut = (name) => [...GENERATED, ...NOT_YET].some((each) => name === each || name.startsWith(each));
  return names.filter((name) => !isLeftOut(name) && !name.includes("node_modules/")).sort();
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const isCheck = process.argv.includes("--check");
  for (const name of pages()) {
    const text = readFileSync(join(root, name), "utf8");
    const long = tooLong(text);
    if (long.length === 0) continue;
    if (!isCheck) writeFileSync(join(root, name), wrap(text));
    else {
      for (const line of long) say(`${name}:${line}`);
      process.exitCode = 1;
    }
  }
  if (process.exitCode) say("run `npm run format` to wrap these lines");
}
