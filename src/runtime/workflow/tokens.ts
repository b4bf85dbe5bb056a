// Tokens of delegations on the command line: their file, their roots and the arguments that they narrow.

import { readFileSync } from "node:fs";
import { CliError, EXIT, type ExitCode } from "../../lib/exit.js";
import { type JsonObject, nearest } from "../../mcp/index.js";
import { Schema, SchemaError } from "../../mcp/server/index.js";
import { DelegationRefused } from "../../policy/index.js";
import { jsonArguments } from "../options.js";
import type { LoadedWorkflow } from "./load.js";

/** A token of an agent that the gateway does not know, or that has nothing of its own, would only be refused later. */
export function checkRoot({ file, workflow }: LoadedWorkflow, name: string, tools: readonly string[] = []): void {
  const agent = workflow.agents.find((each) => each.name === name);
  if (agent === undefined) {
    const meant = nearest(
      name,
      workflow.agents.map((each) => each.name),
    );
    const help = meant === undefined ? "`portcullis lattice check` lists its agents" : `did you mean \`${meant}\`?`;
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
export function schemasIn(text: string): Record<string, JsonObject | boolean> {
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

/** A token is a secret: it comes by file or pipe, never as an argument that others can see. */
export function tokenIn(file: string): string {
  try {
    return readFileSync(file === "-" ? 0 : file, "utf8").trim();
  } catch (error) {
    throw new CliError(`cannot read the token in ${file}: ${(error as Error).message}`);
  }
}

export function refusing(make: () => string, exit: ExitCode = EXIT.error): string {
  try {
    return make();
  } catch (error) {
    throw error instanceof DelegationRefused ? new CliError(error.message, exit) : error;
  }
}
