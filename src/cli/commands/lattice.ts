import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "commander";
import type { Violation, Workflow } from "../../lattice/index.js";
import { Schema } from "../../tool/index.js";
import { CliError, EXIT } from "../exit.js";
import { outFor } from "../options.js";
import { paint } from "../print.js";
import { VERSION } from "../version.js";

const FORMATS = ["svg", "mermaid", "dot", "json"] as const;

export function addLatticeCommands(program: Command): void {
  const lattice = program.command("lattice").description("who can reach what, proved before it runs");
  lattice
    .command("check <workflow>")
    .description("every way in which an agent could come to hold what it must not; exit 2 when there is one")
    .option("--sarif", "print the report as SARIF, for CI")
    .action(async (file: string, options: { sarif?: boolean }, command: Command) => {
      const out = outFor(command);
      const { room, workflow, violations } = await analysed(file);
      if (options.sarif) {
        const uri = pathToFileURL(resolve(file)).href;
        process.stdout.write(`${room.toSarif(workflow, violations, { uri, version: VERSION })}\n`);
      } else {
        out.data(JSON.parse(room.toJson(workflow, violations)), () =>
          [
            ...violations.map((violation) => `${paint.red("✗")} ${room.tell(violation)}`),
            violations.length === 0
              ? `${paint.green("clean")}: ${workflow.agents.length} agents, none can hold what it must not`
              : `${violations.length} violations`,
          ].join("\n"),
        );
      }
      if (violations.length > 0) process.exitCode = EXIT.deny;
    });
  lattice
    .command("graph <workflow>")
    .description("draw the workflow, with the offending ways marked")
    .option("--format <format>", `one of ${FORMATS.join(", ")}`, "svg")
    .action(async (file: string, { format }: { format: string }) => {
      const { room, workflow, violations } = await analysed(file);
      const draw = { svg: room.toSvg, mermaid: room.toMermaid, dot: room.toDot, json: room.toJson }[format];
      if (!draw) throw new CliError(`there is no format ${format}`, EXIT.usage, `choose ${FORMATS.join(", ")}`);
      process.stdout.write(`${draw(workflow, violations)}\n`);
    });
}

interface Analysed {
  room: typeof import("../../lattice/index.js");
  workflow: Workflow;
  violations: readonly Violation[];
}

async function analysed(file: string): Promise<Analysed> {
  const room = await import("../../lattice/index.js");
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
  try {
    const workflow = room.parseWorkflow(text, { manifest: (name) => manifest(file, name) });
    const violations = room.analyse(workflow, { validator: validatorFor }).violations();
    return { room, workflow, violations };
  } catch (error) {
    if (!(error instanceof room.LatticeError)) throw error;
    throw new CliError(`${file}: ${error.message}`, EXIT.invalidPolicy);
  }
}

/** A manifest stands beside the workflow that names it. */
function manifest(workflow: string, name: string): unknown {
  return JSON.parse(readFileSync(resolve(dirname(workflow), name), "utf8"));
}

/** Confirms a witness by a second opinion. */
function validatorFor(schema: unknown): (value: unknown) => boolean {
  const compiled = new Schema(schema as ConstructorParameters<typeof Schema>[0]);
  return (value) => {
    const judged = compiled.validateNow(value as Parameters<Schema["validateNow"]>[0]);
    if (judged === undefined) throw new Error("this value cannot be judged at once");
    return judged.ok;
  };
}
