// `npm run test:nodes`: the same tests on the other versions of Node that people have. The binaries come from the npm
// packages of Node itself.
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build, checkNode, install, root, run, say } from "./steps.mjs";

const VERSIONS = process.argv.slice(2).length > 0 ? process.argv.slice(2) : ["22", "24"];
const platform = process.platform === "win32" ? "win" : process.platform;
checkNode();
install();
build();
for (const version of VERSIONS) {
  const folder = mkdtempSync(join(tmpdir(), `node-${version}-`));
  // Commands of the host run as an ordinary user, who has to be able to start this Node.
  chmodSync(folder, 0o755);
  try {
    say(`fetching Node ${version} …`);
    const name = `node-${platform}-${process.arch}@${version}`;
    run("npm", ["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", folder, name], {
      cwd: folder,
      stdio: ["ignore", 2, 2],
    });
    const bin = join(folder, "node_modules", name.split("@")[0], "bin");
    const node = join(bin, process.platform === "win32" ? "node.exe" : "node");
    say(`running the tests on Node ${spawnSync(node, ["--version"], { encoding: "utf8" }).stdout.trim()} …`);
    const env = { ...process.env, PATH: `${bin}:${process.env.PATH}` };
    run(node, [join(root, "node_modules", "vitest", "vitest.mjs"), "run"], { env });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
