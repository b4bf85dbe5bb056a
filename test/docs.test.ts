// The documentation holds: every snippet runs as it is written, every link leads somewhere, the README stays short.
//
// - `ts`: checked by the compiler and run by Node; it has to end by itself. A snippet continues the one before it,
//   unless it declares a name anew.
// - `sh`: typed line by line into one folder a page; `# exit code 2` in a line says how it ends.
// - `cedar`: checked against the demonstration tools. `yaml` and `json`: parsed; a `cases` file is run against the
//   nearest policy above it. A second word after the fence is the file's name, for the commands that follow.
// - no language, or `text`: for reading only.
// A snippet that cannot run has `<!-- not run: why -->` before it.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { referencePages } from "../scripts/reference.mjs";
import { tooLong, wrap, pages as wrappedPages } from "../scripts/wrap-markdown.mjs";
import { ROUTES } from "../src/admin/routes.js";
import { compile, type Module, modulesOf, runModule } from "./docs/modules.js";
import { anchors, relativeLinks, type Snippet, snippetsOf } from "./docs/snippets.js";
import { commandsOf, Terminal } from "./docs/terminal.js";

const ROOT = resolve(import.meta.dirname, "..");
const MODULE_MS = 120_000;
const PAGE_MS = 600_000;

const pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", ...markdownIn("docs")];
const linking = [...pages, "bench/README.md", ...markdownIn("examples"), ...markdownIn(".changeset")];
const LANGUAGES = ["ts", "sh", "cedar", "yaml", "json", "text", ""];

/** What a mistake looks like, so that the checks themselves are checked. */
const BROKEN = [
  "# Broken",
  "```ts",
  'import { createServer } from "portcullis/server";',
  "const server = createServer(5);",
  "```",
  "```ts",
  'import { connect } from "portcullis/client";',
  "const server = 1;",
  "throw new Error(`server ${server} ${typeof connect}`);",
  "```",
  "```ts",
  "const server = setInterval(() => {}, 1_000);",
  "```",
].join("\n");

function markdownIn(folder: string): string[] {
  if (!existsSync(join(ROOT, folder))) return [];
  return readdirSync(join(ROOT, folder), { recursive: true })
    .map((name) => join(folder, String(name)).replaceAll("\\", "/"))
    .filter((name) => name.endsWith(".md"))
    .sort();
}

const textOf = (page: string): string => readFileSync(join(ROOT, page), "utf8");
const snippets = new Map(pages.map((page) => [page, snippetsOf(page, textOf(page))] as const));
const running = (page: string): Snippet[] => (snippets.get(page) ?? []).filter((each) => each.notRun === undefined);
const typescript = (all: readonly Snippet[]): Module[] => modulesOf(all.filter((each) => each.language === "ts"));
const modules = new Map(pages.map((page) => [page, typescript(running(page))] as const));
const broken = typescript(snippetsOf("broken.md", BROKEN));

let folder: string;
/** Outside the package, as a reader's directory is: the servers of a gateway cannot write into its package. */
let outside: string;
let complaints: Map<string, string[]>;

beforeAll(() => {
  if (!existsSync(join(ROOT, "dist", ".built"))) throw new Error("there is no build: run `npm run build` first");
  mkdirSync(join(ROOT, ".test-results"), { recursive: true });
  folder = mkdtempSync(join(ROOT, ".test-results", "docs-"));
  outside = mkdtempSync(join(tmpdir(), "portcullis-docs-"));
  complaints = compile(ROOT, join(folder, "ts"), [...modules.values()].flat().concat(broken));
});

afterAll(() => {
  for (const path of [folder, outside]) rmSync(path, { recursive: true, force: true });
});

describe("the README", () => {
  it("the README is under 500 words", () => {
    expect(textOf("README.md").split(/\s+/).filter(Boolean).length).toBeLessThan(500);
  });
});

describe("the picture of the README", () => {
  it("the picture of the README shows the commands of a first run and lines of the output that they print", {
    timeout: PAGE_MS,
  }, async () => {
    const lines = [...textOf("docs/first-calls.svg").matchAll(/<text [^>]*>(.*)<\/text>/g)].map(([, text = ""]) =>
      text.replaceAll("&#x27;", "'").replaceAll("&quot;", '"'),
    );
    const exitCodes = [0, 2, 5, 0];
    const terminal = new Terminal(ROOT, workFolder("picture"), "docs/first-calls.svg");
    const withoutNames = (text: string): string =>
      text.replaceAll(/ch_[\w-]+/g, "ch_ID").replace(/local\/\S+/, "local/USER");
    let id = "";
    let printed: string[] = [];
    try {
      await terminal.type({ line: 0, text: "portcullis serve", exitCode: 0 });
      for (const line of lines) {
        if (line.startsWith("$ ")) {
          const text = line.slice(2).replace(/ch_[\w-]+/, id);
          const output = await terminal.type({ line: 0, text, exitCode: exitCodes.shift() as number });
          id = /ch_[\w-]+/.exec(output)?.[0] ?? id;
          printed = output.split("\n").map(withoutNames);
        } else expect(printed).toContain(withoutNames(line));
      }
    } finally {
      await terminal.close();
    }
    expect(exitCodes).toEqual([]);
  });
});

describe("the reference", () => {
  it.each(referencePages())("$page is what its schema says: run `npm run format` when it is not", ({ page, text }) => {
    expect(textOf(page)).toBe(text);
  });
});

describe("the reference of the admin API", () => {
  it("names every path that the admin port serves, and no other", () => {
    const served = ["server.ts", "registrations.ts"]
      .map((name) => textOf(`src/admin/${name}`))
      .flatMap((text) => [...text.matchAll(/"(\/[a-z][a-z0-9/.-]*)"/g)].map(([, path]) => path as string));
    const operations = Object.values(ROUTES).map(({ method, path }) => `${method} ${path}`);
    const page = textOf("docs/reference/admin-api.md");
    expect(served.filter((path) => !page.includes(path))).toEqual([]);
    expect(operations.filter((operation) => !page.includes(`| \`${operation}\` |`))).toEqual([]);
    const named = [...page.matchAll(/`(?:GET|POST|PUT|DELETE) (\/v1\/[a-z-]+)/g)].map(([, path]) => path as string);
    expect(named.length).toBeGreaterThan(50);
    const known = [...served, ...Object.values(ROUTES).map(({ path }) => path)];
    expect(named.filter((path) => !known.some((each) => each.startsWith(path)))).toEqual([]);
  });
});

describe("the decisions", () => {
  it("the decision records are all in the index", () => {
    const index = relativeLinks(textOf("docs/decisions/README.md")).map(({ target }) => `docs/decisions/${target}`);
    expect(["docs/decisions/README.md", ...index].sort()).toEqual(markdownIn("docs/decisions"));
  });

  const records = markdownIn("docs/decisions").filter((page) => !page.endsWith("README.md"));

  it("the decision records are numbered from 1 without a gap, in the file name and in the title", () => {
    const numbers = records.map((page) => /\/(\d{4})-[a-z-]+\.md$/.exec(page)?.[1]);
    expect(numbers).toEqual(records.map((_, index) => String(index + 1).padStart(4, "0")));
    expect(records.map((page) => /^# (\d{4}) · \S/.exec(textOf(page))?.[1])).toEqual(numbers);
  });

  it.each(records)("%s states context, choice and cost", (page) => {
    const headings = [...textOf(page).matchAll(/^## (.*)$/gm)].map(([, heading]) => heading);
    expect(headings.slice(0, 3)).toEqual(["Context", "Choice", "Cost"]);
    expect(headings.slice(3).filter((each) => each !== "Measured" && each !== "Not taken")).toEqual([]);
  });
});

describe("the guides", () => {
  it.each([...markdownIn("docs/guides"), "docs/glossary.md"])(
    "%s starts with what the reader will be able to do",
    (page) => {
      expect(textOf(page)).toMatch(/^# [^\n]+\n\nAfter this page you can [^]+?\./);
    },
  );
});

describe("Markdown", () => {
  it.each(wrappedPages())("%s is wrapped at one width", (page) => {
    expect(tooLong(textOf(page))).toEqual([]);
  });

  it("Markdown is wrapped without a change to tables, code, items and code spans", () => {
    const long = "word ".repeat(30).trim();
    const code = "code ".repeat(30).trim();
    const text = "text ".repeat(30).trim();
    const page = `# ${code}\n\n| ${code} |\n\n\`\`\`sh\n${code}\n\`\`\`\n\n- ${long} - \`${code}\`\n  end\n\n${text}\n`;
    expect(tooLong(page)).toEqual([`9: ${`- ${long}`.slice(0, 60)} …`, `12: ${text.slice(0, 60)} …`]);
    const wrapped = wrap(page);
    expect(wrapped.split("\n").slice(0, 8)).toEqual(page.split("\n").slice(0, 8));
    expect(wrapped.split("\n").slice(8)).toEqual([
      `- ${"word ".repeat(23).trim()}`,
      `  ${"word ".repeat(7).trim()} -`,
      `  \`${code}\``,
      "  end",
      "",
      "text ".repeat(24).trim(),
      "text ".repeat(6).trim(),
      "",
    ]);
    expect(wrap(wrapped)).toBe(wrapped);
  });
});

describe("links", () => {
  it.each(linking)("links of %s lead to something that exists", (page) => {
    expect(deadLinks(page, textOf(page))).toEqual([]);
  });

  it("links to a missing file and to a missing heading are found", () => {
    const text = "[a](docs/nothing.md) `[b](c.md)` [d](docs/errors.md#timeout)\n[e](docs/errors.md#no-such-error)";
    expect(deadLinks("README.md", text)).toEqual([
      "README.md:1: docs/nothing.md",
      "README.md:2: docs/errors.md#no-such-error",
    ]);
  });
});

function deadLinks(page: string, text: string): string[] {
  return relativeLinks(text)
    .filter(({ target }) => {
      const [path = "", anchor] = target.split("#");
      const file = join(ROOT, dirname(page), path);
      return !existsSync(file) || (anchor !== undefined && !anchors(readFileSync(file, "utf8")).has(anchor));
    })
    .map(({ line, target }) => `${page}:${line}: ${target}`);
}

describe.each(pages)("%s", (page) => {
  it("each snippet of a page is in a language that is run, or says why not", () => {
    const all = snippets.get(page) ?? [];
    const unknown = all.filter((each) => each.notRun === undefined && !LANGUAGES.includes(each.language));
    expect(unknown.map((each) => `${page}:${each.line}: ${each.language}`)).toEqual([]);
    for (const each of all)
      if (each.notRun !== undefined) console.info(`${page}:${each.line} is not run: ${each.notRun}`);
  });

  for (const module of modules.get(page) ?? []) {
    it(`the TypeScript from line ${module.line} of ${page} compiles and runs`, { timeout: MODULE_MS * 2 }, async () => {
      expect(complaints.get(module.name) ?? []).toEqual([]);
      await runModule(join(folder, "ts"), module, workFolder(module.name), MODULE_MS);
    });
  }

  const commands = running(page).filter((each) => ["sh", "cedar", "yaml", "json"].includes(each.language));
  if (commands.length > 0) {
    it("the commands, policies and data of a page run from top to bottom", { timeout: PAGE_MS }, async () => {
      const terminal = new Terminal(ROOT, workFolder(page.replaceAll(/\W+/g, "-")), page);
      try {
        await readThrough(terminal, commands);
      } finally {
        await terminal.close();
      }
    });
  }
});

function workFolder(name: string): string {
  const path = join(outside, name);
  mkdirSync(path, { recursive: true });
  return path;
}

async function readThrough(terminal: Terminal, all: readonly Snippet[], above?: string): Promise<void> {
  let policy = above;
  for (const snippet of all) {
    const { page, line, language, code } = snippet;
    const file = snippet.file ?? `line-${line}.${language}`;
    if (language !== "sh") terminal.write(file, code);
    switch (language) {
      case "sh":
        for (const command of commandsOf(snippet)) await terminal.type(command);
        break;
      case "cedar":
        policy = file;
        await terminal.type({ line, text: `portcullis policy check --policy ${file}`, exitCode: 0 });
        break;
      case "json":
        parseAt(snippet, JSON.parse);
        break;
      case "yaml":
        if (!Object.hasOwn(Object(parseAt(snippet, parse)), "cases")) break;
        if (policy === undefined) throw new Error(`${page}:${line}: these cases have no policy above them`);
        await terminal.type({ line, text: `portcullis policy test ${file} --policy ${policy}`, exitCode: 0 });
        break;
    }
  }
}

function parseAt({ page, line, code }: Snippet, read: (text: string) => unknown): unknown {
  try {
    return read(code);
  } catch (error) {
    throw new Error(`${page}:${line}: ${(error as Error).message}`);
  }
}

describe("a mistake in a page", () => {
  it("a type error in a page is found at its line", () => {
    expect(broken.map(({ line, name }) => [line, (complaints.get(name) ?? []).length])).toEqual([
      [3, 1],
      [7, 0],
      [12, 0],
    ]);
    expect(complaints.get(broken[0]?.name ?? "")?.[0]).toMatch(/^broken\.md:4: .*TS2345/);
  });

  it("a snippet that throws is found at its line", async () => {
    const failed = runModule(join(folder, "ts"), broken[1] as Module, workFolder("throws"), MODULE_MS);
    await expect(failed).rejects.toThrow(/broken\.md:7 ended with exit code 1[^]*server 1 function[^]*\.ts:9:/);
  });

  it("a snippet that never ends is stopped and found", async () => {
    const failed = runModule(join(folder, "ts"), broken[2] as Module, workFolder("hangs"), 3_000);
    await expect(failed).rejects.toThrow("broken.md:12 was still running after 3000 ms");
  });

  it.each([
    ["sh", "portcullis policy explain shell.run '{}' --policy p.cedar", "ended with exit code 2, not 0"],
    ["sh", "portcullis no-such-command # exit code 65", "ended with exit code 64, not 65"],
    ["sh", "npm run no-such-script", "names no script of package.json"],
    ["cedar", 'permit (principal, action == Action::"notes.wrote", resource);', "notes.wrote"],
    ["yaml", "cases:\n  - tool: clock.now\n    expect: permit", "1 failed"],
    ["yaml", "a: [", "Flow sequence"],
    ["json", "{ a: 1 }", "Expected property name"],
  ])("a mistake in %s is found: %s", { timeout: PAGE_MS }, async (language, code, message) => {
    const terminal = new Terminal(ROOT, workFolder(`broken-${language}-${code.length}`), "broken.md");
    terminal.write("p.cedar", "forbid (principal, action, resource);");
    const all = snippetsOf("broken.md", `\`\`\`${language}\n${code}\n\`\`\`\n`);
    await expect(readThrough(terminal, all, "p.cedar")).rejects.toThrow(message);
  });

  it("a fence that is never closed is found", () => {
    expect(() => snippetsOf("broken.md", "# Broken\n\n```ts\nconst a = 1;\n")).toThrow(
      "broken.md:3: this fence is never closed",
    );
  });
});

describe("snippets", () => {
  it("snippets are taken with their line, language, file name and the reason not to run them", () => {
    const page =
      "a\n\n<!-- not run: needs a network -->\n\n```sh\ncurl x\n```\n\n- b\n\n  ~~~yaml cases.yaml\n  a: 1\n  ~~~\n";
    expect(snippetsOf("p.md", page)).toEqual([
      { page: "p.md", line: 6, language: "sh", file: undefined, code: "curl x\n", notRun: "needs a network" },
      { page: "p.md", line: 12, language: "yaml", file: "cases.yaml", code: "a: 1\n", notRun: undefined },
    ]);
  });

  it("snippets continue each other, with each import once and lines in their place, until a name is declared anew", () => {
    const page = [
      'import { a, type B } from "x";',
      "const one = a;",
      'import { a, c } from "x";',
      'import fs from "node:fs";',
      "const { two, three: four } = c;",
      'import fs from "node:fs";',
      "let four = 4;",
    ];
    const parts: Snippet[] = [
      [1, 0, 2],
      [5, 2, 5],
      [10, 5, 7],
    ].map(([line = 0, from, to]) => ({
      page: "p.md",
      line,
      language: "ts",
      file: undefined,
      code: `${page.slice(from, to).join("\n")}\n`,
      notRun: undefined,
    }));
    expect(modulesOf(parts).map(({ line, code }) => [line, code.trimEnd().split("\n")])).toEqual([
      [1, ['import { a, type B } from "x";', "const one = a;", "", "", 'import { c } from "x";', page[3], page[4]]],
      [10, ["", "", "", "", "", "", "", "", "", page[5], page[6]]],
    ]);
  });

  it("snippets of a shell are commands, comments aside, with the exit code that the page tells", () => {
    const [snippet] = snippetsOf("p.md", "```sh\n# first\na --b \\\n  c   # why\n\nd  # denied: exit code 2\n```\n");
    expect(commandsOf(snippet as Snippet)).toEqual([
      { line: 3, text: "a --b   c   # why", exitCode: 0 },
      { line: 6, text: "d  # denied: exit code 2", exitCode: 2 },
    ]);
  });
});
