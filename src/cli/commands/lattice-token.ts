// Delegations at the command line. Minting needs the gateway's keys; handing on and spending need only the token.

import { readFileSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import {
  DelegationRefused,
  handOnDelegation,
  mintDelegation,
  spendDelegation,
  takeDelegationAcross,
} from "../../policy/index.js";
import { type JsonObject, nearest } from "../../mcp/index.js";
import { Schema, SchemaError } from "../../mcp/server/index.js";
import { CliError, EXIT, type ExitCode } from "../../lib/exit.js";
import { jsonArguments, shared } from "../../runtime/options.js";
import { servedWorkflow } from "../../runtime/served-workflow.js";
import { delegationKeys } from "../../runtime/workflow/keys.js";
import type { LoadedWorkflow } from "../../runtime/workflow/load.js";

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

export function addTokenCommands(lattice: Command): void {
  const token = lattice.command("token").description("delegations for a gateway that serves a workflow");
  token
    .command("mint <agent>")
    .description("the token of an agent with authority of its own; needs the gateway's working folder (--dir)")
    .option("--tools <capability...>", "only these capabilities")
    .option("--ttl <seconds>", "how long it holds (default: an hour)", secondsToMs)
    .option("--across", "for other gateways too")
    .option("--app <name>", "the application that the agent belongs to", "local")
    .option("--workflow <file>", "the workflow whose agents there are (default: the one served last)")
    .action(async (agent: string, options: Minting, command: Command) => {
      const { tools, ttl: ttlMs, across, app } = options;
      const { dir } = shared(command);
      const keys = delegationKeys(dir);
      checkRoot(await servedWorkflow(dir, options.workflow), agent, tools);
      print(refusing(() => mintDelegation(keys, { agent, app, tools, ttlMs, across })));
    });
  token
    .command("hand-on <token> <agent>")
    .description("a narrower token for another agent, made from the token in a file (- for standard input)")
    .option("--tools <capability...>", "only these capabilities")
    .option("--arguments <json>", "for these capabilities only such arguments: { capability: schema }")
    .option("--ttl <seconds>", "how long it holds", secondsToMs)
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
    .description("the same delegation for use at other gateways; needs the gateway's working folder (--dir)")
    .action((file: string, _options: unknown, command: Command) => {
      print(refusing(() => takeDelegationAcross(delegationKeys(shared(command).dir), tokenIn(file))));
    });
  token
    .command("spend <token>")
    .description("what one request carries, in the header Portcullis-Delegation or in _meta")
    .option("--for <gateway>", "the gateway that will be asked (default: the one that minted it)")
    .action((file: string, options: { for?: string }) => {
      print(refusing(() => spendDelegation(tokenIn(file), { audience: options.for })));
    });
}

/** A token of an agent that the gateway does not know, or that has nothing of its own, would only be refused later. */
function checkRoot({ file, workflow }: LoadedWorkflow, name: string, tools: readonly string[] = []): void {
  const agent = workflow.agents.find((each) => each.name === name);
  if (agent === undefined) {
    const meant = nearest(
      name,
      workflow.agents.map((each) => each.name),
    );
    const help = meant === undefined ? "`portcullis lattice check` shows who is in it" : `did you mean \`${meant}\`?`;
    throw new CliError(`there is no agent \`${name}\` in ${file}`, EXIT.usage, help);
  }
  if (!agent.isRoot) {
    const givers = workflow.delegations.filter((each) => each.to === name).map(({ from }) => `\`${from}\``);
    throw new CliError(
      `\`${name}\` has no authority of its own in ${file}`,
      EXIT.usage,
      `hand a token on to it with \`portcullis lattice token hand-on\`, from ${[...new Set(givers)].join(" or ")}`,
    );
  }
  const strange = tools.find((tool) => !agent.holds.includes(tool));
  if (strange === undefined) return;
  const meant = nearest(strange, agent.holds);
  const help = meant === undefined ? `it holds ${agent.holds.slice(0, 20).join(", ")}` : `did you mean \`${meant}\`?`;
  throw new CliError(`\`${name}\` does not hold \`${strange}\` in ${file}`, EXIT.usage, help);
}

/** Whether the capabilities are held is known where the workflow is; that these are schemas can be seen here. */
function schemasIn(text: string): Record<string, JsonObject | boolean> {
  const narrowed = jsonArguments(text);
  for (const [capability, schema] of Object.entries(narrowed)) {
    try {
      void new Schema(schema as JsonObject | boolean);
    } catch (error) {
      if (!(error instanceof SchemaError)) throw error;
      const help = `write them like '{"${capability}":{"properties":{"path":{"pattern":"^/srv/"}}}}'`;
      throw new CliError(`--arguments: \`${capability}\`: ${error.message}`, EXIT.usage, help);
    }
  }
  return narrowed as Record<string, JsonObject | boolean>;
}

function print(token: string): void {
  process.stdout.write(`${token}\n`);
}

/** A token is a secret: it comes by file or pipe, never as an argument that others can see. */
export function tokenIn(file: string): string {
  try {
    return readFileSync(file === "-" ? 0 : file, "utf8").trim();
  } catch (error) {
    throw new CliError(`cannot read the token in ${file}: ${(error as Error).message}`);
  }
}

function refusing(make: () => string, exit: ExitCode = EXIT.error): string {
  try {
    return make();
  } catch (error) {
    throw error instanceof DelegationRefused ? new CliError(error.message, exit) : error;
  }
}
