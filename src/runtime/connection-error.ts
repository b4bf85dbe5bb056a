// Connection failures as errors of commands: unreachable, not authenticated, denied, or another error of the server.

import { CliError, EXIT } from "../lib/exit.js";
import { McpError } from "../mcp/client/index.js";
import { isJsonObject } from "../mcp/index.js";
import { type DelegationProblem, DelegationRefused } from "../policy/index.js";

/** The credentials that the caller used. */
export interface CallerCredentials {
  /** The file with the delegation. */
  readonly delegation?: string | undefined;
  /** The variable with the key. */
  readonly keyEnv?: string | undefined;
  /** The remedy where no credential can be given. */
  readonly instead?: string;
}

const UNREACHABLE = new Set(["IoError", "ToolTimeout", "Cancelled"]);
const MINT_AGAIN = "create a new one with `portcullis lattice token mint`, or hand it on again";

const DELEGATION_REMEDY: Readonly<Record<DelegationProblem, string>> = {
  malformed: MINT_AGAIN,
  expired: MINT_AGAIN,
  widened: "it may only have less than its delegator: hand it on again with fewer `--tools` or less `--ttl`",
  forged:
    "it must come from this gateway, for this application; one of another gateway is taken here with `portcullis lattice token across`, and `serve --trust-gateway` here",
  "wrong-audience": "name the gateway with --gateway: the id that its `portcullis serve` prints",
  "not-declared": "the workflow that is served there has to declare the agent and the delegation",
  unspent: "call with the delegation itself, in the file that `portcullis lattice token` wrote",
  replayed: "every request spends the delegation again: repeat the call",
  "too-many": "call again later",
};

/** The error for a delegation that cannot be sent. */
export function unusableDelegation(file: string, error: unknown): unknown {
  if (!(error instanceof DelegationRefused)) return error;
  return new CliError(`the delegation in ${file} cannot be used: ${error.message}`, EXIT.auth, MINT_AGAIN);
}

/** No server answers at that address. */
export class Unreachable extends CliError {}

/** The error for a failed connection; `start` is the remedy where no server answers. */
export function connectionError(error: unknown, place: string, start: string, shown: CallerCredentials = {}): CliError {
  const { message } = error as Error;
  if (!(error instanceof McpError) || UNREACHABLE.has(error.type)) {
    // Without the address a second time.
    return new Unreachable(`cannot reach ${place}: ${message.replace(`${place}: `, "")}`, EXIT.error, start);
  }
  const reason = reasonOf(error);
  if (isUnauthenticated(error)) {
    return new CliError(`${place} requires other credentials: ${reason}`, EXIT.auth, remedyOf(error, shown));
  }
  const suggestions = suggestionsOf(error).join("\n") || undefined;
  if (error.family === "policy" || error.status === 403) {
    return new CliError(`${place} denied access: ${reason}`, EXIT.deny, suggestions);
  }
  return new CliError(`${place} returned an error: ${reason}`, EXIT.error, suggestions);
}

/** Other servers report it by the status alone. */
export function isUnauthenticated(error: McpError): boolean {
  return error.type === "AuthenticationError" || error.status === 401;
}

function reasonOf(error: McpError): string {
  const reason = isJsonObject(error.data) ? error.data.reason : undefined;
  return typeof reason === "string" && reason !== "" ? reason : error.message;
}

function suggestionsOf({ data, suggestions }: McpError): readonly string[] {
  const all = isJsonObject(data) && Array.isArray(data.suggestions) ? data.suggestions : suggestions;
  return all.filter((each) => typeof each === "string");
}

function remedyOf(error: McpError, { delegation, keyEnv, instead }: CallerCredentials): string {
  if (instead !== undefined) return instead;
  const problem = isJsonObject(error.data) ? error.data.delegation : undefined;
  if (typeof problem === "string" && Object.hasOwn(DELEGATION_REMEDY, problem)) {
    return DELEGATION_REMEDY[problem as DelegationProblem];
  }
  if (keyEnv !== undefined) {
    return `the variable ${keyEnv} must hold a key or token that is accepted there; \`portcullis key add\` creates keys`;
  }
  const others = delegation === undefined ? ", or a delegation with --delegation FILE" : "";
  return [`name the variable that holds your key with --key-env NAME${others}`, ...suggestionsOf(error)].join("\n");
}
