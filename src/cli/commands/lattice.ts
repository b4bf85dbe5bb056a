import { isAbsolute, relative, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";
import { type Command, InvalidArgumentError } from "commander";
import type { Capability, CapabilitySet } from "../../lattice/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { paint, paintErr, table } from "../../lib/print.js";
import { handOnDelegation, mintDelegation, spendDelegation, takeDelegationAcross } from "../../policy/index.js";
import { VERSION } from "../../runtime/environment.js";
import { outFor, shared } from "../../runtime/options.js";
import { delegationKeys } from "../../runtime/workflow/keys.js";
import {
  type LoadedWorkflow,
  loadWorkflow,
  manifestOf,
  servedWorkflow,
  unusableSchemas,
} from "../../runtime/workflow/load.js";
import { emitPolicy } from "../../runtime/workflow/serving.js";
import { checkRoot, refusing, schemasIn, tokenIn } from "../../runtime/workflow/tokens.js";
import { visible } from "../../telemetry/index.js";

const FORMATS = ["svg", "mermaid", "dot", "json"] as const;

/** Violations that are written out, unless --most names another number; code hosts take a few thousand. */
const MOST = 1_000;

interface CheckOptions {
  sarif?: boolean;
  most: number;
  emit?: string;
  app: string;
}

export function addLatticeCommands(program: Command): void {
  const lattice = program.command("lattice").description("analyze which agent can reach what");
  lattice
    .command("caps <manifest...>")
    .description(
      "print the capability set of a server: MANIFEST is a file with a tools/list result, a URL, or a command that starts it",
    )
    .action(async (target: string[], _options: unknown, command: Command) => {
      const out = outFor(command);
      const engine = await import("../../lattice/index.js");
      let set: CapabilitySet;
      try {
        set = engine.capabilitiesOf(await manifestOf(target));
      } catch (error) {
        if (!(error instanceof engine.LatticeError)) throw error;
        throw new CliError(`${target.join(" ")}: ${error.message}`);
      }
      const list = set === "all" ? [] : [...set.values()];
      out.data(
        list.map((capability) => shown(capability, engine.toSchema)),
        () => asTable(list, engine.toSchema),
      );
    });
  lattice
    .command("check <workflow>")
    .description(
      "list every way in which an agent could get a capability that it must not have; exit 2 when there is one",
    )
    .option("--sarif", "print the report as SARIF, for CI")
    .option("--most <number>", "limit of violations that are printed", wholeNumber, MOST)
    .option(
      "--emit <what>",
      "`policy` prints a Cedar policy that limits agents to the result, when there is no violation",
    )
    .option("--app <name>", "application of the agents, for the policy", "local")
    .action(async (file: string, options: CheckOptions, command: Command) => {
      const out = outFor(command);
      if (options.emit !== undefined && (options.emit !== "policy" || options.sarif)) {
        throw new CliError("--emit takes `policy`, and goes without --sarif", EXIT.usage);
      }
      const loaded = await loadWorkflow(file);
      const { lattice: engine, workflow, violations } = loaded;
      for (const note of notes(loaded)) out.note(`${paintErr.yellow("note:")} ${visible(note)}`);
      if (violations.length > 0) process.exitCode = EXIT.deny;
      if (options.emit !== undefined && violations.length === 0) return printPolicy(loaded, options.app, out.note);
      if (options.sarif) {
        const sarif = engine.toSarif(workflow, violations, { uri: uriOf(file), version: VERSION, most: options.most });
        process.stdout.write(visibleLines(sarif));
      } else if (options.emit !== undefined) {
        // Standard output is for the policy, and there is none.
        out.note(report(loaded, options.most));
      } else {
        const { most } = options;
        const text = out.json
          ? visibleLines(engine.toJson(workflow, violations, { most }))
          : `${report(loaded, most)}\n`;
        process.stdout.write(text);
      }
    });
  lattice
    .command("graph <workflow>")
    .description("draw the workflow and mark the violations")
    .option("--format <format>", `format: ${FORMATS.join(", ")}`, "svg")
    .action(async (file: string, { format }: { format: string }) => {
      const { lattice: engine, workflow, violations } = await loadWorkflow(file);
      const draw = { svg: engine.toSvg, mermaid: engine.toMermaid, dot: engine.toDot, json: engine.toJson }[format];
      if (!draw) throw new CliError(`there is no format ${format}`, EXIT.usage, `choose ${FORMATS.join(", ")}`);
      const drawn = draw(workflow, violations);
      process.stdout.write(format === "json" ? visibleLines(drawn) : drawn);
    });
  addTokenCommands(lattice);
}

function report({ lattice: engine, workflow, violations }: LoadedWorkflow, most: number): string {
  const lines = violations.slice(0, most).map((violation) => `${paint.red("✗")} ${visible(engine.tell(violation))}`);
  const more = violations.length > most ? `, ${violations.length - most} of them not shown: --most shows more` : "";
  const last =
    violations.length === 0
      ? `${paint.green("clean")}: ${workflow.agents.length} agents, none can hold what it must not`
      : `${violations.length} violation${violations.length === 1 ? "" : "s"}${more}`;
  return [...lines, last].join("\n");
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

/** Notes that are not violations. */
function* notes({ lattice: engine, workflow, analysis, file }: LoadedWorkflow): Iterable<string> {
  const cycle = engine.findCycle(workflow.delegations);
  if (cycle !== undefined) {
    const way = cycle.map(({ from }) => `\`${from}\``).join(" → ");
    const line = cycle[0]?.line;
    yield `${file}: line ${line}: delegations run in a circle: ${way} → \`${cycle[0]?.from}\`. It grants nothing by itself; \`cycles: forbid\` makes it an error`;
  }
  for (const problem of unusableSchemas(workflow)) yield `${file}: ${problem}; nothing is permitted by it`;
  if (analysis.simplified.length > 0) {
    const names = analysis.simplified.map((name) => `\`${name}\``).join(", ");
    yield `${file}: the arguments of ${names} are narrowed on so many different ways that not all of them are distinguished: for some agents wider arguments are assumed`;
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

interface Narrowing {
  tools?: string[];
  arguments?: string;
  ttl?: number;
}

interface Minting extends Narrowing {
  across?: boolean;
  app: string;
  workflow?: string;
}

const secondsToMs = (text: string): number => {
  const seconds = Number(text);
  if (!(seconds > 0) || !Number.isFinite(seconds)) throw new InvalidArgumentError("a number of seconds is needed.");
  return Math.round(seconds * 1_000);
};

function addTokenCommands(lattice: Command): void {
  const token = lattice.command("token").description("create and use delegations for a gateway that serves a workflow");
  token
    .command("mint <agent>")
    .description("create the token of an agent with authority of its own; needs the gateway's data directory (--dir)")
    .option("--tools <capability...>", "capabilities of the token (default: all that the agent holds)")
    .option("--ttl <seconds>", "how long it is valid (default: 3600)", secondsToMs)
    .option("--across", "make it valid at other gateways too")
    .option("--app <name>", "application of the agent", "local")
    .option("--workflow <file>", "workflow of the agents (default: the one served last)")
    .action(async (agent: string, options: Minting, command: Command) => {
      const { tools, ttl: ttlMs, across, app } = options;
      const { dir } = shared(command);
      const keys = delegationKeys(dir);
      checkRoot(await servedWorkflow(dir, options.workflow), agent, tools);
      print(refusing(() => mintDelegation(keys, { agent, app, tools, ttlMs, across })));
    });
  token
    .command("hand-on <token> <agent>")
    .description("create a narrower token for another agent from the token in a file (- for standard input)")
    .option("--tools <capability...>", "capabilities of the token (default: all that the agent holds)")
    .option("--arguments <json>", "limit the arguments of capabilities: { capability: schema }")
    .option("--ttl <seconds>", "how long it is valid", secondsToMs)
    .action((file: string, to: string, options: Narrowing) => {
      const args = options.arguments === undefined ? undefined : schemasIn(options.arguments);
      print(
        refusing(
          () => handOnDelegation(tokenIn(file), { to, tools: options.tools, arguments: args, ttlMs: options.ttl }),
          args === undefined ? EXIT.error : EXIT.usage,
        ),
      );
    });
  token
    .command("across <token>")
    .description("create the same token for use at other gateways; needs the gateway's data directory (--dir)")
    .action((file: string, _options: unknown, command: Command) => {
      print(refusing(() => takeDelegationAcross(delegationKeys(shared(command).dir), tokenIn(file))));
    });
  token
    .command("spend <token>")
    .description("print what one request sends in the header Portcullis-Delegation or in _meta")
    .option("--for <gateway>", "gateway that is called (default: the one that minted it)")
    .action((file: string, options: { for?: string }) => {
      print(refusing(() => spendDelegation(tokenIn(file), { audience: options.for })));
    });
}

function print(token: string): void {
  process.stdout.write(`${token}\n`);
}
