import { spawnSync } from "node:child_process";
import { createHash, createPublicKey, verify as verifySignature } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { decision, ORIGIN, sampleLedger } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { openLedger } from "./ledger.js";
import { type InclusionProof, prove, proveConsistency } from "./prove.js";
import { consistent } from "./tree.js";

const scratch = scratchDirectory();
const EXAMPLE = join(import.meta.dirname, "../../examples/verify-proof.mjs");
const dir = scratch.fresh();
let publicKey = "";

beforeAll(async () => {
  ({ publicKey } = await sampleLedger(dir, 300));
});

function runExample(input: unknown, ...args: string[]): { status: number | null; out: string } {
  const text = typeof input === "string" ? input : JSON.stringify(input);
  const run = spawnSync(process.execPath, [EXAMPLE, "-", ...args], { input: text, encoding: "utf8" });
  return { status: run.status, out: run.stdout + run.stderr };
}

describe("a checkpoint", () => {
  it("verifies by a check written from the specification alone", () => {
    const note = readFileSync(join(dir, "checkpoint"), "utf8");
    // c2sp.org/signed-note: text, a blank line, then "— name base64(4-byte key id ‖ signature)".
    const [text = "", block = ""] = note.split(/(?<=\n)\n(?=\u2014)/);
    const [, name, encoded] = /^\u2014 (\S+) (\S+)\n$/.exec(block) ?? [];
    const signature = Buffer.from(encoded ?? "", "base64");
    const raw = Buffer.from(publicKey.split("+").slice(2).join("+"), "base64");
    expect(raw[0]).toBe(1);
    const id = createHash("sha256").update(`${name}\n`).update(raw).digest().subarray(0, 4);
    expect(signature.subarray(0, 4)).toEqual(id);
    const spki = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), raw.subarray(1)]);
    const key = createPublicKey({ key: spki, format: "der", type: "spki" });
    expect(verifySignature(null, Buffer.from(text), key, signature.subarray(4))).toBe(true);
    // c2sp.org/tlog-checkpoint: origin, size, base64 root; the root by the recursion of RFC 6962, 2.1.
    const lines = readFileSync(join(dir, "seq-0000000000000000.ndjson"), "utf8").trimEnd().split("\n");
    const sha = (...parts: (Buffer | string)[]) =>
      parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest();
    const treeHash = (leaves: Buffer[]): Buffer => {
      if (leaves.length === 1) return leaves[0] as Buffer;
      let k = 1;
      while (k * 2 < leaves.length) k *= 2;
      return sha(Buffer.from([1]), treeHash(leaves.slice(0, k)), treeHash(leaves.slice(k)));
    };
    const root = treeHash(lines.map((line) => sha(Buffer.from([0]), line)));
    expect(text).toBe(`${ORIGIN}\n${lines.length}\n${root.toString("base64")}\n`);
  });
});

describe("an inclusion proof", () => {
  it("holds for any record, and the stand-alone script agrees [U9]", async () => {
    for (const seq of [0, 1, 255, 256, 300, 601]) {
      const [proof] = await prove(dir, seq);
      expect(proof).toMatchObject({ index: seq, size: 602, origin: ORIGIN, public_key: publicKey });
      const run = runExample(proof, publicKey);
      expect(run).toEqual({ status: 0, out: expect.stringMatching(`^holds: record ${seq} of 602 in ${ORIGIN}: `) });
    }
  });

  it("finds all records of a call by its id", async () => {
    const proofs = await prove(dir, "call-7");
    expect(proofs.map((proof) => JSON.parse(proof.line).kind)).toEqual(["decision", "outcome"]);
    expect(runExample(proofs, publicKey).status).toBe(0);
  });

  it("fails loudly in the script when any part of it is changed", async () => {
    const [proof] = (await prove(dir, 41)) as [InclusionProof];
    const other = await sampleLedger(scratch.fresh(), 3);
    const path = [...proof.path];
    const changes: [string, Partial<Record<keyof InclusionProof, unknown>>][] = [
      ["the line", { line: proof.line.replace("blog/writer", "blog/reader") }],
      ["the index", { index: 42 }],
      ["the size", { size: proof.size - 1 }],
      ["the origin", { origin: "example.com/other" }],
      ["a hash of the path", { path: path.with(3, path[2] as string) }],
      ["the length of the path", { path: path.slice(1) }],
      ["the checkpoint", { checkpoint: proof.checkpoint.replace(/\n602\n/, "\n603\n") }],
      ["the checkpoint of another log", { checkpoint: other.checkpoint }],
      ["the signature", { checkpoint: proof.checkpoint.replace(/\u2014 .*/s, "") }],
      ["the type", { type: "something else" }],
    ];
    for (const [what, change] of changes) {
      const run = runExample({ ...proof, ...change }, publicKey);
      expect(run, what).toEqual({ status: 1, out: expect.stringMatching(/^DOES NOT HOLD: /) });
    }
    expect(runExample(proof, other.publicKey), "another key").toMatchObject({ status: 1 });
    expect(runExample("not json"), "no JSON").toMatchObject({ status: 1 });
    expect(runExample([]), "no proof").toMatchObject({ status: 1 });
    expect(runExample(proof), "without a known key").toMatchObject({
      status: 0,
      out: expect.stringMatching(/compare it/),
    });
  });

  it("says when there is no such record, call or directory", async () => {
    await expect(prove(dir, 602)).rejects.toThrow(/there is no record 602 in/);
    await expect(prove(dir, "unknown")).rejects.toThrow(/no record in .* belongs to call "unknown"/);
    await expect(prove(join(dir, "nowhere"), 1)).rejects.toThrow(/holds no checkpoint/);
  });

  it("waits for the checkpoint over a new record", async () => {
    const other = scratch.fresh();
    const ledger = await openLedger({ dir: other, origin: ORIGIN, checkpointMs: 300 });
    const { seq } = await ledger.append(decision("young"));
    expect(ledger.status().checkpointSize).toBe(seq);
    expect(await prove(other, seq)).toHaveLength(1);
    await ledger.append(decision("younger"));
    expect(await prove(other, "younger")).toHaveLength(1);
    await ledger.close();
  });

  it("says what to do when no checkpoint follows over a record", async () => {
    const other = scratch.fresh();
    const ledger = await openLedger({ dir: other, origin: ORIGIN, checkpointMs: 60_000 });
    const { seq } = await ledger.append(decision("young"));
    const message = /is not under a checkpoint \(the last one covers 2 records\): .* start it/;
    await expect(prove(other, seq, { waitMs: 100 })).rejects.toThrow(message);
    await ledger.checkpoint();
    expect(await prove(other, seq)).toHaveLength(1);
    await ledger.close();
  });

  it("an inclusion proof is refused for a record that was changed since it was signed", async () => {
    const other = scratch.fresh();
    await sampleLedger(other, 3);
    const file = join(other, "seq-0000000000000000.ndjson");
    writeFileSync(file, readFileSync(file, "utf8").replace("call-1", "call-9"));
    await expect(prove(other, 4)).rejects.toThrow(/record 4 in .* is not the one that was signed/);
  });
});

describe("a consistency proof", () => {
  it("shows that the log continues an older checkpoint, and refuses one it does not continue", async () => {
    const growing = scratch.fresh();
    const { checkpoint: older, publicKey: key } = await sampleLedger(growing, 5);
    const { checkpoint: newer } = await sampleLedger(growing, 500);
    const proof = await proveConsistency(growing, older);
    const [, olderSize, olderRoot] = older.split("\n") as [string, string, string];
    const [, newerSize, newerRoot] = newer.split("\n") as [string, string, string];
    const path = proof.path.map((hash) => Buffer.from(hash, "base64"));
    expect(consistent(Number(olderSize), olderRoot, Number(newerSize), newerRoot, path)).toBe(true);
    expect(key).toContain(ORIGIN);
    await expect(proveConsistency(growing, readFileSync(join(dir, "checkpoint"), "utf8"))).rejects.toThrow(/trusted/);
  });
});
