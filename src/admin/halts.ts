// Emergency stop over the admin API: `listHalts`, `halt` and `resume` of the table of operations.

import { Fault } from "../mcp/index.js";
import { type Halt, Halts, type HaltTarget } from "../policy/index.js";
import { visible } from "../telemetry/index.js";
import type { HaltRow, OperationInput } from "./operations.js";

export interface HaltControl {
  /** Those in force here, of the store and by file. */
  list(): readonly Halt[];
  /** Resolves when it is durable and in force in this process. */
  put(target: HaltTarget, reason: string, by: string): Promise<Halt>;
  /** False when the store has no halt of exactly this target. */
  remove(target: HaltTarget, by: string): Promise<boolean>;
}

export function haltRow({ target, by, reason, at, source }: Halt): HaltRow {
  const fields = Halts.FIELDS.flatMap((field) => {
    const value = target[field];
    return value === undefined ? [] : [[field, visible(value)] as const];
  });
  const facts = { by: visible(by), reason: visible(reason), since: new Date(at).toISOString(), source };
  return { target: visible(Halts.nameOf(target)), ...Object.fromEntries(fields), ...facts };
}

export async function halt(control: HaltControl, input: OperationInput<"halt">, by: string): Promise<HaltRow> {
  const { reason = "", ...target } = input;
  return haltRow(await control.put(target, reason, by));
}

export async function resume(
  control: HaltControl,
  target: OperationInput<"resume">,
  by: string,
): Promise<{ ok: boolean }> {
  if (await control.remove(target, by)) return { ok: true };
  const inForce = control.list().map((each) => Halts.nameOf(each.target));
  throw new Fault("ResourceNotFound", `no halt of \`${visible(Halts.nameOf(target))}\` is in the store`, {
    suggestions: [inForce.length === 0 ? "Nothing is halted" : `In force: ${inForce.map(visible).join(", ")}`],
  });
}
