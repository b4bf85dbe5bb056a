// Several processes on one repository. Short in the ordinary tests, long in the long ones.

import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { compileWriter } from "./fixtures/compile.js";
import { git, gitIsMissing } from "./fixtures/git.js";
import { Repository } from "./repository.js";

const WRITERS = 8;

export function testWriters(sizes: { updates: number; kills: number }): void {
  const missing = gitIsMissing();
  const base = mkdtempSync(join(tmpdir(), "writers-"));
  let writer = "";
  beforeAll(() => {
    if (!missing) writer = compileWriter(base);
  });
  afterAll(() => rmSync(base, { recursive: true, force: true }));

  function run(repository: string, name: string, count: number) {
    const child = spawn(process.execPath, [writer, repository, name, String(count)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let acknowledged = 0;
    child.stdout.setEncoding("utf8").on("data", (text: string) => (acknowledged += text.split("\n").length - 1));
    const started = new Promise((resolve) => child.stdout.once("data", resolve));
    const done = new Promise<number | null>((resolve) => child.once("close", resolve));
    return { started, done, kill: () => child.kill("SIGKILL"), acknowledged: () => acknowledged };
  }

  async function fileOf(repository: string, path: string): Promise<string> {
    return (await new Repository({ repository }).read(path))?.content ?? "";
  }

  describe.skipIf(missing)(`writers in processes of their own${missing ? ` (${missing})` : ""}`, () => {
    it("lose no update of each other, and every change is in the history", async () => {
      const { updates } = sizes;
      const repository = join(base, "shared.git");
      const running = Array.from({ length: WRITERS }, (_, i) => run(repository, `w${i}`, updates).done);
      expect(await Promise.all(running)).toEqual(Array.from({ length: WRITERS }, () => 0));
      expect(await fileOf(repository, "counter")).toBe(String(WRITERS * updates));
      const lines = (await fileOf(repository, "shared/log")).trimEnd().split("\n");
      const all = Array.from({ length: WRITERS }, (_, w) => Array.from({ length: updates }, (_, i) => `w${w} ${i}`));
      expect(lines.sort()).toEqual(all.flat().sort());
      for (let w = 0; w < WRITERS; w++) expect(await fileOf(repository, `own/w${w}`)).toBe(String(updates - 1));
      const commits = git(repository, "log", "--format=%(trailers:key=Trace,valueonly,separator=)", "main");
      const traces = commits.trimEnd().split("\n");
      expect(traces).toHaveLength(WRITERS * updates * 3);
      expect(new Set(traces).size).toBe(WRITERS * updates);
      expect(git(repository, "rev-list", "--min-parents=2", "main")).toBe("");
      git(repository, "fsck", "--strict");
      expect(readdirSync(repository).filter((name) => /tmp|stale|turn/.test(name))).toEqual([]);
    });

    it("that are killed lose nothing they acknowledged, and the next one goes on", async () => {
      const repository = join(base, "killed.git");
      let acknowledged = 0;
      for (let i = 0; i < sizes.kills; i++) {
        const killed = run(repository, `k${i}`, 1_000);
        await killed.started;
        await sleep((i * 97) % 400);
        killed.kill();
        await killed.done;
        acknowledged += killed.acknowledged();
      }
      // A git that the killed writer had started may still be at work.
      await sleep(500);
      git(repository, "fsck", "--strict");
      const before = Number(await fileOf(repository, "counter"));
      expect(acknowledged).toBeGreaterThan(0);
      // One more for each kill: made, but not yet acknowledged.
      expect(before).toBeGreaterThanOrEqual(acknowledged);
      expect(before).toBeLessThanOrEqual(acknowledged + sizes.kills);
      expect(await run(repository, "last", 1).done).toBe(0);
      expect(Number(await fileOf(repository, "counter"))).toBe(before + 1);
    });
  });
}
