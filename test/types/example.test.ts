// The example is checked, although it is JavaScript, and runs by itself.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { TSC } from "./compile.js";

const ROOT = resolve(import.meta.dirname, "../..");
const EXAMPLE = join(ROOT, "examples", "typed-agents.mjs");

function node(args: readonly string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: ROOT,
    encoding: "utf8",
    timeout: 60_000,
  });
  return { status, output: `${stdout}${stderr}` };
}

describe("the example of typed agents", () => {
  beforeAll(() => {
    if (!existsSync(join(ROOT, "dist", ".built"))) throw new Error("there is no build: run `npm run build` first");
  });

  it("the example of typed agents compiles and fails as its comments say", () => {
    const how = ["--ignoreConfig", "--noEmit", "--allowJs", "--checkJs", "--strict", "--skipLibCheck"];
    const what = ["--target", "es2023", "--module", "nodenext", "--types", "node", "--pretty", "false"];
    expect(node([TSC, ...how, ...what, EXAMPLE])).toEqual({ status: 0, output: "" });
  });

  it("the example of typed agents runs, and is refused five times", () => {
    const { status, output } = node([EXAMPLE]);
    expect(output).toContain("the clerk refunded 40");
    expect(output.match(/^refused, because /gm)).toHaveLength(5);
    expect(status).toBe(0);
  });
});
