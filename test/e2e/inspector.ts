// The MCP inspector's command line, given a client's configuration as a client would have it.

import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { dirname } from "node:path";

const require = createRequire(import.meta.url);
const cli = require.resolve("@modelcontextprotocol/inspector-cli");

export interface Inspected {
  readonly code: number | null;
  readonly answer: any;
  readonly text: string;
}

/** `args` as the inspector takes them: `--method tools/list`. */
export function inspect(
  configFile: string,
  args: readonly string[],
  how: { node?: string; cli?: string; env?: Record<string, string> } = {},
): Inspected {
  const { node = process.execPath, cli: program = cli } = how;
  const command = [program, "--cli", "--config", configFile, "--server", "portcullis-host", ...args];
  const ran = spawnSync(node, command, {
    encoding: "utf8",
    timeout: 120_000,
    // It looks for its own package.json beside the current folder.
    cwd: dirname(program),
    env: how.env ?? process.env,
  });
  let answer: unknown;
  try {
    answer = JSON.parse(ran.stdout);
  } catch {
    answer = undefined;
  }
  return { code: ran.status, answer, text: `${ran.stdout}${ran.stderr}` };
}
