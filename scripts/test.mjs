// `npm test` and, with --long, `npm run test:long`. Further arguments go to vitest.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { build, checkNode, install, root, say } from "./steps.mjs";

/** What CI runs of the long tests: a fair share of each within its time. Everywhere else the full counts hold. */
const CI_SHARE = {
  CASES: "100000",
  LINE_BYTES: String(256 * 1024 * 1024),
  CONNECTIONS: "5000",
  POLICY_PAIRS: "10000",
  KILLS: "50",
  POWER_TRIALS: "500",
  FLIPS: "10000",
  SCHEMA_CASES: "5000",
  PATTERN_CASES: "200000",
  RELOADS: "500",
  RACE_OPENS: "50000",
  RACE_WRITES: "2500",
  RACE_SPAWNS: "200",
  PROCESS_ROUNDS: "1",
  ATTACK_REPEATS: "20",
  ATTACK_SHARE: "5",
  LATTICE_TRIPLES: "20000",
  LATTICE_WORKFLOWS: "3000",
  LATTICE_LAWS: "60",
  LATTICE_EDITS_EVERY: "200",
  LATTICE_GATES: "60",
  CODEGEN_VALUES: "30",
  CODEGEN_RANDOM: "100",
  CODEGEN_CSHARP_EVERY: "8",
  SERVER_CYCLES: "100",
  FAULT_SECONDS: "30",
  CHAOS_FAULT_SECONDS: "100",
  NOISY_ROUNDS: "1",
  NOISY_SECONDS: "1",
};

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
  env: { ...(long && process.env.CI ? CI_SHARE : {}), ...process.env, ...(long ? { LONG: "1" } : {}) },
});
process.exit(tested.status ?? 1);
