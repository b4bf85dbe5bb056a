// fs.write: find the directory and the name, decide, then write whole or not at all.

import { closeSync } from "node:fs";
import { join } from "node:path";
import { AuditClock, sha256 } from "../audit.js";
import { type Denial, denial, isDenial, pathDenial } from "../denial.js";
import { absolutePath } from "../paths/path-text.js";
import { findPortableTarget, writePortable } from "../paths/portable.js";
import { findTarget, type PathTarget } from "../paths/target.js";
import { type Written, writeTarget } from "../paths/write.js";
import type { Policy } from "../policy/policy.js";
import { type FsWriteInput, type FsWriteResult, fsWriteInput } from "./definitions.js";
import { requestedPath } from "./fs-read.js";
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

type AnyTarget = PathTarget | Exclude<ReturnType<typeof findPortableTarget>, Denial>;

interface Prepared {
  readonly input: FsWriteInput;
  readonly path: string;
  readonly data: Buffer;
}

function prepare(policy: Policy, args: unknown): Prepared | Denial {
  const input = checkArguments(fsWriteInput, args);
  if (isDenial(input)) return input;
  const data = decode(input);
  if (data === undefined) {
    return denial("INVALID_ARGS", "badData", `data is not valid ${input.encoding ?? "utf8"}`, { field: "data" });
  }
  const path = absolutePath(input.path, "path", policy, policy.readableRoots[0]?.path);
  return typeof path === "string" ? { input, path, data } : path;
}

function decode(input: FsWriteInput): Buffer | undefined {
  if (input.encoding !== "base64") return isWellFormed(input.data) ? Buffer.from(input.data) : undefined;
  const bytes = Buffer.from(input.data, "base64");
  // Node skips what is not base64; only a text that comes back as it went in was base64.
  return bytes.toString("base64") === input.data ? bytes : undefined;
}

/** Node 20 has it; the compiler's library for ES2023 does not. */
function isWellFormed(text: string): boolean {
  return (text as string & { isWellFormed(): boolean }).isWellFormed();
}

function find(policy: Policy, path: string): AnyTarget | Denial {
  return process.platform === "linux"
    ? findTarget(path, policy.writableRoots, policy, "path")
    : findPortableTarget(path, policy.writableRoots, policy, "path");
}

/** What the request and the writable root allow for this target. */
function check(target: AnyTarget, { input, path, data }: Prepared): Denial | undefined {
  const { writableRoot } = target;
  if (data.length > writableRoot.maxFileBytes) {
    const reason = `data has ${data.length} bytes; this writable root takes ${writableRoot.maxFileBytes}`;
    return denial("POLICY_DENY", "maxFileBytes", reason, { field: "data" });
  }
  if (target.old !== undefined)
    return input.overwrite === true ? undefined : pathDenial("existsForWrite", "path", path);
  if (input.create === false) return pathDenial("absentAndNoCreate", "path", path);
  return writableRoot.createIfMissing ? undefined : pathDenial("replaceOnly", "path", path);
}

/** The decision before any effect; executing checks again. */
export function decideFsWrite(policy: Policy, args: unknown): HostDecision {
  try {
    const prepared = prepare(policy, args);
    if (isDenial(prepared)) return denyHostCall(prepared);
    const target = find(policy, prepared.path);
    if (isDenial(target)) return denyHostCall(target);
    closeTarget(target);
    const refused = check(target, prepared);
    return refused === undefined
      ? permitted(target, join(target.directoryPath, ...target.missingDirectories, target.name), prepared)
      : denyHostCall(refused);
  } catch (error) {
    return denyHostCall(internalDenial(error));
  }
}

function permitted(target: AnyTarget, path: string, { data }: Prepared): HostDecision {
  return {
    effect: "permit",
    rule: placeRule("writeRules", target.writableRoot),
    would: { tool: "fs.write", path, bytes: data.length, replaces: target.old !== undefined },
  };
}

function closeTarget(target: AnyTarget): void {
  if ("directory" in target) closeSync(target.directory);
}

/** Checks everything again on the directory's descriptor it writes through. */
export async function executeFsWrite(
  policy: Policy,
  args: unknown,
  context: HostCallContext = {},
): Promise<HostOutcome<FsWriteResult>> {
  const reporter = new Reporter(new AuditClock(), "fs.write", policy, context);
  const asked = requestedPath(args);
  try {
    const prepared = prepare(policy, args);
    if (isDenial(prepared)) return reporter.denied(prepared, { path: asked });
    const written = await write(policy, prepared, context.signal);
    if (isDenial(written)) return reporter.denied(written, { path: asked });
    const result = { bytesWritten: prepared.data.length, sha256: sha256(prepared.data) };
    return reporter.done(result, { path: written.path, bytes: result.bytesWritten, sha256: result.sha256 });
  } catch (error) {
    return reporter.denied(internalDenial(error), { path: asked });
  }
}

async function write(policy: Policy, prepared: Prepared, signal: AbortSignal | undefined): Promise<Written | Denial> {
  const target = find(policy, prepared.path);
  if (isDenial(target)) return target;
  const refused = check(target, prepared);
  if (refused !== undefined) {
    closeTarget(target);
    return refused;
  }
  if ("directory" in target) return await writeTarget(target, prepared.data, prepared.path, "path", signal);
  return await writePortable(target, prepared.data, prepared.path, "path");
}
