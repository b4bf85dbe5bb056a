import { execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { beforeAll, describe, expect, it } from "vitest";
import { compileLedger } from "./fixtures/compile.js";
import { randomFrom } from "./fixtures/entries.js";
import { inspectAfterKill, writeAndKill } from "./fixtures/kill-trial.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";

const ROUNDS = 10;
const scratch = scratchDirectory();
let modules = "";

beforeAll(() => {
  modules = compileLedger(scratch.path);
});

describe("kill -9 under load", () => {
  it(`loses no acknowledged record and never prevents a start (${ROUNDS} kills) [U9]`, async () => {
    const dir = scratch.fresh();
    const random = randomFrom(Date.now());
    const acknowledged = new Map<number, string>();
    for (let round = 0; round < ROUNDS; round++) {
      const more = await writeAndKill(modules, dir, round, random);
      for (const [seq, call] of more) acknowledged.set(seq, call);
      expect(await inspectAfterKill(dir, acknowledged), `kill ${round}`).toBeUndefined();
    }
    expect(acknowledged.size).toBeGreaterThan(100);
  });
});

describe("a process whose files may not grow any more", () => {
  it("reports the failure, loses nothing, and continues when writing is allowed again", async (context) => {
    if (!existsSync("/usr/bin/prlimit")) return context.skip("setting a file size limit needs prlimit of util-linux");
    const dir = scratch.fresh();
    const writer = [process.execPath, join(modules, "fixtures/writer.js"), dir, "0"];
    const child = spawn("prlimit", ["--fsize=60000:unlimited", ...writer], { stdio: ["ignore", "pipe", "inherit"] });
    const acknowledged = new Map<number, string>();
    let refused: string | undefined;
    let afterwards = 0;
    for await (const line of createInterface({ input: child.stdout })) {
      const [first = "", second = ""] = line.split(" ");
      if (first === "refused") {
        // After the first rejection the limit is removed; what follows shows that the ledger continues by itself.
        if (refused === undefined) execFileSync("prlimit", ["--pid", String(child.pid), "--fsize=unlimited:unlimited"]);
        refused = second;
      } else if (second !== "") {
        acknowledged.set(Number(first), second);
        if (refused !== undefined && ++afterwards === 500) child.kill("SIGKILL");
      }
    }
    expect(refused).toBe("disk_full");
    expect(await inspectAfterKill(dir, acknowledged)).toBeUndefined();
  });
});
