// Everything that is checked without running: types, format, lint, dead code, the package's shape.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { build, checkNode, install, root, say } from "./steps.mjs";

checkNode();
install();
build();
const bin = (name) => join(root, "node_modules", ".bin", name);
const checks = [
  ["types as others see them", bin("attw"), ["--pack", ".", "--profile", "esm-only", "--quiet"]],
  ["package", bin("publint"), ["--strict"]],
  ["types", bin("tsc"), ["--noEmit", "-p", "."]],
  ["types of the console", bin("tsc"), ["--noEmit", "-p", "console"]],
  ["lint", bin("oxlint"), ["--quiet", "src", "console", "test", "scripts", "examples", "bench"]],
  ["unused code", bin("knip"), []],
  ["format and order of imports", bin("biome"), ["check", "."]],
  ["width of Markdown", process.execPath, [join(root, "scripts", "wrap-markdown.mjs"), "--check"]],
];
const PARALLEL = 2;

/** Runs one check and prints its output when it fails. */
function check([what, command, args]) {
  return new Promise((resolve) => {
    let output = "";
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += String(chunk)));
    child.once("error", (error) => (output += error.message));
    child.once("close", (code) => {
      say(`${code === 0 ? "checked" : "FAILED:"} ${what}`);
      if (code !== 0) process.stderr.write(`${output}\n`);
      resolve(code === 0);
    });
  });
}

say("checking types, format, lint, unused code and the package …");
const left = [...checks];
let isGood = true;
async function checkRest() {
  for (let next = left.shift(); next; next = left.shift()) isGood = (await check(next)) && isGood;
}
await Promise.all(Array.from({ length: PARALLEL }, checkRest));
process.exit(isGood ? 0 : 1);
