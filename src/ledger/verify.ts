import { basename } from "node:path";
import type { Archive } from "./archive.js";
import { HashChain, type LedgerProblem, type SeenRecords } from "./chain.js";
import type { Commitment } from "./checkpoints.js";
import { parseHead, parseRecord } from "./entry.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs } from "./files.js";
import { type Checkpoint, openCheckpoint, parseCheckpoint, parseVkey, type Verifier } from "./note.js";
import { openSource, type SourceBatch, tileLeaves, type VerifySource } from "./source.js";
import { checkStatement, PRUNE_ACTION, statementHash } from "./statement.js";
import { rebuildMarker, tileSource } from "./tiles.js";
import {
  consistencyPath,
  consistent,
  HASH_BYTES,
  inclusionPath,
  leafHash,
  rootAt,
  rootFromInclusion,
  Tree,
} from "./tree.js";

const MAX_PROBLEMS = 50;
const MAX_KEY_RECORDS = 10_000;
const MAX_PRUNE_NOTES = 10;

export interface VerifyOptions {
  /** External signed checkpoints. A change of what they cover is detected. */
  readonly checkpoints?: readonly string[];
  /** Verifier keys from an independent source. Without them the keys beside the log are trusted. */
  readonly publicKeys?: readonly string[];
  /** Where pruned records are read from, to check them too. */
  readonly archive?: Archive | undefined;
  readonly disk?: LedgerFs;
  /** Called now and then with the record that is read next. */
  readonly onProgress?: (next: number) => void;
}

export interface CheckedCheckpoint {
  readonly from: string;
  readonly size: number;
  readonly ok: boolean;
  readonly signedBy: readonly string[];
}

export interface Verification {
  /** True when nothing is wrong. */
  readonly ok: boolean;
  readonly source: string;
  readonly origin: string | undefined;
  /** First record and the one after the last that were read. */
  readonly from: number;
  readonly to: number;
  /** Base64 root over everything read; undefined when the file does not begin where the log does. */
  readonly root: string | undefined;
  /** Records below this number are covered by a good checkpoint; those from it on are chained, not signed. */
  readonly covered: number;
  readonly checkpoints: readonly CheckedCheckpoint[];
  /** Whether the keys came from the caller instead of from beside the log. */
  readonly pinned: boolean;
  /** At most 50; `problemCount` is the number of all. */
  readonly problems: readonly LedgerProblem[];
  readonly problemCount: number;
  /** Records below this number were pruned under signed statements; 0 when none were, or all were read from the archive. */
  readonly pruned: number;
  /** Things worth knowing that are not wrong. */
  readonly notes: readonly string[];
}

/** Checks a ledger directory or an exported file, reading it once with bounded memory. */
export async function verify(path: string, options: VerifyOptions = {}): Promise<Verification> {
  const { disk = nodeFs } = options;
  const source = await openSource(disk, path, options.archive);
  const outside = (options.checkpoints ?? []).map((note, i) => ({ from: `outside checkpoint ${i + 1}`, note }));
  const review = new Review(source, [...source.commitments, ...outside], disk, options.onProgress);
  await review.readAll();
  await review.checkSignatures(options.publicKeys);
  return review.result(path);
}

class Review {
  readonly #disk: LedgerFs;
  readonly #onProgress: VerifyOptions["onProgress"];
  readonly #source: VerifySource;
  readonly #commitments: readonly Commitment[];
  readonly #problems: LedgerProblem[] = [];
  #problemCount = 0;
  readonly #notes: string[] = [];
  readonly #tree = new Tree();
  /** Roots at the sizes that some checkpoint names. */
  readonly #roots = new Map<number, string>();
  /** Keys that a record of the log brings in, and that record. */
  readonly #introduced = new Map<string, number>();
  readonly #tileMismatches: SeenRecords[] = [];
  readonly #recordedStatements = new Set<string>();
  #to: number;
  #pinned = false;
  #origin: string | undefined;
  readonly #checked: CheckedCheckpoint[] = [];

  constructor(
    source: VerifySource,
    commitments: readonly Commitment[],
    disk: LedgerFs,
    onProgress: VerifyOptions["onProgress"],
  ) {
    this.#onProgress = onProgress;
    this.#source = source;
    this.#commitments = commitments;
    this.#disk = disk;
    this.#to = source.from;
    for (const { note } of commitments) {
      const size = sizeOf(note);
      if (size !== undefined) this.#roots.set(size, "");
    }
    for (const { to } of source.pruned) this.#roots.set(to, "");
    try {
      this.#tree.resume(source.from, source.edge ?? []);
    } catch (error) {
      if (source.edge !== undefined) throw new LedgerReadError(`the export header is damaged: ${String(error)}`);
      this.#notes.push(`the file begins with record ${source.from}: only its chain could be checked`);
    }
  }

  readonly #report = (problem: LedgerProblem): void => {
    this.#problemCount++;
    if (this.#problems.length < MAX_PROBLEMS) this.#problems.push(problem);
  };

  #trouble(kind: LedgerProblem["kind"], message: string, seq?: number): void {
    this.#report({ kind, seq, segment: undefined, line: undefined, message });
  }

  async readAll(): Promise<void> {
    const { from } = this.#source;
    const chain = new HashChain(from, this.#source.prev, this.#report);
    this.#noteRoot();
    try {
      for await (const batch of this.#source.lines()) {
        await this.#readBatch(batch, chain);
        this.#onProgress?.(this.#to);
      }
    } catch (error) {
      if (!(error instanceof LedgerReadError)) throw error;
      this.#trouble("unreadable", error.message);
    }
    chain.end();
    if (from > 0) await this.#followPruned();
  }

  /** Roots and keys of records that were pruned, by way of the tiles. They hold only if they lead to the statement's root. */
  async #followPruned(): Promise<void> {
    const { dir, pruned, from } = this.#source;
    const last = pruned.at(-1);
    if (dir === undefined || last === undefined) return;
    const source = tileSource(this.#disk, dir);
    const earlier = [
      ...this.#commitments.flatMap(({ note }) => tryParse(note) ?? []),
      ...pruned.map(({ to, root }) => ({ size: to, root })),
    ];
    try {
      for (const { size, root } of earlier) {
        if (size >= from) continue;
        const path = await consistencyPath(source, size, last.to);
        if (consistent(size, root, last.to, last.root, path)) this.#roots.set(size, root);
      }
      for (const line of pruned.flatMap((statement) => statement.keys)) {
        const bytes = Buffer.from(line);
        const seq = parseHead(bytes)?.seq ?? last.to;
        const path = await inclusionPath(source, Math.min(seq, last.to - 1), last.to);
        const leaf = Buffer.from(leafHash(bytes), "base64");
        if (rootFromInclusion(leaf, seq, last.to, path)?.toString("base64") === last.root) this.#noteKey(bytes);
      }
    } catch (error) {
      if (!(error instanceof LedgerReadError)) throw error;
      this.#trouble("tiles", error.message);
    }
  }

  /** Every statement is signed and holds the root of the records; the last is recorded in what remains. */
  #checkStatements(trusted: readonly Verifier[]): void {
    const { pruned, prunedProblem, from } = this.#source;
    if (prunedProblem !== undefined) this.#trouble("pruned", prunedProblem);
    for (const statement of pruned) {
      const { path, to, root, origin } = statement;
      try {
        checkStatement(statement, trusted);
      } catch (error) {
        this.#trouble("pruned", `prune statement ${path} cannot be trusted: ${(error as Error).message}`);
        continue;
      }
      this.#origin ??= origin;
      if (origin !== this.#origin) {
        this.#trouble("pruned", `prune statement ${path} is of ledger "${origin}", not of "${this.#origin}"`);
      } else if (this.#roots.get(to) !== root) {
        this.#trouble("pruned", `prune statement ${path} does not match: the first ${to} records have another root`);
      }
    }
    const last = pruned.at(-1);
    if (last === undefined) return;
    if (!this.#recordedStatements.has(statementHash(last.note))) {
      this.#trouble("pruned", `prune statement ${last.path} is not recorded in the ledger`);
    }
    if (from === 0) {
      this.#notes.push(`records 0 to ${last.to - 1} were pruned, and are here or were read from the archive`);
      return;
    }
    for (const { from: first, to, archive, by, at, path } of pruned.slice(-MAX_PRUNE_NOTES)) {
      this.#notes.push(`records ${first} to ${to - 1} were pruned by ${by} at ${at} to ${archive} (${basename(path)})`);
    }
  }

  #noteStatement(bytes: Buffer): void {
    const record = parseRecord(bytes);
    if (record?.kind !== "admin" || record.action !== PRUNE_ACTION) return;
    const note = record.detail?.statement;
    if (typeof note === "string") this.#recordedStatements.add(statementHash(note));
  }

  async #readBatch({ segment, lines, torn, isLastSegment }: SourceBatch, chain: HashChain): Promise<void> {
    const { dir } = this.#source;
    const tiles = dir === undefined ? undefined : await tileLeaves(this.#disk, dir, this.#to, lines.length);
    const first = this.#to;
    for (const { bytes, number } of lines) {
      const head = parseHead(bytes);
      const at = (this.#to - first) * HASH_BYTES;
      const tile = tiles !== undefined && at < tiles.length ? tiles.toString("base64", at, at + HASH_BYTES) : undefined;
      const leaf = leafHash(bytes);
      const seen: SeenRecords = { seq: head?.seq, prev: head?.prev, leaf, tile, segment, line: number };
      this.#add(seen, chain);
      if (bytes.includes('"kind":"key"')) this.#noteKey(bytes);
      if (bytes.includes(PRUNE_ACTION)) this.#noteStatement(bytes);
      if (bytes.includes('"action":"ledger.restored"')) this.#noteRestore(bytes);
    }
    if (torn === undefined) return;
    if (isLastSegment) {
      this.#notes.push(`${segment} ends with ${torn.length} bytes of a record that was never completed`);
    } else {
      this.#add({ seq: undefined, prev: undefined, leaf: leafHash(torn), tile: undefined, segment, line: 0 }, chain);
    }
  }

  #add(seen: SeenRecords, chain: HashChain): void {
    chain.push(seen);
    if (seen.tile !== undefined && seen.tile !== seen.leaf && this.#tileMismatches.length < MAX_PROBLEMS) {
      this.#tileMismatches.push({ ...seen, seq: this.#to });
    }
    this.#to++;
    this.#tree.push(seen.leaf);
    this.#noteRoot();
  }

  #noteRoot(): void {
    if (this.#roots.has(this.#to)) this.#roots.set(this.#to, this.#tree.root());
  }

  /** What was recorded after the backup is missing, whatever external checkpoints cover. */
  #noteRestore(line: Buffer): void {
    const record = parseRecord(line);
    if (record?.kind !== "admin" || record.action !== "ledger.restored") return;
    const { backup, created_at: at, registered } = (record.detail ?? {}) as Record<string, unknown>;
    const lost = typeof registered === "number" && registered > record.seq ? `; ${registered} had been signed` : "";
    this.#notes.push(
      `record ${record.seq}: the ledger was restored from backup ${String(backup)} of ${String(at)} by ${record.actor}; what was recorded after that backup is missing${lost}`,
    );
  }

  #noteKey(bytes: Buffer): void {
    const record = parseRecord(bytes);
    if (record?.kind !== "key" || this.#introduced.size >= MAX_KEY_RECORDS) return;
    if (!this.#introduced.has(record.new) && isVkey(record.new)) this.#introduced.set(record.new, record.seq);
  }

  /** Decides which keys to believe, and holds the log against every checkpoint. */
  async checkSignatures(publicKeys: readonly string[] | undefined): Promise<void> {
    this.#pinned = publicKeys !== undefined;
    const trusted = (publicKeys ?? this.#source.keys).map(parseVkey);
    this.#followRotations(trusted);
    this.#compareWithHeader();
    for (const commitment of this.#commitments) await this.#check(commitment, trusted);
    this.#checkStatements(trusted);
    if (this.#commitments.length === 0) {
      if (this.#source.dir !== undefined) this.#trouble("checkpoint", "the directory holds no checkpoint");
      else this.#notes.push("no checkpoint was given: only the chain could be checked");
    }
    if (this.#problemCount === 0) await this.#checkTiles();
  }

  /** Proofs are made from the tiles, so tiles that differ from sound records are a problem too. */
  async #checkTiles(): Promise<void> {
    const { dir } = this.#source;
    if (dir === undefined) return;
    if ((await this.#disk.stat(rebuildMarker(dir))) !== undefined && this.#source.from > 0) {
      return this.#trouble("tiles", "the tiles of pruned records are damaged; run `portcullis audit restore`");
    }
    if ((await this.#disk.stat(rebuildMarker(dir))) !== undefined) {
      this.#notes.push("the tiles are being rebuilt: older records cannot be proved until that has finished");
      return;
    }
    const remedy = "restart the gateway to rebuild them";
    const [seen] = this.#tileMismatches;
    if (seen !== undefined) {
      return this.#trouble("tiles", `tiles/0 differs from the records from record ${seen.seq} on; ${remedy}`, seen.seq);
    }
    const covered = Math.max(0, ...this.#checked.filter(({ ok }) => ok).map(({ size }) => size));
    const root = await rootAt(tileSource(this.#disk, dir), covered).catch((error: Error) => error.message);
    if (covered > 0 && root !== this.#roots.get(covered)) {
      this.#trouble("tiles", `the tiles do not lead to the root over ${covered} records; ${remedy}`);
    }
  }

  /** A key is believed when a record brings it in, under a matching checkpoint that a believed key signed. */
  #followRotations(trusted: Verifier[]): void {
    let hasGrown = true;
    while (hasGrown) {
      hasGrown = false;
      for (const { note } of this.#commitments) {
        const checkpoint = tryOpen(note, trusted);
        if (checkpoint === undefined || this.#roots.get(checkpoint.size) !== checkpoint.root) continue;
        for (const [vkey, seq] of this.#introduced) {
          if (seq >= checkpoint.size || trusted.some((key) => key.vkey === vkey)) continue;
          trusted.push(parseVkey(vkey));
          hasGrown = true;
        }
      }
    }
  }

  async #check({ from, note }: Commitment, trusted: readonly Verifier[]): Promise<void> {
    let checkpoint: Checkpoint & { signedBy: Verifier[] };
    try {
      checkpoint = openCheckpoint(note, trusted);
    } catch (error) {
      this.#checked.push({ from, size: sizeOf(note) ?? 0, ok: false, signedBy: [] });
      return this.#trouble("checkpoint", `${from} cannot be trusted: ${(error as Error).message}`);
    }
    const { origin, size, signedBy } = checkpoint;
    const before = this.#problemCount;
    this.#origin ??= origin;
    if (origin !== this.#origin) {
      this.#trouble("checkpoint", `${from} is of ledger "${origin}", not of "${this.#origin}"`);
    } else await this.#compare(from, checkpoint);
    this.#checked.push({ from, size, ok: before === this.#problemCount, signedBy: signedBy.map((key) => key.vkey) });
  }

  async #compare(from: string, { size, root }: Checkpoint): Promise<void> {
    const { header, edge } = this.#source;
    if (edge === undefined || (header !== undefined && this.#to !== header.to)) return;
    if (header !== undefined && size > header.to) return this.#compareBeyond(from, { size, root }, header);
    if (size > this.#to) return this.#tellTruncated(from, size);
    if (size < this.#source.from && this.#source.pruned.length === 0) {
      this.#notes.push(`${from} covers only records before the first of this file`);
      return;
    }
    if (this.#roots.get(size) !== root) await this.#nameChange(from, size, root);
  }

  #compareWithHeader(): void {
    const end = this.#source.header?.to;
    if (end === undefined || end === this.#to) return;
    if (this.#to < end) this.#tellTruncated("the export header", end);
    else this.#trouble("misplaced", `records from ${end} on do not belong to the export, as its header states`, end);
  }

  #tellTruncated(from: string, size: number): void {
    const which = size - 1 === this.#to ? `record ${this.#to} is` : `records ${this.#to} to ${size - 1} are`;
    this.#trouble("truncated", `${which} missing at the end: ${from} was signed over ${size} records`, this.#to);
  }

  /** An export may end before its checkpoint does; then its header shows the way. */
  #compareBeyond(
    from: string,
    { size, root }: { size: number; root: string },
    header: NonNullable<VerifySource["header"]>,
  ): void {
    const own = tryParse(header.checkpoint);
    if (own?.size !== size || own.root !== root) {
      this.#notes.push(`${from} covers ${size} records; this export cannot show that it belongs to them`);
      return;
    }
    const path = header.consistency.map((hash) => Buffer.from(hash, "base64"));
    if (!consistent(this.#to, this.#tree.root(), size, root, path)) this.#tellRange(from, this.#source.from, header.to);
  }

  /** The root differs though every link holds, or links are broken too. The tiles may still know which record it is. */
  async #nameChange(from: string, size: number, root: string): Promise<void> {
    const isNamed = this.#problems.some((problem) => problem.seq !== undefined && problem.seq < size);
    if (isNamed) return this.#trouble("checkpoint", `${from} does not match: see the records named`);
    const { dir } = this.#source;
    const signedRoot =
      dir === undefined ? undefined : await rootAt(tileSource(this.#disk, dir), size).catch(() => undefined);
    const changed = this.#tileMismatches.filter((seen) => (seen.seq as number) < size);
    if (signedRoot !== root || changed.length === 0) return this.#tellRange(from, this.#goodBefore(size), size);
    for (const { seq, segment, line } of changed) {
      const message = `record ${seq} (${segment} line ${line}) was changed: ${from} was signed over another one`;
      this.#report({ kind: "altered", seq, segment, line, message });
    }
  }

  #tellRange(from: string, first: number, size: number): void {
    const message = `${from} does not match: some record from ${first} to ${size - 1} was changed, and the links after it with it`;
    this.#trouble("altered", message, first);
  }

  #goodBefore(size: number): number {
    const good = this.#checked.filter((checkpoint) => checkpoint.ok && checkpoint.size < size);
    return Math.max(this.#source.from, ...good.map((checkpoint) => checkpoint.size));
  }

  result(source: string): Verification {
    const good = this.#checked.filter((checkpoint) => checkpoint.ok);
    const covered = Math.min(this.#to, Math.max(this.#source.from, ...good.map((checkpoint) => checkpoint.size)));
    return {
      ok: this.#problemCount === 0,
      source,
      origin: this.#origin ?? this.#source.header?.origin,
      from: this.#source.from,
      to: this.#to,
      root: this.#source.edge === undefined ? undefined : this.#tree.root(),
      covered,
      checkpoints: this.#checked,
      pinned: this.#pinned,
      pruned: this.#source.pruned.length === 0 ? 0 : this.#source.from,
      problems: this.#problems,
      problemCount: this.#problemCount,
      notes: this.#notes,
    };
  }
}

function tryParse(note: string): Checkpoint | undefined {
  try {
    return parseCheckpoint(note.slice(0, note.lastIndexOf("\n\n") + 1));
  } catch {
    return undefined;
  }
}

function sizeOf(note: string): number | undefined {
  return tryParse(note)?.size;
}

function isVkey(text: string): boolean {
  try {
    return parseVkey(text).vkey === text;
  } catch {
    return false;
  }
}

function tryOpen(note: string, trusted: readonly Verifier[]): Checkpoint | undefined {
  try {
    return openCheckpoint(note, trusted);
  } catch {
    return undefined;
  }
}
