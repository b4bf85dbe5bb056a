import { pathToFileURL } from "node:url";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import type { Capability, CapabilitySet } from "../../lattice/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { outFor } from "../../runtime/options.js";
import { paint, paintErr, table } from "../../lib/print.js";
import { visible } from "../../telemetry/index.js";
import { VERSION } from "../../runtime/version.js";
import { emitPolicy } from "../../runtime/workflow/grants.js";
import { type LoadedWorkflow, loadWorkflow } from "../../runtime/workflow/load.js";
import { manifestOf } from "../../runtime/workflow/manifest.js";
import { unusableSchemas } from "../../runtime/workflow/unusable.js";
import { addTokenCommands } from "./lattice-token.js";

const FORMATS = ["svg", "mermaid", "dot", "json"] as const;

/** Violations that are written out, unless told otherwise; code hosts take a few thousand. */
const MOST = 1_000;

interface CheckOptions {
  sarif?: boolean;
  most: number;
  emit?: string;
  app: string;
}

export function addLatticeCommands(program: Command): void {
  const lattice = program.command("lattice").description("who can reach what, proved before it runs");
  lattice
    .command("caps <manifest...>")
    .description(
      "the capability set of a server: a file with its tools/list answer, its URL, or the command to start it",
    )
    .action(async (target: string[], _options: unknown, command: Command) => {
      const out = outFor(command);
      const room = await import("../../lattice/index.js");
      let set: CapabilitySet;
      try {
        set = room.capabilitiesOf(await manifestOf(target));
      } catch (error) {
        if (!(error instanceof room.LatticeError)) throw error;
        throw new CliError(`${target.join(" ")}: ${error.message}`);
      }
      const list = set === "all" ? [] : [...set.values()];
      out.data(
        list.map((capability) => shown(capability, room.toSchema)),
        () => asTable(list, room.toSchema),
      );
    });
  lattice
    .command("check <workflow>")
    .description("every way in which an agent could come to hold what it must not; exit 2 when there is one")
    .option("--sarif", "print the report as SARIF, for CI")
    .option("--most <number>", "write out so many violations, and say how many more there are", wholeNumber, MOST)
    .option("--emit <what>", "`policy`: when nothing is wrong, print the Cedar policy that holds agents to the result")
    .option("--app <name>", "the application that the agents belong to, for the policy", "local")
    .action(async (file: string, options: CheckOptions, command: Command) => {
      const out = outFor(command);
      if (options.emit !== undefined && (options.emit !== "policy" || options.sarif)) {
        throw new CliError("--emit takes `policy`, and goes without --sarif", EXIT.usage);
      }
      const loaded = await loadWorkflow(file);
      const { room, workflow, violations } = loaded;
      for (const note of notes(loaded)) out.note(`${paintErr.yellow("note:")} ${visible(note)}`);
      if (violations.length > 0) process.exitCode = EXIT.deny;
      if (options.emit !== undefined && violations.length === 0) return printPolicy(loaded, options.app, out.note);
      if (options.sarif) {
        const sarif = room.toSarif(workflow, violations, { uri: uriOf(file), version: VERSION, most: options.most });
        process.stdout.write(visibleLines(sarif));
      } else if (options.emit !== undefined) {
        // Standard output is for the policy, and there is none.
        out.note(report(loaded, options.most));
      } else {
        const { most } = options;
        const text = out.json ? visibleLines(room.toJson(workflow, violations, { most })) : `${report(loaded, most)}\n`;
        process.stdout.write(text);
      }
    });
  lattice
    .command("graph <workflow>")
    .description("draw the workflow, with the offending ways marked")
    .option("--format <format>", `one of ${FORMATS.join(", ")}`, "svg")
    .action(async (file: string, { format }: { format: string }) => {
      const { room, workflow, violations } = await loadWorkflow(file);
      const draw = { svg: room.toSvg, mermaid: room.toMermaid, dot: room.toDot, json: room.toJson }[format];
      if (!draw) throw new CliError(`there is no format ${format}`, EXIT.usage, `choose ${FORMATS.join(", ")}`);
      const drawn = draw(workflow, violations);
      process.stdout.write(format === "json" ? visibleLines(drawn) : drawn);
    });
  addTokenCommands(lattice);
}

function report({ room, workflow, violations }: LoadedWorkflow, most: number): string {
  const told = violations.slice(0, most).map((violation) => `${paint.red("✗")} ${visible(room.tell(violation))}`);
  const more = violations.length > most ? `, ${violations.length - most} of them not shown: --most shows more` : "";
  const last =
    violations.length === 0
      ? `${paint.green("clean")}: ${workflow.agents.length} agents, none can hold what it must not`
      : `${violations.length} violation${violations.length === 1 ? "" : "s"}${more}`;
  return [...told, last].join("\n");
}

/** As code hosts want it: relative to where the check runs, when the file is in there. */
function uriOf(file: string): string {
  const path = relative(process.cwd(), resolve(file));
  if (isAbsolute(path) || path.split(sep)[0] === "..") return pathToFileURL(resolve(file)).href;
  return path.split(sep).map(encodeURIComponent).join("/");
}

function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError("it must be a whole number above 0.");
  return Number(text);
}

/** A JSON text, or lines of text, in which nothing from outside can move the cursor. */
function visibleLines(text: string): string {
  return text.split("\n").map(visible).join("\n");
}

/** What is no mistake, but worth knowing. */
function* notes({ room, workflow, analysis, file }: LoadedWorkflow): Iterable<string> {
  const cycle = room.findCycle(workflow.delegations);
  if (cycle !== undefined) {
    const way = cycle.map(({ from }) => `\`${from}\``).join(" → ");
    const line = cycle[0]?.line;
    yield `${file}: line ${line}: delegations run in a circle: ${way} → \`${cycle[0]?.from}\`. It grants nothing by itself; \`cycles: forbid\` makes it an error`;
  }
  for (const problem of unusableSchemas(workflow)) yield `${file}: ${problem}; nothing is permitted by it`;
  if (analysis.simplified.length > 0) {
    const names = analysis.simplified.map((name) => `\`${name}\``).join(", ");
    yield `${file}: the arguments of ${names} are narrowed on so many different ways that these are not all told apart: at some agents they are taken for wider than they may be`;
  }
}

function printPolicy(loaded: LoadedWorkflow, app: string, note: (text: string) => void): void {
  const { text, unsaid } = emitPolicy(loaded, { app });
  for (const { agent, tool } of unsaid) {
    note(
      `${paintErr.yellow("note:")} Cedar has no words for the arguments that \`${visible(agent)}\` may use with \`${visible(tool)}\`: the policy does not permit it; \`serve --workflow\` checks them exactly`,
    );
  }
  process.stdout.write(text);
}

type ToSchema = typeof import("../../lattice/index.js").toSchema;

function shown({ name, arguments: args, result }: Capability, toSchema: ToSchema): Record<string, unknown> {
  return { name, arguments: toSchema(args) ?? true, result: toSchema(result) ?? true };
}

function asTable(list: readonly Capability[], toSchema: ToSchema): string {
  if (list.length === 0) return "no tools: the empty set";
  const rows = list.map(({ name, arguments: args, result }) => [
    name,
    outline(toSchema(args)),
    outline(toSchema(result)),
  ]);
  return `${table(["capability", "arguments", "result"], rows)}\n${list.length} capabilities`;
}

/** A schema in a few words: its fields, `?` for those that may be absent. */
function outline(schema: unknown): string {
  if (typeof schema !== "object" || schema === null) return schema === false ? "nothing" : "anything";
  const { properties, required, additionalProperties, type } = schema as Record<string, unknown>;
  if (typeof properties !== "object" || properties === null) return typeof type === "string" ? type : "a schema";
  const needed = new Set(Array.isArray(required) ? required : []);
  const fields = Object.entries(properties).map(([name, field]) => {
    const kind = (field as { type?: unknown } | null)?.type;
    return `${name}${needed.has(name) ? "" : "?"}${typeof kind === "string" ? `: ${kind}` : ""}`;
  });
  return `{ ${[...fields, ...(additionalProperties === false ? [] : ["…"])].join(", ")} }`;
}
