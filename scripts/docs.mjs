// `npm run docs`: the documentation as a site in site/dist, with the API reference of the published subpaths.
// Only the first run needs the package registry, for the tools in site/package-lock.json. A dead link fails the build.
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { root, run, say } from "./steps.mjs";

const site = join(root, "site");
const pages = join(site, ".pages");
const { exports: subpaths, repository } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const sources = `${repository.url.replace(/^git\+|\.git$/g, "")}/blob/main`;

function installTools() {
  if (existsSync(join(site, "node_modules", "vitepress"))) return;
  say("installing the tools of the documentation site, once (about a minute) …");
  run(
    process.platform === "win32" ? "npm.cmd" : "npm",
    ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"],
    {
      cwd: site,
      stdio: ["ignore", 2, 2],
    },
  );
}

/** Markdown and pictures of the repository, at the same paths, so that relative links hold. */
function trackedPages() {
  const tracked = execFileSync("git", ["ls-files", "-z", "*.md", "docs/**"], { cwd: root, encoding: "utf8" }).split(
    "\0",
  );
  return tracked.filter((path) => /^(?!\.|site\/|test\/|src\/|node_modules\/).+\.(md|svg|png)$/.test(path));
}

const LINK = /(\]\()([^)\s#]+)(#[^)\s]*)?\)/g;

/** A link to a file that is not a page leads to the repository. */
function withSourceLinks(path, text, known) {
  return text.replaceAll(LINK, (whole, open, target, anchor = "") => {
    if (/^[a-z]+:/i.test(target)) return whole;
    const resolved = posix.join(dirname(path), target);
    if (known.has(resolved) || !existsSync(join(root, resolved))) return whole;
    const readme = `${resolved.replace(/\/$/, "")}/README.md`;
    return known.has(readme) ? `${open}/${readme}${anchor})` : `${open}${sources}/${resolved}${anchor})`;
  });
}

function copyPages() {
  rmSync(pages, { recursive: true, force: true });
  const paths = trackedPages();
  const known = new Set(paths);
  for (const path of paths) {
    const target = join(pages, path);
    mkdirSync(dirname(target), { recursive: true });
    if (!path.endsWith(".md")) copyFileSync(join(root, path), target);
    else writeFileSync(target, withSourceLinks(path, readFileSync(join(root, path), "utf8"), known));
  }
  return paths.length;
}

/** `./dist/mcp/client/index.js` is compiled from `src/mcp/client/index.ts`. */
function sourceOf({ default: compiled }) {
  return compiled.replace("./dist/", "src/").replace(/\.js$/, ".ts");
}

function writeApiReference() {
  // The package itself exports what its subpaths export.
  const entries = Object.entries(subpaths)
    .filter(([name, each]) => name !== "." && typeof each === "object")
    .map(([, each]) => sourceOf(each));
  run(process.execPath, [
    join(site, "node_modules", "typedoc", "bin", "typedoc"),
    ...entries,
    ...["--plugin", "typedoc-plugin-markdown", "--out", join(pages, "api"), "--tsconfig", "site/tsconfig.json"],
    ...["--skipErrorChecking", "--excludePrivate", "--excludeInternal", "--hideGenerator", "--githubPages", "false"],
    ...["--readme", "none", "--name", "API", "--logLevel", "Warn", "--disableSources"],
    ...[
      "--outputFileStrategy",
      "modules",
      "--fileExtension",
      ".md",
      "--entryFileName",
      "README.md",
      "--validation.notExported",
      "false",
    ],
  ]);
}

installTools();
say(`copied ${copyPages()} pages and pictures`);
writeApiReference();
run(process.execPath, [join(site, "node_modules", "vitepress", "bin", "vitepress.js"), "build", site]);
const built = readdirSync(join(site, "dist"), { recursive: true }).filter((name) => String(name).endsWith(".html"));
say(`the documentation site is in site/dist: ${built.length} pages`);
