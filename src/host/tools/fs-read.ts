// fs.read: decide, then read the very file that was decided on.

import { isAscii, isUtf8 } from "node:buffer";
import { closeSync } from "node:fs";
import { AuditClock, sha256 } from "../audit.js";
import { type Denial, denial, isDenial, quoteValue } from "../denial.js";
import {
  absolutePath,
  ioDenial,
  isWithin,
  type OpenFile,
  openForRead,
  type LocatedPlace,
  readBytes,
} from "../paths/index.js";
import type { Policy } from "../policy/index.js";
import {
  type HostCallContext,
  checkArguments,
  type HostDecision,
  denyHostCall,
  internalDenial,
  type HostOutcome,
  placeRule,
  Reporter,
} from "./outcome.js";
import { type FsReadInput, type FsReadResult, fsReadInput } from "./shapes.js";

interface Opened {
  readonly input: FsReadInput;
  readonly file: OpenFile;
  readonly offset: number;
  readonly bytes: number;
}

function open(policy: Policy, args: unknown): Opened | Denial {
  const input = checkArguments(fsReadInput, args);
  if (isDenial(input)) return input;
  const path = absolutePath(input.path, "path", {
    platform: policy.platform,
    home: policy.home,
    base: policy.roots[0]?.path,
  });
  if (typeof path !== "string") return path;
  const file = openForRead(path, policy.roots, policy, "path");
  if (isDenial(file)) return file;
  const offset = input.offset ?? 0;
  const available = Math.max(0, file.size - offset);
  const bytes = Math.min(input.length ?? available, available);
  if (bytes <= policy.limits.maxReadBytes) return { input, file, offset, bytes };
  closeSync(file.fd);
  return tooMuch(bytes, policy.limits.maxReadBytes);
}

/** The innermost root that holds it. */
function rootOf(policy: Policy, path: string): LocatedPlace | undefined {
  const around = policy.roots.filter((root) => isWithin(path, root.path));
  return around.sort((a, b) => b.path.length - a.path.length)[0];
}

/** Asked by the gate. */
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

export const fsRead = executeFsRead;

async function readFile(opened: Opened, signal: AbortSignal | undefined): Promise<FsReadResult | Denial> {
  const { file, input, offset } = opened;
  const bytes = await readBytes(file.fd, offset, opened.bytes, signal);
  if (input.encoding === "base64") return readResult(bytes, bytes.toString("base64"), file.size);
  const whole = dropSplitCharacter(bytes, offset + bytes.length < file.size);
  // Most text is ASCII, which is copied, not decoded.
  if (isAscii(whole)) return readResult(whole, whole.toString("latin1"), file.size);
  if (isUtf8(whole)) return readResult(whole, whole.toString("utf8"), file.size);
  return denial("INVALID_ARGS", "notText", `path ${quoteValue(input.path)} is not UTF-8 text in the range asked for`, {
    field: "encoding",
    suggestions: ["read it with encoding base64"],
  });
}

/** Half an answer looks like a whole one to a reader in a hurry, so there is none. */
function tooMuch(wanted: number, maxReadBytes: number): Denial {
  const reason = `${wanted} bytes were asked for; one call reads at most ${maxReadBytes}`;
  return denial("POLICY_DENY", "maxReadBytes", reason, {
    field: "length",
    suggestions: [`read in parts, with offset and a length of at most ${maxReadBytes}`],
  });
}

function readResult(bytes: Buffer, data: string, size: number): FsReadResult {
  return { data, bytesRead: bytes.length, sha256: sha256(bytes), size };
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
