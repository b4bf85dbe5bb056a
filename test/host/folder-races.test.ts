// Directories are listed and changed while a second process exchanges the one on the way with a link to the outside. A
// naive control does what most servers do; a run in which it does not escape shows nothing.

import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import {
  executeBy,
  isDenial,
  parsePolicy,
  prepareDeleteDirectory,
  prepareDeleteFile,
  prepareList,
  prepareMakeDirectory,
  prepareMove,
} from "../../src/host/index.js";
import { type OpeningMethod, useOpeningMethod } from "../../src/host/paths/locate.js";
import { exchange } from "./support/attack-setup.js";

const TRIES = Number(process.env.RACE_TRIES ?? 300);
const CONTROL_MS = 60_000;

test.skipIf(process.platform !== "linux").each<OpeningMethod>(["openat2", "o_path"])(
  "nothing outside is listed, made, moved or deleted (%s) [H10]",
  { timeout: 120_000 },
  async (method) => {
    const base = realpathSync(mkdtempSync(join(tmpdir(), "folder-race-")));
    const writableRoot = join(base, "zone");
    const outside = join(base, "outside");
    for (const directory of [join(writableRoot, "sub"), join(outside, "secret")])
      mkdirSync(directory, { recursive: true });
    writeFileSync(join(outside, "file"), "OUTSIDE");
    symlinkSync(outside, join(writableRoot, "sub-link"));
    const loaded = parsePolicy(
      JSON.stringify({
        allowedRoots: [writableRoot],
        writeRules: [{ path: writableRoot, recursive: true, createIfMissing: true }],
      }),
      "test",
    );
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    const { policy } = loaded;
    const stop = await exchange(join(writableRoot, "sub"), join(writableRoot, "sub-link"));
    useOpeningMethod(method);
    const sub = join(writableRoot, "sub");
    let through = 0;
    try {
      for (let i = 0; i < TRIES; i++) {
        const name = `n${i % 10}`;
        const results: object[] = [
          executeBy(prepareMakeDirectory, policy, { path: join(sub, name) }),
          executeBy(prepareMove, policy, { from: join(sub, name), to: join(sub, "moved") }),
          executeBy(prepareDeleteDirectory, policy, { path: join(sub, "moved") }),
          executeBy(prepareDeleteDirectory, policy, { path: join(sub, "secret") }),
          executeBy(prepareDeleteFile, policy, { path: join(sub, "file") }),
          executeBy(prepareMove, policy, { from: join(sub, "file"), to: join(writableRoot, "taken") }),
        ];
        const listing = executeBy(prepareList, policy, { path: sub });
        if (!isDenial(listing)) {
          expect(listing.entries.map(({ name: entry }) => entry)).not.toContain("secret");
          through++;
        }
        through += results.filter((result) => !isDenial(result)).length;
        if (i % 100 === 0) await new Promise(setImmediate);
      }
      expect(readdirSync(outside).sort()).toEqual(["file", "secret"]);
      expect(readdirSync(writableRoot)).not.toContain("taken");
      expect(through).toBeGreaterThan(0);
      expect(await naiveEscapes(writableRoot, sub, outside)).toBe(true);
    } finally {
      useOpeningMethod(undefined);
      await stop();
      rmSync(base, { recursive: true, force: true });
    }
  },
);

/** Checks the path and then uses it: what lies between is long enough. */
async function naiveEscapes(writableRoot: string, sub: string, outside: string): Promise<boolean> {
  const until = Date.now() + CONTROL_MS;
  for (let i = 0; Date.now() < until; i++) {
    const path = join(sub, `naive${i}`);
    try {
      if (!realpathSync(dirname(path)).startsWith(writableRoot)) continue;
      mkdirSync(path);
      renameSync(path, `${path}-moved`);
      rmdirSync(`${path}-moved`);
    } catch {
      // Refused, or exchanged in between.
    }
    if (readdirSync(outside).length > 2) return true;
    if (i % 100 === 0) await new Promise(setImmediate);
  }
  return false;
}
