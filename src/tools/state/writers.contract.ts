// Several processes on one history: all in one directory, as the workers of one machine, or in directories of their own, as
// replicas. Short in the ordinary tests, long in the long ones.

import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "../../storage/fixtures/postgres.js";
import { openStorage, type Storage } from "../../storage/index.js";
import { compileWriter } from "./fixtures/compile.js";
import { git, gitIsMissing } from "./fixtures/git.js";
import { Repository } from "./repository.js";
import { historyOf } from "./stored.js";

interface Sizes {
  readonly writers: number;
  readonly updates: number;
  readonly kills: number;
}

const SETTINGS = [
  ["in one directory, on SQLite", { kind: "sqlite", directories: 1 }],
  ["in two directories, on one SQLite", { kind: "sqlite", directories: 2 }],
  ["in two directories, on one PostgreSQL", { kind: "postgres", directories: 2 }],
] as const;

export function testWriters(sizes: Sizes): void {
  const missing = gitIsMissing();
  const base = mkdtempSync(join(tmpdir(), "writers-"));
  let writer = "";
  let cluster: PostgresCluster;
  beforeAll(async () => {
    if (missing) return;
    writer = compileWriter(base);
    cluster = await startPostgres();
  });
  afterAll(async () => {
    await cluster?.stop();
    rmSync(base, { recursive: true, force: true });
  });

  function run(repository: string, store: string, name: string, count: number) {
    const child = spawn(process.execPath, [writer, repository, store, name, String(count)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let acknowledged = 0;
    child.stdout.setEncoding("utf8").on("data", (text: string) => (acknowledged += text.split("\n").length - 1));
    const started = new Promise((resolve) => child.stdout.once("data", resolve));
    const done = new Promise<number | null>((resolve) => child.once("close", resolve));
    return { started, done, kill: () => child.kill("SIGKILL"), acknowledged: () => acknowledged };
  }

  describe.skipIf(missing).each(SETTINGS)(`writers %s${missing ? ` (${missing})` : ""}`, (_, setting) => {
    const opened: Storage[] = [];
    afterAll(async () => {
      for (const storage of opened) await storage.close();
    });

    /** A store with the application in it, and the directories of its replicas. */
    async function world(name: string) {
      const directory = join(base, `${name}-${setting.kind}-${setting.directories}`);
      const store = setting.kind === "postgres" ? await cluster.database() : `sqlite:${join(directory, "store.db")}`;
      const storage = await openStorage(store);
      opened.push(storage);
      await storage.applications.put("blog", {}, "test");
      const directories = Array.from({ length: setting.directories }, (_, i) => join(directory, `${i}.git`));
      const fileAt = async (repository: string, path: string): Promise<string> =>
        (await new Repository({ repository }, historyOf(storage.repositories, "blog")).read(path))?.content ?? "";
      return { store, directories, fileAt, directoryOf: (i: number) => directories[i % directories.length] as string };
    }

    it("lose no update of each other, and every change is in the history [H7]", async () => {
      const { writers, updates } = sizes;
      const { store, directories, directoryOf, fileAt } = await world("shared");
      const running = Array.from({ length: writers }, (_, i) => run(directoryOf(i), store, `w${i}`, updates).done);
      expect(await Promise.all(running)).toEqual(Array.from({ length: writers }, () => 0));
      const all = Array.from({ length: writers }, (_, w) => Array.from({ length: updates }, (_, i) => `w${w} ${i}`));
      for (const repository of directories) {
        expect(await fileAt(repository, "counter")).toBe(String(writers * updates));
        const lines = (await fileAt(repository, "shared/log")).trimEnd().split("\n");
        expect(lines.sort()).toEqual(all.flat().sort());
        for (let w = 0; w < writers; w++) expect(await fileAt(repository, `own/w${w}`)).toBe(String(updates - 1));
        const commits = git(repository, "log", "--format=%(trailers:key=Trace,valueonly,separator=)", "main");
        const traces = commits.trimEnd().split("\n");
        expect(traces).toHaveLength(writers * updates * 3);
        expect(new Set(traces).size).toBe(writers * updates);
        expect(git(repository, "rev-list", "--min-parents=2", "main")).toBe("");
        git(repository, "fsck", "--strict");
        expect(readdirSync(repository).filter((name) => /tmp|stale|turn/.test(name))).toEqual([]);
        expect(git(repository, "for-each-ref", "--format=%(refname)")).toBe("refs/heads/main\n");
      }
      expect(new Set(directories.map((repository) => git(repository, "rev-parse", "main"))).size).toBe(1);
    });

    it("killed writers lose nothing they acknowledged, and the next one continues [H7]", async () => {
      const { store, directories, directoryOf, fileAt } = await world("killed");
      let acknowledged = 0;
      for (let i = 0; i < sizes.kills; i++) {
        const killed = run(directoryOf(i), store, `k${i}`, 1_000);
        await killed.started;
        await sleep((i * 97) % 400);
        killed.kill();
        await killed.done;
        acknowledged += killed.acknowledged();
      }
      // A git that the killed writer had started may still be at work.
      await sleep(500);
      const before = Number(await fileAt(directoryOf(0), "counter"));
      expect(acknowledged).toBeGreaterThan(0);
      // One more for each kill: made, but not yet acknowledged.
      expect(before).toBeGreaterThanOrEqual(acknowledged);
      expect(before).toBeLessThanOrEqual(acknowledged + sizes.kills);
      expect(await run(directoryOf(1), store, "last", 1).done).toBe(0);
      for (const repository of directories) {
        expect(Number(await fileAt(repository, "counter"))).toBe(before + 1);
        git(repository, "fsck", "--strict");
      }
    });
  });
}
