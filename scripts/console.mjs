// Bundles the console into dist/console: one page, its fingerprinted scripts and styles, and its icons. Every file is
// served as it is; the editor and the charts are chunks of their own, loaded by the screens that use them.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { buildSync } from "esbuild";
import { root } from "./steps.mjs";

/** The path under which the admin port serves the console. */
const BASE = "/console/";
const MAX_COUNT = 9;

const source = join(root, "console", "src");
const out = join(root, "dist", "console");

bundle();

function bundle() {
  rmSync(out, { recursive: true, force: true });
  const { metafile } = buildSync({
    entryPoints: [join(source, "main.tsx")],
    outdir: join(out, "assets"),
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    publicPath: `${BASE}assets`,
    bundle: true,
    splitting: true,
    format: "esm",
    target: "es2022",
    minify: true,
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    metafile: true,
    logLevel: "warning",
    absWorkingDir: root,
  });
  const [script, { cssBundle }] = Object.entries(metafile.outputs).find(([, { entryPoint }]) =>
    entryPoint?.endsWith("main.tsx"),
  );
  const served = (path) => BASE + relative(out, join(root, path)).replaceAll("\\", "/");
  const page = readFileSync(join(source, "index.html"), "utf8");
  mkdirSync(out, { recursive: true });
  writeFileSync(
    join(out, "index.html"),
    page.replace("{{script}}", served(script)).replace("{{style}}", served(cssBundle)).replaceAll("{{base}}", BASE),
  );
  writeFileSync(join(out, "licenses.txt"), licenses(Object.keys(metafile.inputs)));
  const icon = readFileSync(join(source, "icon.svg"), "utf8");
  writeFileSync(join(out, "icon.svg"), icon);
  for (let count = 1; count <= MAX_COUNT + 1; count++)
    writeFileSync(join(out, `icon-${count}.svg`), counted(icon, count));
}

/** The icon with the number of requests that wait. */
function counted(icon, count) {
  const text = count > MAX_COUNT ? `${MAX_COUNT}+` : String(count);
  const badge =
    '<circle cx="44" cy="44" r="20" fill="#d92d20"/>' +
    `<text x="44" y="53" font-family="system-ui,sans-serif" font-size="${count > MAX_COUNT ? 22 : 27}" font-weight="700" text-anchor="middle" fill="#fff">${text}</text>`;
  return icon.replace("</svg>", `${badge}</svg>`);
}

/** The licences of the packages in the bundle. */
function licenses(inputs) {
  const packages = new Set(inputs.flatMap((path) => path.match(/^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/) ?? []));
  return [...packages]
    .sort()
    .map((path) => {
      const { name, version } = JSON.parse(readFileSync(join(root, path, "package.json"), "utf8"));
      const file = readdirSync(join(root, path)).find((entry) => /^licen[cs]e/i.test(entry));
      return `${name} ${version}\n\n${readFileSync(join(root, path, file), "utf8").trim()}\n`;
    })
    .join(`\n${"-".repeat(80)}\n\n`);
}
