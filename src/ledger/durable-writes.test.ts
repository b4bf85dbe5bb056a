import {
  constants,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { nodeFs } from "./files.js";
import { openLedger } from "./ledger.js";

// On Linux the journal's file is opened so that every write is durable when it returns; then `sync` does nothing. The
// power-loss test cannot see that flag, so it is looked up where the kernel shows it.
it.runIf(process.platform === "linux")("the segment being written is open with O_DSYNC", async () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-dsync-"));
  const ledger = await openLedger({ dir: join(dir, "ledger"), origin: "example.com/dsync" });
  await ledger.append({ kind: "admin", actor: "test", action: "write" });
  const open = readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).endsWith(".ndjson");
    } catch {
      return false;
    }
  });
  expect(open).toHaveLength(1);
  const flags = /flags:\s*([0-7]+)/.exec(readFileSync(`/proc/self/fdinfo/${open[0]}`, "utf8"))?.[1];
  expect(Number.parseInt(flags ?? "0", 8) & constants.O_DSYNC).toBe(constants.O_DSYNC);
  await ledger.close();
  rmSync(dir, { recursive: true, force: true });
});

// The disk is asked where the file is once in a while; in between the kernel is, which knows at once. Every way of taking
// the file away has to be noticed by the very next question.
it.each<[string, (path: string) => void]>([
  ["removed", (path) => rmSync(path)],
  ["renamed", (path) => renameSync(path, `${path}.aside`)],
  ["replaced by a copy", (path) => (copyFileSync(path, `${path}.copy`), renameSync(`${path}.copy`, path))],
  ["moved with its directory", (path) => renameSync(join(path, ".."), `${join(path, "..")}-aside`)],
  ["removed with its directory", (path) => rmSync(join(path, ".."), { recursive: true })],
])("a segment that was %s is noticed by the next flush", async (_, takeAway) => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-place-"));
  const path = join(dir, "ledger", "seq-0.ndjson");
  mkdirSync(join(dir, "ledger"));
  const file = await nodeFs.openJournal(path, 0o600);
  const isThere = (): Promise<boolean> =>
    new Promise((resolve, reject) => file.isAt(path, (error, is) => (error ? reject(error) : resolve(is))));
  expect([await isThere(), await isThere()]).toEqual([true, true]);
  takeAway(path);
  expect([await isThere(), await isThere()]).toEqual([false, false]);
  await file.close();
  rmSync(dir, { recursive: true, force: true });
});
