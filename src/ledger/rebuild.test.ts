import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { nodeFs } from "./files.js";
import { decision, ORIGIN } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { type LedgerOptions, openLedger } from "./ledger.js";
import { prove } from "./prove.js";
import { verify } from "./verify.js";

const scratch = scratchDirectory();
const SMALL = { origin: ORIGIN, maxSegmentBytes: 20_000, fullCheckBytes: 0 } as const;

async function write(options: LedgerOptions, records: number): Promise<void> {
  const ledger = await openLedger(options);
  for (let i = 0; i < records; i += 100) {
    await Promise.all(
      Array.from({ length: 100 }, (_, k) => ledger.append(decision(`call-${i + k}`, { effect: "deny" }))),
    );
  }
  await ledger.close();
}

async function withRecords(records: number): Promise<string> {
  const dir = scratch.fresh();
  await write({ dir, ...SMALL }, records);
  return dir;
}

async function eventually(condition: () => Promise<boolean>): Promise<void> {
  const until = performance.now() + 60_000;
  while (!(await condition())) {
    if (performance.now() > until) throw new Error("waited for 60 s");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const tiles = (dir: string): Map<string, string> =>
  new Map(readdirSync(join(dir, "tiles")).map((name) => [name, readFileSync(join(dir, "tiles", name), "hex")]));

it("writes nothing after it was closed, also when it began another segment just before", async () => {
  const dir = scratch.fresh();
  let late = 0;
  const rename: typeof nodeFs.rename = async (from, to) => {
    if (to.endsWith("resume.json")) await sleep(100);
    await nodeFs.rename(from, to);
    if (isClosed) late++;
  };
  let isClosed = false;
  await write({ dir, ...SMALL, disk: { ...nodeFs, rename } }, 200);
  isClosed = true;
  await sleep(500);
  expect(late).toBe(0);
});

it("a start that is cut short at any file leaves tiles that verify", async () => {
  const dir = await withRecords(600);
  for (let files = 0, isOpen = false; !isOpen; files++) {
    let left = files;
    const openWrite: typeof nodeFs.openWrite = async (path, mode) => {
      if (left-- <= 0) throw new Error("the machine is off");
      return nodeFs.openWrite(path, mode);
    };
    // Read whole, so that all tiles are computed again.
    const ledger = await openLedger({ dir, origin: ORIGIN, disk: { ...nodeFs, openWrite } }).catch(() => undefined);
    expect((await verify(dir)).problems, `${files} files`).toEqual([]);
    await ledger?.close();
    isOpen = ledger !== undefined;
  }
});

describe("tiles that are missing or wrong", () => {
  it("tiles that are missing or wrong are computed whole by a start that reads more records than it holds in memory", async () => {
    const dir = await withRecords(1_000);
    const sound = tiles(dir);
    rmSync(join(dir, "tiles"), { recursive: true });
    rmSync(join(dir, "resume.json"));
    await (await openLedger({ dir, ...SMALL, maxHeldLeaves: 64 })).close();
    for (const [level, hashes] of sound) expect(tiles(dir).get(level)?.slice(0, hashes.length), level).toBe(hashes);
    expect((await verify(dir)).problems).toEqual([]);
    expect(await prove(dir, 3)).toHaveLength(1);
  });

  it("tiles that are missing or wrong are rebuilt in the background while records are taken, and proofs hold afterwards [U9]", async () => {
    const dir = await withRecords(3_000);
    const sound = tiles(dir).get("0") as string;
    writeFileSync(join(dir, "tiles", "0"), Buffer.alloc(sound.length / 2));
    const ledger = await openLedger({ dir, ...SMALL });
    await ledger.append(decision("while rebuilding", { effect: "deny" }));
    await eventually(
      async () => tiles(dir).get("0")?.startsWith(sound) === true && !readdirSync(dir).includes("tiles.rebuilding"),
    );
    expect(ledger.status()).toMatchObject({ healthy: true, lastError: undefined });
    await ledger.close();
    expect((await verify(dir)).problems).toEqual([]);
    expect(await prove(dir, 1_500)).toHaveLength(1);
  });

  it("tiles that are missing or wrong are not used for proofs before the rebuild has finished, also after a kill", async () => {
    const dir = await withRecords(1_000);
    writeFileSync(join(dir, "tiles.rebuilding"), "");
    await expect(prove(dir, 3)).rejects.toThrow("are being rebuilt");
    expect((await verify(dir)).notes.join()).toContain("being rebuilt");
    const ledger = await openLedger({ dir, ...SMALL });
    await eventually(async () => !readdirSync(dir).includes("tiles.rebuilding"));
    await ledger.close();
    expect(await prove(dir, 3)).toHaveLength(1);
  });

  it.each(["0", "1"])(
    "tiles that are missing or wrong are a problem that verify reports, also in level %s alone",
    async (level) => {
      const dir = await withRecords(1_000);
      const path = join(dir, "tiles", level);
      writeFileSync(path, Buffer.alloc(readFileSync(path).length));
      const { ok, problems } = await verify(dir);
      expect(ok).toBe(false);
      expect(problems).toMatchObject([{ kind: "tiles", message: expect.stringContaining("restart the gateway") }]);
    },
  );

  it("tiles that are missing or wrong stop the ledger when the older records turn out to be other than those that were signed [U9]", async () => {
    const dir = await withRecords(1_000);
    const first = join(dir, "seq-0000000000000000.ndjson");
    const text = readFileSync(first, "utf8");
    writeFileSync(
      first,
      text.replace('"reason":"permitted by writers-may-put"', '"reason":"permitted by writers-may-puX"'),
    );
    rmSync(join(dir, "tiles"), { recursive: true });
    const ledger = await openLedger({ dir, ...SMALL });
    await eventually(async () => !ledger.status().healthy);
    await expect(ledger.append(decision("late"))).rejects.toMatchObject({ reason: "history_changed" });
    await ledger.close().catch(() => {});
  });

  it("tiles that are missing or wrong do not let a start pass over records that are missing", async () => {
    const dir = await withRecords(1_000);
    rmSync(join(dir, "seq-0000000000000000.ndjson"));
    rmSync(join(dir, "tiles"), { recursive: true });
    await expect(openLedger({ dir, ...SMALL })).rejects.toMatchObject({ code: "LEDGER_REFUSED" });
  });
});
