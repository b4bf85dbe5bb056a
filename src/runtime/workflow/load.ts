// A workflow file with the manifests it names, analysed.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { Analysis, JsonSchema, ValueType, Violation, Workflow } from "../../lattice/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { connect } from "../../mcp/client/index.js";
import { Schema, SchemaError } from "../../mcp/server/index.js";
import { visible } from "../../telemetry/index.js";

export interface LoadedWorkflow {
  readonly lattice: typeof import("../../lattice/index.js");
  readonly file: string;
  /** Names this version of the file and its manifests. */
  readonly hash: string;
  readonly workflow: Workflow;
  readonly analysis: Analysis;
  readonly violations: readonly Violation[];
}

export async function loadWorkflow(file: string): Promise<LoadedWorkflow> {
  const lattice = await import("../../lattice/index.js");
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
    const workflow = lattice.parseWorkflow(text, { manifest });
    const analysis = lattice.analyse(workflow, { validator: validatorFor });
    return { lattice, file, hash: hash.digest("hex"), workflow, analysis, violations: analysis.violations() };
  } catch (error) {
    if (!(error instanceof lattice.LatticeError)) throw error;
    const others = [error, ...error.others].toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0));
    throw new CliError(others.map((each) => `${file}: ${visible(each.message)}`).join("\n       "), EXIT.invalidPolicy);
  }
}

/** An answer of tools/list as it is, or with the JSON-RPC message around it. */
function manifestIn(value: unknown): unknown {
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

const noteIn = (dir: string): string => join(resolve(dir), "workflow", "served.json");

export function noteServedWorkflow(dir: string, file: string): void {
  const note = noteIn(dir);
  mkdirSync(dirname(note), { recursive: true, mode: 0o700 });
  writeFileSync(note, `${JSON.stringify({ file: resolve(file) })}\n`, { mode: 0o600 });
}

/** The workflow that was named, or the one that was served last from this directory. */
export function servedWorkflow(dir: string, named: string | undefined): Promise<LoadedWorkflow> {
  return loadWorkflow(named ?? notedFile(dir));
}

function notedFile(dir: string): string {
  try {
    const { file } = JSON.parse(readFileSync(noteIn(dir), "utf8")) as { file?: unknown };
    if (typeof file === "string") return file;
  } catch {
    // Reported below, with the remedy.
  }
  const help = "name the file with --workflow, or start `portcullis serve --workflow FILE` in this directory first";
  throw new CliError(`no workflow is known to be served from ${resolve(dir)}`, EXIT.usage, help);
}

const ADDRESS = /^(?:https?|wss?|tcp):\/\//;

/** The answer of `tools/list`. */
export async function manifestOf([first, ...rest]: readonly string[]): Promise<unknown> {
  if (first === undefined) throw new CliError("name a manifest file, a URL or a command", EXIT.usage);
  if (rest.length === 0 && existsSync(first) && !ADDRESS.test(first)) return readManifest(first);
  if (rest.length === 0 && first.endsWith(".json")) throw new CliError(`there is no file ${first}`);
  return listed(ADDRESS.test(first) ? first : { command: first, args: rest }, [first, ...rest].join(" "));
}

function readManifest(file: string): unknown {
  try {
    return manifestIn(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    throw new CliError(`cannot read the manifest ${file}: ${(error as Error).message}`);
  }
}

async function listed(target: string | { command: string; args: string[] }, name: string): Promise<unknown> {
  try {
    const client = await connect(target);
    try {
      return { tools: await client.listTools() };
    } finally {
      await client.close();
    }
  } catch (error) {
    throw new CliError(`cannot list the tools of ${name}: ${(error as Error).message}`);
  }
}

const MAX_SCHEMAS = 20_000;
const MAX_REPORTED = 20;

/** One sentence for each, the first ones only. */
export function unusableSchemas(workflow: Workflow): readonly string[] {
  const problems: string[] = [];
  let [looked, more] = [0, 0];
  const seen = new Set<unknown>();
  const look = (type: ValueType, whose: () => string): void => {
    if (type.is !== "schema") {
      for (const part of type.of) look(part, whose);
      return;
    }
    if (typeof type.schema === "boolean" || seen.has(type.schema) || looked >= MAX_SCHEMAS) return;
    seen.add(type.schema);
    looked++;
    const problem = problemOf(type.schema);
    if (problem === undefined) return;
    if (problems.length < MAX_REPORTED) problems.push(`${whose()} cannot be checked: ${problem}`);
    else more++;
  };
  for (const [name, capability] of workflow.capabilities) {
    look(capability.arguments, () => `the arguments of \`${name}\``);
  }
  for (const { name, allow, line } of workflow.agents) {
    for (const [capability, type] of allow ?? []) {
      look(type, () => `line ${line}: what \`allow\` of \`${name}\` says of \`${capability}\``);
    }
  }
  for (const { from, to, arguments: narrowed, line } of workflow.delegations) {
    for (const [capability, type] of narrowed ?? []) {
      look(type, () => `line ${line}: how the delegation from \`${from}\` to \`${to}\` narrows \`${capability}\``);
    }
  }
  return more === 0 ? problems : [...problems, `and ${more} more schemas that cannot be checked`];
}

function problemOf(schema: unknown): string | undefined {
  try {
    void new Schema(schema as ConstructorParameters<typeof Schema>[0]);
    return undefined;
  } catch (error) {
    if (error instanceof SchemaError) return error.message;
    throw error;
  }
}
