// Delegations at the command line. Minting needs the gateway's keys; handing on and spending need only the token.

import { readFileSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import {
  DelegationRefused,
  handOnDelegation,
  mintDelegation,
  spendDelegation,
  takeDelegationAcross,
} from "../../gate/index.js";
import type { JsonObject } from "../../protocol/index.js";
import { CliError } from "../exit.js";
import { jsonArguments, shared } from "../options.js";
import { delegationKeys } from "../workflow/keys.js";

interface Narrowing {
  tools?: string[];
  arguments?: string;
  ttl?: number;
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
    .action((agent: string, options: Narrowing & { across?: boolean; app: string }, command: Command) => {
      const { tools, ttl: ttlMs, across, app } = options;
      print(mintDelegation(delegationKeys(shared(command).dir), { agent, app, tools, ttlMs, across }));
    });
  token
    .command("hand-on <token> <agent>")
    .description("a narrower token for another agent, made from the token in a file (- for standard input)")
    .option("--tools <capability...>", "only these capabilities")
    .option("--arguments <json>", "for these capabilities only such arguments: { capability: schema }")
    .option("--ttl <seconds>", "how long it holds", secondsToMs)
    .action((file: string, to: string, options: Narrowing) => {
      const narrowed = options.arguments === undefined ? undefined : jsonArguments(options.arguments);
      const args = narrowed as Record<string, JsonObject | boolean> | undefined;
      print(
        refusing(() =>
          handOnDelegation(tokenIn(file), { to, tools: options.tools, arguments: args, ttlMs: options.ttl }),
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

function refusing(make: () => string): string {
  try {
    return make();
  } catch (error) {
    throw error instanceof DelegationRefused ? new CliError(error.message) : error;
  }
}
