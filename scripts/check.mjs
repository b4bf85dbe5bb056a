// Everything that is checked without running: types, format, lint, dead code, the package's shape.
import { join } from "node:path";
import { build, checkNode, install, root, run, say } from "./steps.mjs";

checkNode();
install();
build();
const bin = (name) => join(root, "node_modules", ".bin", name);
const checks = [
  ["types", "tsc", ["--noEmit", "-p", "."]],
  ["format", "biome", ["format", "."]],
  ["lint", "oxlint", ["--quiet", "src", "test", "scripts", "examples", "bench"]],
  ["unused code", "knip", []],
  ["package", "publint", ["--strict"]],
  ["types as others see them", "attw", ["--pack", ".", "--profile", "esm-only", "--quiet"]],
];
for (const [what, command, args] of checks) {
  say(`checking ${what} …`);
  run(bin(command), args, { stdio: ["ignore", "inherit", "inherit"] });
}
