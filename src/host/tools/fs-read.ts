// fs.read: decide, then read the very file that was decided on.

import { isAscii, isUtf8 } from "node:buffer";
import { closeSync } from "node:fs";
import { AuditClock, sha256 } from "../audit.js";
import { type Denial, denial, isDenial, quoteValue } from "../denial.js";
import type { LocatedPlace } from "../paths/locate.js";
import { isWithin } from "../paths/mounts.js";
import { absolutePath } from "../paths/path-text.js";
import { ioDenial, type OpenFile, openForRead, readBytes } from "../paths/read.js";
import type { Policy } from "../policy/policy.js";
import { type FsReadInput, type FsReadResult, fsReadInput } from "./definitions.js";
import {
  checkArguments,
  denyHostCall,
  type HostCallContext,
  type HostDecision,
  type HostOutcome,
  internalDenial,
  placeRule,
  Reporter,
} from "./outcome.js";

interface Opened {
  readonly input: FsReadInput;
  readonly file: OpenFile;
  readonly offset: number;
  readonly bytes: number;
  /** More was asked for than `maxReadBytes`. */
  readonly isClamped: boolean;
}

function open(policy: Policy, args: unknown): Opened | Denial {
  const input = checkArguments(fsReadInput, args);
  if (isDenial(input)) return input;
  const path = absolutePath(input.path, "path", policy, policy.readableRoots[0]?.path);
  if (typeof path !== "string") return path;
  const file = openForRead(path, policy.readableRoots, policy, "path");
  if (isDenial(file)) return file;
  const offset = input.offset ?? 0;
  const available = Math.max(0, file.size - offset);
  const wanted = Math.min(input.length ?? available, available);
  const bytes = Math.min(wanted, policy.limits.maxReadBytes);
  return { input, file, offset, bytes, isClamped: bytes < wanted };
}

/** The innermost root that holds it. */
function rootOf(policy: Policy, path: string): LocatedPlace | undefined {
  const around = policy.readableRoots.filter((root) => isWithin(path, root.path));
  return around.sort((a, b) => b.path.length - a.path.length)[0];
}

/** The decision before any effect; executing checks again. */
export function decideFsRead(policy: Policy, args: unknown): HostDecision {
  try {
    const opened = open(policy, args);
    if (isDenial(opened)) return denyHostCall(opened);
    const { file, offset, bytes } = opened;
    closeSync(file.fd);
    return {
      effect: "permit",
      rule: placeRule("allowedRoots", rootOf(policy, file.path)),
      would: { tool: "fs.read", path: file.path, offset, bytes },
    };
  } catch (error) {
    return denyHostCall(internalDenial(error));
  }
}

/** Checks everything again on the descriptor it reads from. */
export async function executeFsRead(
  policy: Policy,
  args: unknown,
  context: HostCallContext = {},
): Promise<HostOutcome<FsReadResult>> {
  const reporter = new Reporter(new AuditClock(), "fs.read", policy, context);
  const asked = requestedPath(args);
  let opened: Opened | Denial;
  try {
    opened = open(policy, args);
  } catch (error) {
    opened = internalDenial(error);
  }
  if (isDenial(opened)) return reporter.denied(opened, { path: asked });
  const { file, input } = opened;
  try {
    const result = await readFile(opened, context.signal);
    if (isDenial(result)) return reporter.denied(result, { path: file.path });
    return reporter.done(result, { path: file.path, bytes: result.bytesRead, sha256: result.sha256 });
  } catch (error) {
    const denied =
      context.signal?.aborted === true
        ? denial("IO_ERROR", "cancelled", "the call was cancelled")
        : ioDenial(error, input.path, "path");
    return reporter.denied(denied, { path: file.path });
  } finally {
    closeSync(file.fd);
  }
}

async function readFile(opened: Opened, signal: AbortSignal | undefined): Promise<FsReadResult | Denial> {
  const { file, input, offset } = opened;
  const bytes = await readBytes(file.fd, offset, opened.bytes, signal);
  if (input.encoding === "base64") return readResult(bytes, bytes.toString("base64"), opened);
  const kept = opened.isClamped ? keepWithinAnswer(bytes) : bytes;
  const whole = dropSplitCharacter(kept, offset + kept.length < file.size);
  // Most text is ASCII, which is copied, not decoded.
  if (isAscii(whole)) return readResult(whole, whole.toString("latin1"), opened);
  if (isUtf8(whole)) return readResult(whole, whole.toString("utf8"), opened);
  return denial("INVALID_ARGS", "notText", `path ${quoteValue(input.path)} is not UTF-8 text in the range asked for`, {
    field: "encoding",
    suggestions: ["read it with encoding base64"],
  });
}

/** A shortened read is reported, and the reader continues at `offset + bytesRead`. */
function readResult(bytes: Buffer, data: string, { file, isClamped }: Opened): FsReadResult {
  const result = { data, bytesRead: bytes.length, sha256: sha256(bytes), size: file.size };
  return isClamped ? { ...result, truncated: true, warnings: ["OUTPUT_TRUNCATED"] } : result;
}

/** Below it, escapes do not matter. */
const SMALL_BYTES = 4096;

/** Control characters take six bytes in JSON. The JSON of a clamped text stays within about twice `maxReadBytes`. */
function keepWithinAnswer(bytes: Buffer): Buffer {
  if (bytes.length <= SMALL_BYTES) return bytes;
  const isLong = JSON.stringify(bytes.toString("latin1")).length > 1.5 * bytes.length;
  return isLong ? bytes.subarray(0, bytes.length / 4) : bytes;
}

/** A range may end inside a character; its first bytes are left for the next read. */
function dropSplitCharacter(bytes: Buffer, moreFollows: boolean): Buffer {
  if (!moreFollows) return bytes;
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    // Never down to nothing: a reader that asks again would get nothing for ever.
    return needed > back && bytes.length > back ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}

export function requestedPath(args: unknown, field = "path"): string | undefined {
  const value = typeof args === "object" && args !== null ? (args as Record<string, unknown>)[field] : undefined;
  return typeof value === "string" ? value.slice(0, 1024) : undefined;
}
