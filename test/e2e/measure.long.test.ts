import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";

interface Row {
  readonly inFlight: number;
  readonly target: string;
  readonly timesFloor?: number;
}

/** Far above what is measured on a machine with little else to do, 2 to 3: other work on it must not fail this. */
const MOST: Readonly<Record<number, number>> = { 64: 6, 16: 7 };

it("a call through the gateway costs no more than a few times the CPU of a bare proxy, measured side by side", async () => {
  const bench = join(import.meta.dirname, "..", "..", "bench", "gateway.mjs");
  const args = [bench, "--only", "http", "--rounds", "3", "--seconds", "3", "--warmup", "5", "--json"];
  const { stdout } = await promisify(execFile)(process.execPath, [...args, "--concurrency", "64,16"]);
  const { rows } = JSON.parse(stdout.slice(stdout.indexOf("\n{") + 1)) as { rows: Row[] };
  const measured = rows.filter((row) => row.timesFloor !== undefined);
  expect(measured.map((row) => row.inFlight)).toEqual([64, 16]);
  for (const row of measured) expect(row.timesFloor).toBeLessThan(MOST[row.inFlight] as number);
});
