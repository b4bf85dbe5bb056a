// fs.write: find the folder and the name, decide, then write whole or not at all.

import { closeSync } from "node:fs";
import { join } from "node:path";
import { AuditClock, sha256 } from "../audit.js";
import { type Denial, denial, isDenial, quoteValue } from "../denial.js";
import {
  absolutePath,
  findPortableTarget,
  findTarget,
  type PathTarget,
  type Written,
  writePortable,
  writeTarget,
} from "../paths/index.js";
import type { Policy } from "../policy/index.js";
import { requestedPath } from "./fs-read.js";
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
import { type FsWriteInput, type FsWriteResult, fsWriteInput } from "./shapes.js";

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
  const path = absolutePath(input.path, "path", {
    platform: policy.platform,
    home: policy.home,
    base: policy.roots[0]?.path,
  });
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
    ? findTarget(path, policy.zones, policy, "path")
    : findPortableTarget(path, policy.zones, policy, "path");
}

/** What the request and the zone allow for this target. */
function judge(target: AnyTarget, { input, path, data }: Prepared): Denial | undefined {
  const { zone } = target;
  if (data.length > zone.maxFileBytes) {
    return denial(
      "POLICY_DENY",
      "maxFileBytes",
      `data has ${data.length} bytes; this write zone takes ${zone.maxFileBytes}`,
      { field: "data" },
    );
  }
  if (target.old !== undefined && input.overwrite !== true) {
    return denial("POLICY_DENY", "exists", `path ${quoteValue(path)} exists`, {
      field: "path",
      suggestions: ["set overwrite: true to replace it", "choose another name"],
    });
  }
  if (target.old === undefined && input.create === false) {
    return denial("IO_ERROR", "notFound", `path ${quoteValue(path)} does not exist and create is false`, {
      field: "path",
    });
  }
  if (target.old === undefined && !zone.createIfMissing) {
    return denial(
      "POLICY_DENY",
      "createIfMissing",
      `path ${quoteValue(path)} does not exist and this write zone only replaces files`,
      {
        field: "path",
        suggestions: ["ask the operator to set createIfMissing: true for this write zone"],
      },
    );
  }
  return undefined;
}

/** Asked by the gate. */
export function decideFsWrite(policy: Policy, args: unknown): HostDecision {
  try {
    const prepared = prepare(policy, args);
    if (isDenial(prepared)) return denyHostCall(prepared);
    const target = find(policy, prepared.path);
    if (isDenial(target)) return denyHostCall(target);
    closeTarget(target);
    const refused = judge(target, prepared);
    return refused === undefined
      ? permitted(target, join(target.folderPath, ...target.missingFolders, target.name), prepared)
      : denyHostCall(refused);
  } catch (error) {
    return denyHostCall(internalDenial(error));
  }
}

function permitted(target: AnyTarget, path: string, { data }: Prepared): HostDecision {
  return {
    effect: "permit",
    rule: placeRule("writeRules", target.zone),
    would: { tool: "fs.write", path, bytes: data.length, replaces: target.old !== undefined },
  };
}

function closeTarget(target: AnyTarget): void {
  if ("folder" in target) closeSync(target.folder);
}

/** Checks everything again on the folder's descriptor it writes through. */
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

export const fsWrite = executeFsWrite;

async function write(policy: Policy, prepared: Prepared, signal: AbortSignal | undefined): Promise<Written | Denial> {
  const target = find(policy, prepared.path);
  if (isDenial(target)) return target;
  const refused = judge(target, prepared);
  if (refused !== undefined) {
    closeTarget(target);
    return refused;
  }
  if ("folder" in target) return await writeTarget(target, prepared.data, prepared.path, "path", signal);
  return await writePortable(target, prepared.data, prepared.path, "path");
}
