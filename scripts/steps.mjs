// What the two commands have in common. Only Node's own modules: this runs before anything is installed.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const stamp = join(root, "node_modules", ".installed-lock");

export function say(text) {
  process.stderr.write(`portcullis: ${text}\n`);
}

/** Runs a command and ends this process with its code when it fails. */
export function run(command, args, options = {}) {
  const done = spawnSync(command, args, { cwd: root, stdio: "inherit", ...options });
  if (done.error) {
    say(`cannot run ${command}: ${done.error.message}`);
    process.exit(1);
  }
  if (done.status !== 0) {
    say(`${command} ${args.join(" ")} failed (${done.signal ?? `exit ${done.status}`})`);
    process.exit(done.status ?? 1);
  }
}

export function checkNode() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return;
  say(`Node ${process.versions.node} is too old; install Node 20.19 or later`);
  process.exit(1);
}

/**
 * Installs the locked dependencies once per lock file. npm's own output goes to stderr: stdout may be a protocol.
 */
export function install() {
  const lock = createHash("sha256")
    .update(readFileSync(join(root, "package-lock.json")))
    .digest("hex");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === lock) return;
  say("installing dependencies, once (about a minute) …");
  const npm = process.platform === "win32" ? "npm.cmd" : "npm";
  run(npm, ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], {
    stdio: ["ignore", 2, 2],
  });
  writeFileSync(stamp, lock);
}

function newest(folder) {
  let latest = 0;
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (entry.isFile()) latest = Math.max(latest, statSync(join(entry.parentPath ?? entry.path, entry.name)).mtimeMs);
  }
  return latest;
}

/** Compiles when a source is newer than the last build. */
export function build({ force = false } = {}) {
  const mark = join(root, "dist", ".built");
  const sources = [join(root, "src"), join(root, "console", "src")].map(newest);
  const changed = Math.max(...sources, statSync(join(root, "tsconfig.build.json")).mtimeMs);
  if (!force && existsSync(mark) && statSync(mark).mtimeMs >= changed) return;
  say("compiling …");
  rmSync(join(root, "dist"), { recursive: true, force: true });
  run(process.execPath, [join(root, "node_modules", "typescript", "bin", "tsc"), "-p", "tsconfig.build.json"]);
  // What `portcullis gen` emits as it is: sources in three languages, not part of the program.
  cpSync(join(root, "src/codegen/runtimes"), join(root, "dist/codegen/runtimes"), { recursive: true });
  run(process.execPath, [join(root, "scripts", "console.mjs")]);
  writeFileSync(mark, "");
}
