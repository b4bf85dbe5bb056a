// Why a server was not to be talked to: nobody there, or there and saying no. The first wants a server, the second a
// credential.

import { McpError } from "../mcp/client/index.js";
import { type DelegationProblem, DelegationRefused } from "../policy/index.js";
import { isJsonObject } from "../mcp/index.js";
import { CliError, EXIT } from "../lib/exit.js";

/** What the caller came with. */
export interface CallerCredentials {
  /** The file with the delegation. */
  readonly delegation?: string | undefined;
  /** The variable with the key. */
  readonly keyEnv?: string | undefined;
  /** What to do where no credential can be given. */
  readonly instead?: string;
}

const UNREACHABLE = new Set(["IoError", "ToolTimeout", "Cancelled"]);
const MAKE_ANEW = "make a new one with `portcullis lattice token mint`, or have it handed on again";

const DELEGATION_REMEDY: Readonly<Record<DelegationProblem, string>> = {
  malformed: MAKE_ANEW,
  expired: MAKE_ANEW,
  widened: "it may only have less than its delegator: hand it on again with fewer `--tools` or less `--ttl`",
  forged:
    "it must come from this gateway, for this application; one of another gateway is taken here with `portcullis lattice token across`, and `serve --trust-gateway` here",
  "wrong-audience": "say with --gateway which gateway is asked: the id that its `portcullis serve` shows",
  "not-declared": "the workflow that is served there has to declare the agent and the delegation",
  unspent: "call with the delegation itself, in the file that `portcullis lattice token` wrote",
  replayed: "every request spends the delegation anew: call again",
  "too-many": "call again later",
};

/** A delegation that cannot even be sent. */
export function unusableDelegation(file: string, error: unknown): unknown {
  if (!(error instanceof DelegationRefused)) return error;
  return new CliError(`the delegation in ${file} cannot be used: ${error.message}`, EXIT.auth, MAKE_ANEW);
}

/** The failure of a connection in words; `start` says how to have a server there. */
export function turnedAway(error: unknown, place: string, start: string, shown: CallerCredentials = {}): CliError {
  const { message } = error as Error;
  if (!(error instanceof McpError) || UNREACHABLE.has(error.type)) {
    return new CliError(`cannot reach ${place}: ${message}`, EXIT.error, start);
  }
  const said = reasonOf(error);
  if (isUnauthenticated(error)) {
    return new CliError(`${place} does not accept you: ${said}`, EXIT.auth, remedyOf(error, shown));
  }
  const suggestions = suggestionsOf(error).join("\n") || undefined;
  if (error.family === "policy" || error.status === 403) {
    return new CliError(`${place} does not let you in: ${said}`, EXIT.deny, suggestions);
  }
  return new CliError(`${place} cannot be talked to: ${said}`, EXIT.error, suggestions);
}

/** Servers of others say so by the status alone. */
export function isUnauthenticated(error: McpError): boolean {
  return error.type === "AuthenticationError" || error.status === 401;
}

function reasonOf(error: McpError): string {
  const reason = isJsonObject(error.data) ? error.data.reason : undefined;
  return typeof reason === "string" && reason !== "" ? reason : error.message;
}

function suggestionsOf({ data, suggestions }: McpError): readonly string[] {
  const said = isJsonObject(data) && Array.isArray(data.suggestions) ? data.suggestions : suggestions;
  return said.filter((each) => typeof each === "string");
}

function remedyOf(error: McpError, { delegation, keyEnv, instead }: CallerCredentials): string {
  if (instead !== undefined) return instead;
  const problem = isJsonObject(error.data) ? error.data.delegation : undefined;
  if (typeof problem === "string" && Object.hasOwn(DELEGATION_REMEDY, problem)) {
    return DELEGATION_REMEDY[problem as DelegationProblem];
  }
  if (keyEnv !== undefined) {
    return `the variable ${keyEnv} must hold a key or token that is accepted there; \`portcullis key add\` makes keys`;
  }
  const others = delegation === undefined ? ", or a delegation with --delegation FILE" : "";
  return [`name the variable that holds your key with --key-env NAME${others}`, ...suggestionsOf(error)].join("\n");
}
