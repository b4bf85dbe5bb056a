import { createHash } from "node:crypto";
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { cutEntryText } from "./entry.js";
import { decision, ORIGIN, outcome, sampleLedger } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { readLog, rechain, segmentNames, writeLog } from "./fixtures/tamper.js";
import { openLedger } from "./ledger.js";
import { leafHash } from "./tree.js";
import { verify } from "./verify.js";

const scratch = scratchDirectory();
const parse = (line: string | undefined) => JSON.parse(line ?? "null");

describe("a record", () => {
  it("carries who did what with which arguments, with what outcome and how fast [U9]", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN });
    const { seq } = await ledger.append(decision("c1", { ts: Date.UTC(2026, 6, 28) }));
    ledger.appendSoon(outcome("c1", { outcome: "tool_error", latency_ms: 12.5, bytes: 7 }));
    await ledger.close();
    const lines = readLog(dir);
    expect(parse(lines[seq])).toEqual({
      v: 1,
      seq: 2,
      prev: leafHash(lines[1] as string),
      nonce: expect.stringMatching(/^[\w-]{22}$/),
      kind: "decision",
      ts: "2026-07-28T00:00:00.000Z",
      call: "c1",
      trace: "4bf92f3577b34da6a3ce929d0e0e4736",
      app: "blog",
      agent: "writer",
      actor: "blog/writer",
      method: "tools/call",
      tool: "community.aws.s3.putObject",
      binding: "downstream:aws",
      args_cid: "bagaaierasords4njcts6vs7qvdjfcvgnume4hqohf65zsfguprqphs3icwea",
      effect: "permit",
      rules: ["writers-may-put"],
      policy: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
      reason: "permitted by writers-may-put",
      mode: "enforce",
    });
    expect(parse(lines[seq + 1])).toMatchObject({
      ts: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      actor: "blog/writer",
      tool: "community.aws.s3.putObject",
      args_cid: "bagaaierasords4njcts6vs7qvdjfcvgnume4hqohf65zsfguprqphs3icwea",
      outcome: "tool_error",
      latency_ms: 12.5,
      bytes: 7,
    });
  });

  it("keeps arguments only where the operator says so", async () => {
    for (const keepArguments of [false, true]) {
      const dir = scratch.fresh();
      const ledger = await openLedger({ dir, origin: ORIGIN, keepArguments });
      await ledger.append(decision("c1", { args: '{"key":"value\\n"}' }));
      await ledger.close();
      expect(parse(readLog(dir)[2]).args).toBe(keepArguments ? '{"key":"value\\n"}' : undefined);
    }
  });

  it("survives any text: quotes, newlines, emoji, lone surrogates, long ones", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN, keepArguments: true, maxLineBytes: 4 << 20 });
    const texts = ['"', "\\", "\n", "\0", "\u2028", "ä", "😀", "\ud800", "x".repeat(60_000), "😀".repeat(30_000)];
    await Promise.all(
      texts.map((text, i) => ledger.append(decision(`c${i}`, { reason: text, args: text, rules: [text] }))),
    );
    await ledger.close();
    const records = readLog(dir).map(parse);
    for (const [i, text] of texts.entries()) {
      expect(records[i + 2]).toMatchObject({
        reason: cutEntryText(text, 2_048),
        args: text,
        rules: [cutEntryText(text)],
      });
    }
    expect((await verify(dir)).problems).toEqual([]);
  });

  it("holds only the beginning of long names and reasons, with the hash of the whole, and no huge arguments [U9]", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN, keepArguments: true });
    const long = `${"n".repeat(255)}😀${"n".repeat(1_000_000)}`;
    const texts = { method: long, tool: long, actor: long, reason: long, rules: [long], args: `"${long}"` };
    const { seq } = await ledger.append(decision("c1", texts));
    ledger.appendSoon(outcome("c1", { tool: long, actor: long }));
    ledger.appendSoon({ kind: "admin", actor: long, action: long });
    await ledger.close();
    const lines = readLog(dir).slice(seq);
    for (const line of lines) expect(line.length).toBeLessThan(8_192);
    const hash = createHash("sha256").update(long).digest("hex");
    const cut = `${"n".repeat(255)}… (${long.length} characters, sha256 ${hash})`;
    const record = parse(lines[0]);
    expect(record).toMatchObject({ method: cut, tool: cut, actor: cut, rules: [cut] });
    expect(record.reason).toContain(hash);
    expect(record).not.toHaveProperty("args");
    expect(parse(lines[1])).toMatchObject({ tool: cut, actor: cut });
    expect(parse(lines[2])).toMatchObject({ actor: cut, action: cut });
    expect((await verify(dir)).ok).toBe(true);
  });

  it("a record of every other kind is written as given, and cannot overwrite its place in the chain", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN });
    await ledger.append({ kind: "policy", old: null, new: "hash" });
    await ledger.append({ kind: "admin", actor: "ops", action: "key.create", detail: { seq: 99 } });
    const forged = { kind: "admin", actor: "ops", action: "x", seq: 99, prev: "no", v: 2, nonce: "n" } as const;
    await ledger.append(forged);
    await ledger.close();
    const records = readLog(dir).map(parse);
    expect(records[2]).toMatchObject({ seq: 2, kind: "policy", old: null, new: "hash" });
    expect(records[3]).toMatchObject({ seq: 3, kind: "admin", detail: { seq: 99 } });
    expect(records[4]).toMatchObject({ v: 1, seq: 4, action: "x" });
    expect((await verify(dir)).ok).toBe(true);
  });

  it("never has the nonce of another", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 700);
    const nonces = readLog(dir).map((line) => parse(line).nonce);
    expect(new Set(nonces).size).toBe(1402);
  });
});

describe("opening a ledger", () => {
  it("makes files that only their owner can read", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 1);
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    for (const name of readdirSync(dir, { recursive: true }) as string[]) {
      expect(statSync(join(dir, name)).mode & 0o077, name).toBe(0);
    }
  });

  it("gives every permitted call without an outcome an unknown one, also calls let through in observe mode", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN });
    await ledger.append(decision("finished"));
    await ledger.append(outcome("finished"));
    await ledger.append(decision("running"));
    await ledger.append(decision("denied", { effect: "deny" }));
    await ledger.append(decision("challenged", { effect: "challenge" }));
    await ledger.append(decision("observed", { effect: "deny", mode: "observe" }));
    expect(ledger.status().openCalls).toBe(2);
    await ledger.close();
    const again = await openLedger({ dir, origin: ORIGIN });
    expect(again.status().openCalls).toBe(0);
    await again.close();
    const records = readLog(dir).map(parse);
    expect(records.findLast((record) => record.kind === "start")).toMatchObject({ unknown: 2, torn: null });
    const unknown = records.filter((record) => record.outcome === "unknown");
    expect(unknown).toMatchObject([
      { call: "running", actor: "blog/writer", latency_ms: null, detail: { decision: 4 } },
      { call: "observed", bytes: null, detail: { decision: 7 } },
    ]);
    await (await openLedger({ dir, origin: ORIGIN })).close();
    expect(readLog(dir).filter((line) => line.includes('"unknown","latency_ms"'))).toHaveLength(2);
  });

  it("cuts off a torn tail and records what it was", async () => {
    for (const torn of ['{"v":1,"seq":6,"pre', "\0\0\0\0\0", "garbage\nmore garbage\nx"]) {
      const dir = scratch.fresh();
      await sampleLedger(dir, 2);
      writeFileSync(join(dir, segmentNames(dir)[0] as string), torn, { flag: "a" });
      await (await openLedger({ dir, origin: ORIGIN })).close();
      expect(parse(readLog(dir)[6])).toMatchObject({ kind: "start", torn: { bytes: torn.length } });
      expect((await verify(dir)).problems).toEqual([]);
    }
  });

  it("rejects a damaged line that is not a torn write, and changes nothing", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 4);
    const lines = readLog(dir);
    writeLog(dir, lines.with(5, "garbage"));
    const before = readLog(dir);
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toMatchObject({
      code: "LEDGER_REFUSED",
      message: expect.stringMatching(
        /^seq-0000000000000000\.ndjson line 6 is not a record \(record 5 belongs there\), and no torn write either: record 6 follows it; restore/,
      ),
    });
    expect(readLog(dir)).toEqual(before);
    writeLog(dir, lines.with(5, (lines[5] as string).replace("ok", "no")));
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(/line 7: record 6 does not continue record 5/);
    writeLog(dir, lines.toSpliced(5, 1));
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(/line 6 holds record 6 where record 5 belongs/);
    writeLog(dir, lines);
    writeFileSync(join(dir, segmentNames(dir)[0] as string), "x".repeat(9 << 20), { flag: "a" });
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(/no torn write either: \d+ bytes and more/);
    writeLog(dir, lines);
    await (await openLedger({ dir, origin: ORIGIN })).close();
  });

  it("opening a ledger is refused when the log is shorter than its last checkpoint", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 4);
    const lines = readLog(dir);
    writeLog(dir, lines.slice(0, 7));
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(
      /has 7 sound records, but checkpoint .*checkpoint was signed over 10: records 7 to 9 are missing or damaged/,
    );
    for (const name of segmentNames(dir)) rmSync(join(dir, name));
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(/has 0 sound records/);
  });

  it("opening a ledger is refused when the log is not the one that was signed", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 4);
    const forged = rechain(readLog(dir).map((line) => line.replace('"call":"call-1"', '"call":"call-9"')));
    writeLog(dir, forged);
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(
      /does not match checkpoint .*: some of its first 10 records are not those that were signed/,
    );
  });

  it("rejects a directory restored to an earlier state when an external checkpoint is ahead of it", async () => {
    const dir = scratch.fresh();
    const published = join(scratch.path, "published.note");
    await sampleLedger(dir, 2, { publish: { file: published } });
    cpSync(dir, `${dir}-old`, { recursive: true });
    await sampleLedger(dir, 2, { publish: { file: published } });
    await expect(openLedger({ dir: `${dir}-old`, origin: ORIGIN, publish: { file: published } })).rejects.toThrow(
      /has 6 sound records, but checkpoint .*published\.note was signed over 11: records 6 to 10 are missing/,
    );
    const another = scratch.fresh();
    await sampleLedger(another, 2);
    await expect(openLedger({ dir: another, origin: ORIGIN, publish: { file: published } })).rejects.toThrow(
      /published\.note cannot be trusted: .* none of which is trusted/,
    );
    const note = readFileSync(published, "utf8");
    truncateSync(join(dir, segmentNames(dir)[0] as string), 3_000);
    rmSync(join(dir, "checkpoint"));
    await expect(openLedger({ dir, origin: ORIGIN, outside: [{ from: "the archive", note }] })).rejects.toThrow(
      /but checkpoint the archive was signed over 11/,
    );
  });

  it("opening a ledger is refused under another origin, and for an origin that cannot be signed", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 1);
    await expect(openLedger({ dir, origin: "example.com/other" })).rejects.toThrow(/cannot be trusted|is of ledger/);
    rmSync(join(dir, "checkpoint"));
    rmSync(join(dir, "keys"), { recursive: true });
    await expect(openLedger({ dir, origin: "example.com/other" })).rejects.toThrow(
      /is "example\.com\/test-ledger", it was opened as "example\.com\/other"/,
    );
    await expect(openLedger({ dir, origin: "has space" })).rejects.toThrow(/cannot name a ledger/);
    await expect(openLedger({ dir } as never)).rejects.toThrow(/needs `origin`/);
    await expect(openLedger({ origin: "a.b/c" } as never)).rejects.toThrow(/needs `dir`/);
  });

  it("computes tiles again that are gone or damaged", async () => {
    for (const spoil of [
      (dir: string) => rmSync(join(dir, "tiles"), { recursive: true }),
      (dir: string) => writeFileSync(join(dir, "tiles", "0"), "x".repeat(32 * 700)),
      (dir: string) => truncateSync(join(dir, "tiles", "0"), 100),
    ]) {
      const dir = scratch.fresh();
      await sampleLedger(dir, 300);
      const before = readFileSync(join(dir, "tiles", "0"));
      spoil(dir);
      await (await openLedger({ dir, origin: ORIGIN })).close();
      expect(readFileSync(join(dir, "tiles", "0")).subarray(0, before.length)).toEqual(before);
      expect((await verify(dir)).notes).toEqual([]);
    }
  });
});

describe("a log of many segments", () => {
  const options = { maxSegmentBytes: 20_000, fullCheckBytes: 0 };

  it("starts from its last resume point, with calls that were open before it", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 10, options, async (ledger) => {
      await ledger.append(decision("open all along"));
      for (let i = 0; i < 200; i++)
        await Promise.all([ledger.append(decision(`${i}`)), ledger.append(outcome(`${i}`))]);
    });
    expect(segmentNames(dir).length).toBeGreaterThan(5);
    // Proof that it does not read the first segments: a changed record there goes unnoticed until `verify`.
    const first = join(dir, segmentNames(dir)[0] as string);
    const sound = readFileSync(first, "utf8");
    writeFileSync(first, sound.replace("call-3", "call-X"));
    await (await openLedger({ dir, origin: ORIGIN, ...options })).close();
    expect((await verify(dir)).problems[0]).toMatchObject({ seq: 8, line: 9 });
    writeFileSync(first, sound);
    const result = await verify(dir);
    expect(result.problems).toEqual([]);
    const unknown = readLog(dir)
      .map(parse)
      .filter((record) => record.outcome === "unknown");
    expect(unknown).toMatchObject([{ call: "open all along" }]);
  });

  it("a log of many segments is refused when an earlier file is gone or cut short, even then", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 200, options);
    const names = segmentNames(dir);
    const second = join(dir, names[1] as string);
    const bytes = readFileSync(second);
    truncateSync(second, bytes.lastIndexOf(10, bytes.length - 2) + 1);
    await expect(openLedger({ dir, origin: ORIGIN, ...options })).rejects.toThrow(
      new RegExp(`${names[1]} ends with record \\d+, but ${names[2]} begins with record`),
    );
    rmSync(second);
    await expect(openLedger({ dir, origin: ORIGIN, ...options })).rejects.toThrow(new RegExp(`${names[0]} ends with`));
    writeFileSync(second, bytes);
    await (await openLedger({ dir, origin: ORIGIN, ...options })).close();
  });

  it("a log of many segments is held against older checkpoints even when it is not read whole", async () => {
    const dir = scratch.fresh();
    const { checkpoint: early } = await sampleLedger(dir, 5, options);
    await sampleLedger(dir, 200, options);
    const outside = [{ from: "the archive", note: early }];
    await (await openLedger({ dir, origin: ORIGIN, ...options, outside })).close();
    // The same records, but the archive holds a checkpoint of a log that went another way.
    const fork = scratch.fresh();
    cpSync(dir, fork, { recursive: true });
    for (const name of readdirSync(fork))
      if (/^(seq-|tiles|resume|checkpoint|lock)/.test(name)) rmSync(join(fork, name), { recursive: true });
    rmSync(join(fork, "keys"), { recursive: true });
    const { checkpoint: forked } = await sampleLedger(fork, 5, options);
    await expect(
      openLedger({ dir, origin: ORIGIN, ...options, outside: [{ from: "the archive", note: forked }] }),
    ).rejects.toThrow(/does not match checkpoint the archive: some of its first 11 records/);
  });

  it("starts without its resume point too", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 100, options);
    for (const text of ["", "{}", '{"note":"x","open":[]}']) {
      writeFileSync(join(dir, "resume.json"), text);
      await (await openLedger({ dir, origin: ORIGIN, ...options })).close();
    }
    rmSync(join(dir, "resume.json"));
    await (await openLedger({ dir, origin: ORIGIN, ...options })).close();
    expect((await verify(dir)).problems).toEqual([]);
  });
});

describe("checkpoints", () => {
  it("follow new records by themselves, and stay away when there is nothing new", async () => {
    const notes: string[] = [];
    const ledger = await openLedger({
      dir: scratch.fresh(),
      origin: ORIGIN,
      checkpointMs: 5,
      publish: (note) => void notes.push(note),
    });
    await sleep(40);
    const quiet = notes.length;
    await ledger.append(decision("a"));
    for (let i = 0; i < 100 && notes.length === quiet; i++) await sleep(5);
    // A slow start may sign on its way; no size is ever signed twice, and what was signed before is not signed again.
    const sizes = notes.map((note) => Number(note.split("\n")[1]));
    expect(sizes.at(-1)).toBe(3);
    expect(sizes).toEqual([...new Set(sizes)].sort((a, b) => a - b));
    expect(sizes).toHaveLength(quiet + 1);
    await ledger.close();
    expect(notes).toHaveLength(sizes.length);
  });

  it("checkpoints go to a file, a command and a function, and one that fails is reported and tried again", async () => {
    const file = join(scratch.path, "out.note");
    const copied = join(scratch.path, "copied.note");
    let failures = 3;
    const notes: string[] = [];
    const ledger = await openLedger({
      dir: scratch.fresh(),
      origin: ORIGIN,
      checkpointMs: 5,
      publish: [
        { file },
        {
          command: [
            process.execPath,
            "-e",
            `process.stdin.pipe(require("fs").createWriteStream(${JSON.stringify(copied)}))`,
          ],
        },
        (note) => {
          if (failures-- > 0) throw new Error("the archive is away");
          notes.push(note);
        },
      ],
    });
    for (let i = 0; i < 200 && ledger.status().lastError === undefined; i++) await sleep(5);
    expect(String(ledger.status().lastError)).toMatch(/the archive is away/);
    expect(ledger.status().healthy).toBe(true);
    for (let i = 0; i < 400 && notes.length === 0; i++) await sleep(5);
    await ledger.append(decision("a"));
    await ledger.close();
    const last = readFileSync(join(ledger.dir, "checkpoint"), "utf8");
    expect(last.split("\n")[1]).toBe("3");
    expect([readFileSync(file, "utf8"), readFileSync(copied, "utf8"), notes.at(-1)]).toEqual([last, last, last]);
  });

  it("checkpoints that a command refuses say why", async () => {
    const ledger = await openLedger({
      dir: scratch.fresh(),
      origin: ORIGIN,
      checkpointMs: 5,
      publish: { command: [process.execPath, "-e", "console.error('no space at the archive'); process.exit(3)"] },
    });
    for (let i = 0; i < 200 && ledger.status().lastError === undefined; i++) await sleep(5);
    expect(String(ledger.status().lastError)).toMatch(
      /did not publish the checkpoint: exit code 3 no space at the archive/,
    );
    await ledger.close();
  });
});

describe("closing", () => {
  it("writes what waits, signs it, and frees the directory for the next", async () => {
    const dir = join(scratch.fresh(), "deep", "er");
    const ledger = await openLedger({ dir, origin: ORIGIN });
    for (let i = 0; i < 500; i++) ledger.appendSoon(outcome(`${i}`));
    await Promise.all([ledger.close(), ledger.close()]);
    expect(() => ledger.appendSoon(outcome("late"))).toThrow(/the ledger is closed/);
    await expect(ledger.append(decision("late"))).rejects.toMatchObject({ code: "AUDIT_FAILURE", reason: "closed" });
    expect(await verify(dir)).toMatchObject({ ok: true, to: 502, covered: 502 });
    await (await openLedger({ dir, origin: ORIGIN })).close();
    expect(existsSync(dirname(dir))).toBe(true);
  });
});
