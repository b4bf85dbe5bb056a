// How long a proof by call id takes. Two ledgers tell it apart: one of many small segments, measured while it grows, gives
// what each closed segment costs (its index is asked); one with a segment of the shipped size that is still open gives what
// reading that one costs. 10^7 records are about 85 segments of 64 MiB, and both together are printed as the estimate.
//
//   node bench/prove.mjs [--segments 85] [--segment-bytes 1048576] [--open-bytes 62914560] [--proofs 20]

import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { openLedger, prove } from "../dist/ledger/index.js";

const { values } = parseArgs({
  options: {
    segments: { type: "string", default: "85" },
    "segment-bytes": { type: "string", default: String(1 << 20) },
    "open-bytes": { type: "string", default: String(60 << 20) },
    proofs: { type: "string", default: "20" },
  },
});
const [segments, segmentBytes, openBytes, proofs] = ["segments", "segment-bytes", "open-bytes", "proofs"].map((name) =>
  Number(values[name]),
);
/** Records of 10^7 in segments of the shipped size. */
const WHOLE = 1e7;
const SHIPPED_BYTES = 64 << 20;
const base = mkdtempSync(join(tmpdir(), "portcullis-bench-prove-"));
const shared = { trace: "0".repeat(32), actor: "blog/bench", tool: "notes.read", args_cid: "bafy" };
const decision = (call) => ({
  ...shared,
  kind: "decision",
  call,
  intent: "bafy",
  app: "blog",
  agent: "bench",
  method: "tools/call",
  binding: "notes",
  effect: "permit",
  rules: ["allow"],
  policy: "0".repeat(64),
  reason: "",
  mode: "enforce",
});
const outcome = (call) => ({ ...shared, kind: "outcome", call, outcome: "ok", latency_ms: 1, bytes: 100 });
const filesIn = (dir, ending) => readdirSync(dir).filter((name) => name.endsWith(ending));
const bytesIn = (dir) => filesIn(dir, ".ndjson").reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);

/** Appends calls until `isEnough`; returns how many there are. */
async function fill(ledger, first, isEnough) {
  let call = first;
  for (; !isEnough(); call += 2_000) {
    const some = Array.from({ length: 2_000 }, (_, n) => `call-${call + n}`);
    await Promise.all(some.map((id) => ledger.append(decision(id))));
    await Promise.all(some.map((id) => ledger.append(outcome(id))));
  }
  return call;
}

async function millisecondsOf(dir, calls) {
  const times = [];
  for (let i = 0; i < proofs; i++) {
    const began = performance.now();
    await prove(dir, `call-${Math.floor((calls * (i + 0.5)) / proofs)}`);
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[times.length >> 1];
}

const indexed = async (dir) => {
  while (filesIn(dir, ".index").length < filesIn(dir, ".ndjson").length - 1) await sleep(50);
};

try {
  const many = join(base, "many");
  const ledger = await openLedger({ dir: many, origin: "example.com/bench", maxSegmentBytes: segmentBytes });
  let calls = 0;
  const rows = [];
  for (const share of [0.25, 0.5, 1]) {
    const wanted = Math.ceil(segments * share);
    calls = await fill(ledger, calls, () => filesIn(many, ".ndjson").length > wanted);
    await indexed(many);
    await ledger.checkpoint();
    rows.push({ records: 2 * calls, segments: filesIn(many, ".ndjson").length, ms: await millisecondsOf(many, calls) });
  }
  const recordBytes = bytesIn(many) / (2 * calls);
  await ledger.close();
  const first = rows[0];
  const last = rows.at(-1);
  const perSegment = (last.ms - first.ms) / (last.segments - first.segments);

  const open = join(base, "open");
  const growing = await openLedger({ dir: open, origin: "example.com/bench" });
  const openCalls = await fill(growing, 0, () => bytesIn(open) >= openBytes);
  await growing.checkpoint();
  const openMs = await millisecondsOf(open, openCalls);
  await growing.close();

  const began = performance.now();
  for (const name of filesIn(many, ".index")) rmSync(join(many, name));
  await prove(many, "call-0");
  const without = performance.now() - began;

  console.table(rows.map(({ ms, ...row }) => ({ ...row, ms: Number(ms.toFixed(1)) })));
  const needed = Math.ceil((WHOLE * recordBytes) / SHIPPED_BYTES);
  const estimate = openMs + needed * perSegment;
  console.log(`each closed segment: ${perSegment.toFixed(2)} ms; ${Math.round(recordBytes)} bytes a record`);
  console.log(`${2 * openCalls} records in one open segment of ${openBytes >> 20} MiB: ${openMs.toFixed(1)} ms`);
  console.log(
    `10^7 records, ${needed} segments of 64 MiB, the last one nearly full: ${estimate.toFixed(0)} ms (estimate)`,
  );
  console.log(`without the index, which is built then: ${without.toFixed(0)} ms once`);
} finally {
  rmSync(base, { recursive: true, force: true });
}
