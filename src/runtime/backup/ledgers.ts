// Copies of ledgers that may be written meanwhile. Where each ends is settled for all of them before the first byte is
// copied; what is derived from the records is left out, since a start computes it again.

import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { dirname, isAbsolute, join, relative, sep } from "node:path";
import { pipeline } from "node:stream/promises";
import { CliError } from "../../lib/exit.js";

const SEGMENT = /^seq-\d{16}\.ndjson(\.gz)?$/;
const PLAIN_SEGMENT = /^seq-\d{16}\.ndjson$/;
/** Tiles of records that were pruned cannot be computed again: then they are part of the copy. */
const TILES = /^tiles(\.rebuilding)?$/;
const DERIVED = /^(registered\.json(\.new)?|calls-.*\.index|lock(\.\d+)?|.*\.next|.*\.gz\.\d+)$/;
const SIGNING_KEY = /^signing\.key(\.rotate)?$/;
const NO_LEDGERS = new Set(["servers", "repositories", "policy", "admin", "backups"]);
const MAX_DEPTH = 3;
const MAX_LEDGERS = 1_000;
const ATTEMPTS = 10;
const TAIL_BYTES = 1 << 20;

/** Set aside by an earlier restore. */
export const REPLACED = ".replaced-";

/** Every directory below this one that holds records. */
export function ledgersBelow(dir: string): string[] {
  const found: string[] = [];
  const look = (path: string, depth: number): void => {
    const entries = readdirSync(path, { withFileTypes: true });
    if (entries.some(({ name }) => SEGMENT.test(name))) found.push(path);
    if (found.length > MAX_LEDGERS) throw new CliError(`${dir} holds more than ${MAX_LEDGERS} ledgers`);
    if (depth === MAX_DEPTH) return;
    for (const entry of entries) {
      const isAside = entry.name.includes(REPLACED) || (depth === 0 && NO_LEDGERS.has(entry.name));
      if (entry.isDirectory() && !isAside) look(join(path, entry.name), depth + 1);
    }
  };
  if (existsSync(dir)) look(dir, 0);
  return found.sort();
}

/** Where a ledger is, for the manifest. */
export function ledgerPath(dataDir: string, ledger: string): string {
  const inside = relative(dataDir, ledger);
  return inside.startsWith("..") || isAbsolute(inside) ? ledger : inside.split(sep).join("/");
}

/** Everything of a ledger as it was at one moment. */
export interface LedgerCut {
  readonly dir: string;
  readonly origin: string;
  readonly checkpoint: string;
  /** Texts that may be replaced, by name. */
  readonly small: ReadonlyMap<string, string>;
  /** Bytes by name, of files that only grow. */
  readonly large: ReadonlyMap<string, number>;
  /** Texts by name: these are keys. */
  readonly keys: Readonly<Record<string, string>>;
}

/**
 * INVARIANT: signed checkpoints are read before the sizes of the records they cover. A signing key that is replaced
 * meanwhile makes it begin again.
 */
export function cutLedger(dir: string): LedgerCut {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const keys = readKeys(dir);
    const small = readSmall(dir);
    const large = sizesOf(dir);
    if (JSON.stringify(keys) !== JSON.stringify(readKeys(dir))) continue;
    if ([...small].some(([name, text]) => name.startsWith("keys/") && readText(dir, name) !== text)) continue;
    const checkpoint = small.get("checkpoint") ?? "";
    const [origin = ""] = checkpoint.split("\n");
    if (origin !== "") return { dir, origin, checkpoint, small, large, keys };
    throw new CliError(`ledger ${dir} has no signed checkpoint`, undefined, "start the gateway, which signs one");
  }
  throw new CliError(`the keys of ledger ${dir} keep changing`, undefined, "try again");
}

function filesIn(dir: string, prefix = ""): string[] {
  return readdirSync(join(dir, prefix), { withFileTypes: true }).flatMap((entry) => {
    const name = `${prefix}${entry.name}`;
    if (TILES.test(entry.name) && !existsSync(join(dir, "pruned"))) return [];
    if (DERIVED.test(entry.name) || SIGNING_KEY.test(entry.name) || entry.name.includes(REPLACED)) return [];
    if (!entry.isDirectory()) return entry.isFile() ? [name] : [];
    const isLedger = readdirSync(join(dir, name)).some((each) => SEGMENT.test(each) || SIGNING_KEY.test(each));
    return isLedger ? [] : filesIn(dir, `${name}/`);
  });
}

const readText = (dir: string, name: string): string | undefined => {
  try {
    return readFileSync(join(dir, name), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
};

function readKeys(dir: string): Record<string, string> {
  const found = ["signing.key", "signing.key.rotate"].map((name) => [name, readText(dir, name)] as const);
  return Object.fromEntries(found.filter((each): each is [string, string] => each[1] !== undefined));
}

const isLarge = (name: string): boolean => SEGMENT.test(name) || name.startsWith("tiles/");

function readSmall(dir: string): Map<string, string> {
  const names = filesIn(dir).filter((name) => !isLarge(name));
  const texts = names.map((name) => [name, readText(dir, name)] as const);
  return new Map(texts.filter((each): each is [string, string] => each[1] !== undefined));
}

function sizesOf(dir: string): Map<string, number> {
  const sizes = new Map<string, number>();
  for (const name of filesIn(dir).filter(isLarge)) {
    const size = statSync(join(dir, name), { throwIfNoEntry: false })?.size;
    if (size !== undefined) sizes.set(name, size);
  }
  return sizes;
}

/** Copies what was settled; undefined when a file was compressed or moved meanwhile, and the ledger has to be cut again. */
export async function copyLedger(cut: LedgerCut, target: string): Promise<string[] | undefined> {
  const { dir, small, large } = cut;
  const names = [...large.keys()].sort();
  const last = names.filter((name) => PLAIN_SEGMENT.test(name)).at(-1);
  try {
    for (const name of names) {
      mkdirSync(dirname(join(target, name)), { recursive: true, mode: 0o700 });
      const size = large.get(name) as number;
      const end = name === last ? await wholeLines(join(dir, name), size) : size;
      await copyBytes(join(dir, name), join(target, name), end);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  for (const [name, text] of small) {
    mkdirSync(dirname(join(target, name)), { recursive: true, mode: 0o700 });
    await pipeline([text], createWriteStream(join(target, name), { mode: 0o600 }));
  }
  return [...names, ...small.keys()];
}

async function copyBytes(from: string, to: string, size: number): Promise<void> {
  const source = size === 0 ? [] : createReadStream(from, { end: size - 1 });
  await pipeline(source, createWriteStream(to, { mode: 0o600 }));
}

/** A record that was half written at that moment is not part of the copy. */
async function wholeLines(path: string, size: number): Promise<number> {
  const file = await open(path, "r");
  try {
    for (let want = TAIL_BYTES; ; want *= 2) {
      const bytes = Buffer.alloc(Math.min(want, size));
      await file.read(bytes, 0, bytes.length, size - bytes.length);
      const end = bytes.lastIndexOf(10);
      if (end >= 0) return size - bytes.length + end + 1;
      if (bytes.length === size) return 0;
    }
  } finally {
    await file.close();
  }
}
