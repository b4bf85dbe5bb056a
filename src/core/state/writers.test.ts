import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { compileWriter } from "./fixtures/compile.js";
import { git, gitIsMissing } from "./fixtures/git.js";
import { Repository } from "./repository.js";

const WRITERS = 8;
const UPDATES = Number(process.env.STATE_UPDATES ?? 3);
const missing = gitIsMissing();
const base = mkdtempSync(join(tmpdir(), "writers-"));
let writer = "";
beforeAll(() => {
  writer = compileWriter(base);
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

function run(repository: string, name: string, count: number): { done: Promise<number | null>; kill: () => void } {
  const child = spawn(process.execPath, [writer, repository, name, String(count)], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  return { done: new Promise((resolve) => child.once("close", resolve)), kill: () => child.kill("SIGKILL") };
}

async function fileOf(repository: string, path: string): Promise<string> {
  return (await new Repository({ repository }).read(path))?.content ?? "";
}

describe.skipIf(missing)(`writers in processes of their own${missing ? ` (${missing})` : ""}`, () => {
  it("lose no update of each other, and every change is in the history", async () => {
    const repository = join(base, "shared.git");
    const running = Array.from({ length: WRITERS }, (_, i) => run(repository, `w${i}`, UPDATES).done);
    expect(await Promise.all(running)).toEqual(Array.from({ length: WRITERS }, () => 0));
    expect(await fileOf(repository, "counter")).toBe(String(WRITERS * UPDATES));
    const lines = (await fileOf(repository, "shared/log")).trimEnd().split("\n");
    const expected = Array.from({ length: WRITERS }, (_, w) => Array.from({ length: UPDATES }, (_, i) => `w${w} ${i}`));
    expect(lines.sort()).toEqual(expected.flat().sort());
    for (let w = 0; w < WRITERS; w++) expect(await fileOf(repository, `own/w${w}`)).toBe(String(UPDATES - 1));
    const commits = git(repository, "log", "--format=%(trailers:key=Trace,valueonly,separator=)", "main");
    const traces = commits.trimEnd().split("\n");
    expect(traces).toHaveLength(WRITERS * UPDATES * 3);
    expect(new Set(traces).size).toBe(WRITERS * UPDATES);
    expect(git(repository, "rev-list", "--min-parents=2", "main")).toBe("");
    git(repository, "fsck", "--strict");
    expect(readdirSync(repository).filter((name) => /tmp|stale|turn/.test(name))).toEqual([]);
  });

  it("that are killed leave a whole repository behind, and the next one goes on", { timeout: 120_000 }, async () => {
    const repository = join(base, "killed.git");
    for (let i = 0; i < 3; i++) {
      const { done, kill } = run(repository, `k${i}`, 1_000);
      await new Promise((later) => setTimeout(later, 700 + 90 * i));
      kill();
      await done;
    }
    git(repository, "fsck", "--strict");
    const before = Number(await fileOf(repository, "counter"));
    expect(before).toBeGreaterThan(0);
    expect(await run(repository, "last", 1).done).toBe(0);
    expect(Number(await fileOf(repository, "counter"))).toBe(before + 1);
  });
});
