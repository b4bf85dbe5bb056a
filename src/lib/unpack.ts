// Unpacks a release archive (tar.gz) into a directory that is new. It takes regular files and directories with plain relative
// names and nothing else: no links of any kind, no devices, no name that could mean another place on any platform.

import { createReadStream } from "node:fs";
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { createGunzip } from "node:zlib";

export class ArchiveInvalid extends Error {
  readonly code = "ARCHIVE_INVALID";
  constructor(message: string) {
    super(`the archive is refused: ${message}`);
    this.name = "ArchiveInvalid";
  }
}

export interface UnpackLimits {
  readonly maxEntries: number;
  /** Of everything together, unpacked. */
  readonly maxBytes: number;
}

const LIMITS: UnpackLimits = { maxEntries: 20_000, maxBytes: 1024 * 1024 * 1024 };
const BLOCK = 512;
const MAX_NAME = 512;
const SYNCS_AT_ONCE = 4;
const MAX_PAX_BYTES = 4096;

interface Header {
  readonly name: string;
  readonly size: number;
  readonly executable: boolean;
  readonly type: string;
}

/** Every entry must lie in the directory `top`, which is left out of what is written below `target`. */
export async function unpack(archive: string, target: string, top: string, limits = LIMITS): Promise<void> {
  const blocks = new Blocks(archive, limits.maxBytes);
  const seen = new Set<string>();
  const directories = new Set<string>();
  const written: string[] = [];
  let longName: string | undefined;
  await mkdir(target, { mode: 0o755 });
  for (let entries = 0; ; entries += 1) {
    const block = await blocks.next();
    if (block.every((byte) => byte === 0)) break;
    // A long name is an entry of its own, hence twice the number.
    if (entries >= limits.maxEntries * 2) throw new ArchiveInvalid(`it has more than ${limits.maxEntries} entries`);
    const header = readHeader(block);
    if (header.type === "x") {
      longName = await readPaxName(blocks, header);
      continue;
    }
    const path = placeOf(longName ?? header.name, top);
    longName = undefined;
    // Some file systems take names that differ in case or in Unicode form for the same.
    const folded = path.normalize("NFKC").toLowerCase();
    if (header.type === "5") {
      if (header.size !== 0) throw new ArchiveInvalid(`directory ${path} has contents of its own`);
      await makeDirectories(target, path, directories);
    } else if (header.type === "0") {
      if (path === "" || seen.has(folded)) throw new ArchiveInvalid(`${path} is in it twice`);
      seen.add(folded);
      await makeDirectories(target, path.slice(0, Math.max(0, path.lastIndexOf("/"))), directories);
      await writeEntry(join(target, path), header, blocks);
      written.push(join(target, path));
    } else {
      throw new ArchiveInvalid(`${path} is neither a file nor a directory (type ${JSON.stringify(header.type)})`);
    }
  }
  await blocks.end();
  await syncAll(written);
}

/** On the disk before the switch: a machine that loses power must not start a version with holes. All at the end, since
 * one flush of the journal then does for many. */
async function syncAll(paths: string[]): Promise<void> {
  const worker = async (): Promise<void> => {
    for (let path = paths.pop(); path !== undefined; path = paths.pop()) {
      const file = await open(path, "r+");
      await file.sync().finally(() => file.close());
    }
  };
  await Promise.all(Array.from({ length: SYNCS_AT_ONCE }, worker));
}

async function makeDirectories(target: string, path: string, made: Set<string>): Promise<void> {
  if (path === "" || made.has(path)) return;
  await mkdir(join(target, path), { recursive: true, mode: 0o755 });
  made.add(path);
}

/** What is there already is never written to: a name that means an earlier file ends in an error. */
async function writeEntry(path: string, header: Header, blocks: Blocks): Promise<void> {
  let file: FileHandle;
  try {
    file = await open(path, "wx", header.executable ? 0o755 : 0o644);
  } catch (error) {
    throw new ArchiveInvalid(`${header.name} cannot be written (${(error as NodeJS.ErrnoException).code})`);
  }
  try {
    await blocks.body(header.size, (chunk) => file.writeFile(chunk));
  } finally {
    await file.close();
  }
}

function readHeader(block: Buffer): Header {
  const sum = octal(block, 148, 8, "checksum");
  let actual = 8 * 0x20;
  for (let index = 0; index < BLOCK; index += 1) {
    if (index < 148 || index >= 156) actual += block[index] as number;
  }
  if (sum !== actual) throw new ArchiveInvalid("a header's checksum is wrong");
  if (block.toString("latin1", 257, 262) !== "ustar") throw new ArchiveInvalid("it is not a ustar archive");
  const prefix = text(block, 345, 155);
  const name = text(block, 0, 100);
  const type = block[156] === 0 ? "0" : String.fromCharCode(block[156] as number);
  return {
    name: prefix === "" ? name : `${prefix}/${name}`,
    size: octal(block, 124, 12, "size"),
    executable: (octal(block, 100, 8, "mode") & 0o111) !== 0,
    type,
  };
}

function text(block: Buffer, start: number, length: number): string {
  const field = block.subarray(start, start + length);
  const end = field.indexOf(0);
  return (end < 0 ? field : field.subarray(0, end)).toString("utf8");
}

function octal(block: Buffer, start: number, length: number, field: string): number {
  const digits = block.toString("latin1", start, start + length).replace(/[\0 ]+$/, "");
  if (!/^ *[0-7]{1,11}$/.test(digits)) throw new ArchiveInvalid(`a header's ${field} is not a number`);
  return Number.parseInt(digits.trim(), 8);
}

/** An extended header may hold a longer name only. */
async function readPaxName(blocks: Blocks, header: Header): Promise<string> {
  if (header.size > MAX_PAX_BYTES) throw new ArchiveInvalid("an extended header is too long");
  const parts: Buffer[] = [];
  await blocks.body(header.size, async (chunk) => {
    parts.push(chunk);
  });
  const record = Buffer.concat(parts);
  const [, length, name] = /^(\d{1,4}) path=([^\n]+)\n$/.exec(record.toString("utf8")) ?? [];
  if (name === undefined || Number(length) !== record.length) {
    throw new ArchiveInvalid("an extended header holds more than a name");
  }
  return name;
}

/** Answers the name below `top`; throws on whatever is not a plain relative name everywhere. */
function placeOf(name: string, top: string): string {
  const clean = name.endsWith("/") ? name.slice(0, -1) : name;
  const shown = JSON.stringify(name.slice(0, 200));
  if (name.length > MAX_NAME) throw new ArchiveInvalid(`the name ${shown}… is too long`);
  const [first, ...rest] = clean.split("/");
  if (first !== top) throw new ArchiveInvalid(`${shown} does not lie in ${top}/`);
  for (const part of rest) {
    const odd = /[\\:*?"<>|\p{Cc}\ufffd]/u.test(part) || /[. ]$/.test(part) || part === "";
    if (odd || /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(part)) {
      throw new ArchiveInvalid(`${shown} is not a plain file name`);
    }
  }
  return rest.join("/");
}

/** The unpacked stream in blocks of 512 bytes. Counts what comes out, so that a small file cannot become a huge one. */
class Blocks {
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #maxBytes: number;
  #held: Buffer = Buffer.alloc(0);
  #total = 0;

  constructor(archive: string, maxBytes: number) {
    const gunzip = createGunzip();
    const source = createReadStream(archive);
    source.on("error", (error) => gunzip.destroy(error));
    // The iterator listens from its first step on. An error before that step is thrown by it all the same.
    gunzip.on("error", () => {});
    this.#chunks = source.pipe(gunzip)[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    this.#maxBytes = maxBytes;
  }

  async next(): Promise<Buffer> {
    while (this.#held.length < BLOCK) {
      if (!(await this.#more())) throw new ArchiveInvalid("it ends too early");
    }
    return this.#take(BLOCK);
  }

  async body(size: number, take: (chunk: Buffer) => Promise<void>): Promise<void> {
    if (size > this.#maxBytes) throw new ArchiveInvalid(`it unpacks to more than ${this.#maxBytes} bytes`);
    let left = size;
    while (left > 0) {
      if (this.#held.length === 0 && !(await this.#more())) throw new ArchiveInvalid("it ends too early");
      const chunk = this.#take(Math.min(left, this.#held.length));
      left -= chunk.length;
      await take(chunk);
    }
    const padding = (BLOCK - (size % BLOCK)) % BLOCK;
    while (this.#held.length < padding) {
      if (!(await this.#more())) throw new ArchiveInvalid("it ends too early");
    }
    this.#take(padding);
  }

  /** After the first empty block there is another one, and then nothing but emptiness. */
  async end(): Promise<void> {
    let empty = 0;
    do {
      if (this.#held.some((byte) => byte !== 0)) throw new ArchiveInvalid("something follows after its end");
      empty += this.#held.length;
      this.#held = Buffer.alloc(0);
    } while (await this.#more());
    if (empty < BLOCK) throw new ArchiveInvalid("it ends too early");
  }

  #take(length: number): Buffer {
    const taken = this.#held.subarray(0, length);
    this.#held = this.#held.subarray(length);
    return taken;
  }

  async #more(): Promise<boolean> {
    let result: IteratorResult<Buffer>;
    try {
      result = await this.#chunks.next();
    } catch (error) {
      throw new ArchiveInvalid(`it cannot be unpacked (${(error as Error).message})`);
    }
    if (result.done) return false;
    this.#total += result.value.length;
    if (this.#total > this.#maxBytes) throw new ArchiveInvalid(`it unpacks to more than ${this.#maxBytes} bytes`);
    this.#held = this.#held.length === 0 ? result.value : Buffer.concat([this.#held, result.value]);
    return true;
  }
}
