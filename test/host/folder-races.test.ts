// Folders are listed and changed while a second process exchanges the one on the way with a link to the outside. A
// naive control does what most servers do; a run in which it does not escape shows nothing.

import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  rmdirSync,
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
  prepareDeleteFile,
  prepareDeleteDirectory,
  prepareList,
  prepareMakeDirectory,
  prepareMove,
} from "../../src/host/index.js";
import { type OpeningMethod, useOpeningMethod } from "../../src/host/paths/index.js";
import { exchange } from "./support/attack-setup.js";

const TRIES = Number(process.env.RACE_TRIES ?? 300);
const CONTROL_MS = 60_000;

test.skipIf(process.platform !== "linux").each<OpeningMethod>(["openat2", "o_path"])(
  "nothing outside is listed, made, moved or deleted (%s)",
  { timeout: 120_000 },
  async (method) => {
    const base = realpathSync(mkdtempSync(join(tmpdir(), "folder-race-")));
    const zone = join(base, "zone");
    const outside = join(base, "outside");
    for (const folder of [join(zone, "sub"), join(outside, "secret")]) mkdirSync(folder, { recursive: true });
    writeFileSync(join(outside, "file"), "OUTSIDE");
    symlinkSync(outside, join(zone, "sub-link"));
    const loaded = parsePolicy(
      JSON.stringify({ allowedRoots: [zone], writeRules: [{ path: zone, recursive: true, createIfMissing: true }] }),
      "test",
    );
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    const { policy } = loaded;
    const stop = await exchange(join(zone, "sub"), join(zone, "sub-link"));
    useOpeningMethod(method);
    const sub = join(zone, "sub");
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
          executeBy(prepareMove, policy, { from: join(sub, "file"), to: join(zone, "taken") }),
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
      expect(readdirSync(zone)).not.toContain("taken");
      expect(through).toBeGreaterThan(0);
      expect(await naiveEscapes(zone, sub, outside)).toBe(true);
    } finally {
      useOpeningMethod(undefined);
      await stop();
      rmSync(base, { recursive: true, force: true });
    }
  },
);

/** Checks the path and then uses it: what lies between is long enough. */
async function naiveEscapes(zone: string, sub: string, outside: string): Promise<boolean> {
  const until = Date.now() + CONTROL_MS;
  for (let i = 0; Date.now() < until; i++) {
    const path = join(sub, `naive${i}`);
    try {
      if (!realpathSync(dirname(path)).startsWith(zone)) continue;
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
