// A workflow file with the manifests it names, analysed.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Analysis, JsonSchema, Violation, Workflow } from "../../lattice/index.js";
import { visible } from "../../telemetry/index.js";
import { Schema } from "../../mcp/server/index.js";
import { CliError, EXIT } from "../../lib/exit.js";

export interface LoadedWorkflow {
  readonly room: typeof import("../../lattice/index.js");
  readonly file: string;
  /** Names this version of the file and its manifests. */
  readonly hash: string;
  readonly workflow: Workflow;
  readonly analysis: Analysis;
  readonly violations: readonly Violation[];
}

export async function loadWorkflow(file: string): Promise<LoadedWorkflow> {
  const room = await import("../../lattice/index.js");
  const hash = createHash("sha256");
  const read = (path: string): string => {
    const text = readFileSync(path, "utf8");
    hash.update(`${text.length}\n${text}`);
    return text;
  };
  let text: string;
  try {
    text = read(file);
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
  try {
    // A manifest stands beside the workflow that names it.
    const manifest = (name: string): unknown => manifestIn(JSON.parse(read(resolve(dirname(file), name))));
    const workflow = room.parseWorkflow(text, { manifest });
    const analysis = room.analyse(workflow, { validator: validatorFor });
    return { room, file, hash: hash.digest("hex"), workflow, analysis, violations: analysis.violations() };
  } catch (error) {
    if (!(error instanceof room.LatticeError)) throw error;
    const others = [error, ...error.others].toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0));
    throw new CliError(others.map((each) => `${file}: ${visible(each.message)}`).join("\n       "), EXIT.invalidPolicy);
  }
}

/** An answer of tools/list as it is, or with the JSON-RPC message around it. */
export function manifestIn(value: unknown): unknown {
  const { result, tools } = (value ?? {}) as { result?: unknown; tools?: unknown };
  return tools === undefined && typeof result === "object" && result !== null ? result : value;
}

/** Confirms a witness by a second opinion. */
function validatorFor(schema: JsonSchema): (value: unknown) => boolean {
  const compiled = new Schema(schema as ConstructorParameters<typeof Schema>[0]);
  return (value) => {
    const judged = compiled.validateNow(value as Parameters<Schema["validateNow"]>[0]);
    if (judged === undefined) throw new Error("this value cannot be judged at once");
    return judged.ok;
  };
}
