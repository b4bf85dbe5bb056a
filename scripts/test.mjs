// `npm test` and, with --long, `npm run test:long`. Further arguments go to vitest.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { build, checkNode, install, root, say } from "./steps.mjs";

const args = process.argv.slice(2);
const long = args[0] === "--long";
if (long) args.shift();
checkNode();
install();
build();
if (!long && args.length === 0) {
  const checked = spawnSync(process.execPath, [join(root, "scripts", "check.mjs")], { cwd: root, stdio: "inherit" });
  if (checked.status !== 0) process.exit(checked.status ?? 1);
}
say(long ? "running the long tests (soak, a million cases, chaos) …" : "running the tests …");
const tested = spawnSync(process.execPath, [join(root, "node_modules", "vitest", "vitest.mjs"), "run", ...args], {
  cwd: root,
  stdio: "inherit",
  env: { ...process.env, ...(long ? { LONG: "1" } : {}) },
});
process.exit(tested.status ?? 1);
