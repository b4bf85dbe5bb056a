// How long a proof by call id takes, with and without the index of calls. Small segments stand for a larger ledger: the
// time with an index depends on the number of segments, and 10^7 records are about 80 segments of 64 MiB.
//
//   node bench/prove.mjs --records 200000 --segment-bytes 1048576

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { openLedger, prove } from "../dist/ledger/index.js";

const { values } = parseArgs({
  options: {
    records: { type: "string", default: "200000" },
    "segment-bytes": { type: "string", default: String(1 << 20) },
    proofs: { type: "string", default: "20" },
  },
});
const calls = Number(values.records) / 2;
const dir = mkdtempSync(join(tmpdir(), "portcullis-bench-prove-"));
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
const filesOf = (ending) => readdirSync(dir).filter((name) => name.endsWith(ending));

async function millisecondsOf(which) {
  const times = [];
  for (let i = 0; i < Number(values.proofs); i++) {
    const began = performance.now();
    await prove(dir, which(i));
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[times.length >> 1].toFixed(1);
}

try {
  const options = { dir, origin: "example.com/bench", maxSegmentBytes: Number(values["segment-bytes"]) };
  const ledger = await openLedger(options);
  for (let i = 0; i < calls; i += 2_000) {
    const some = Array.from({ length: Math.min(2_000, calls - i) }, (_, n) => `call-${i + n}`);
    await Promise.all(some.map((call) => ledger.append(decision(call))));
    await Promise.all(some.map((call) => ledger.append(outcome(call))));
  }
  const segments = filesOf(".ndjson").length;
  while (filesOf(".index").length < segments - 1) await new Promise((resolve) => setTimeout(resolve, 50));
  await ledger.close();
  const anyCall = (i) => `call-${Math.floor((calls * (i + 0.5)) / Number(values.proofs))}`;
  const indexed = await millisecondsOf(anyCall);
  const began = performance.now();
  for (const name of filesOf(".index")) rmSync(join(dir, name));
  await prove(dir, anyCall(0));
  const without = (performance.now() - began).toFixed(0);
  console.log(`${calls * 2} records in ${segments} segments`);
  console.log(`proof by call id: ${indexed} ms (median) with the index, ${without} ms once without, which builds it`);
} finally {
  rmSync(dir, { recursive: true, force: true });
}
