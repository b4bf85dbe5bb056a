import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { constants } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
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
