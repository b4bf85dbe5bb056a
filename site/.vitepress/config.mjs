// The documentation as a site: the same Markdown that the repository shows, with search, built without the network.
// `scripts/docs.mjs` copies the pages to site/.pages first.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vitepress";

const CEDAR = JSON.parse(readFileSync(join(import.meta.dirname, "..", "cedar.tmLanguage.json"), "utf8"));
const PAGES = join(import.meta.dirname, "..", ".pages");

/** The first heading of a page is its title in the sidebar. */
function titleOf(page) {
  const heading = /^# (.+)$/m.exec(readFileSync(join(PAGES, page), "utf8"))?.[1];
  return (heading ?? page).replaceAll(/[`*]/g, "");
}

const item = (page) => ({ text: titleOf(page), link: `/${page.replace(/\.md$/, "")}` });

/** Every page of a directory, in the order of the file names; those that are named come first. */
function itemsOf(directory, first = []) {
  const names = readdirSync(join(PAGES, directory)).filter((name) => name.endsWith(".md") && name !== "README.md");
  const rest = names.filter((name) => !first.includes(name)).sort();
  return [...first, ...rest].map((name) => item(`${directory}/${name}`));
}

const GUIDES = [
  "install.md",
  "gateway.md",
  "host.md",
  "policies.md",
  "guardrails.md",
  "tools.md",
  "client.md",
  "operations.md",
];

export default defineConfig({
  title: "Portcullis",
  description: "A policy-first gateway and toolkit for the Model Context Protocol",
  srcDir: ".pages",
  outDir: "dist",
  rewrites: { "README.md": "index.md" },
  cleanUrls: false,
  lastUpdated: false,
  // No page of ours has HTML, and angle brackets in prose are meant as they stand.
  markdown: { html: false, languages: [CEDAR] },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Guides", link: "/docs/guides/gateway" },
      { text: "Reference", link: "/docs/errors" },
      { text: "API", link: "/api/README" },
    ],
    sidebar: [
      { text: "Start", items: [{ text: "Portcullis", link: "/" }, item("ARCHITECTURE.md"), item("SECURITY.md")] },
      { text: "Guides", items: itemsOf("docs/guides", GUIDES) },
      { text: "Reference", items: [...itemsOf("docs"), ...itemsOf("docs/reference")] },
      { text: "Runbook", collapsed: true, items: [item("docs/runbook/README.md"), ...itemsOf("docs/runbook")] },
      { text: "Decisions", collapsed: true, items: [item("docs/decisions/README.md"), ...itemsOf("docs/decisions")] },
      {
        text: "Project",
        collapsed: true,
        items: ["CONTRIBUTING.md", "RELEASING.md", "VERSIONING.md", "ROADMAP.md", "bench/README.md"].map(item),
      },
    ],
  },
});
