// Calls a server as a command: the key, the delegation or the host that is started for it, and lists without a server.

import type { Command } from "commander";
import { DELEGATION_HEADER } from "../auth/index.js";
import { CliError, EXIT, type ExitCode } from "../lib/exit.js";
import { type Client, connect, McpError } from "../mcp/client/index.js";
import { isJsonObject } from "../mcp/index.js";
import { spendDelegation } from "../policy/index.js";
import { connectionError, isUnauthenticated, Unreachable, unusableDelegation } from "./connection-error.js";
import { statePaths } from "./data-directory.js";
import { requireFile, servedFiles } from "./host/config/files.js";
import { mainFile } from "./host/config/paths.js";
import { hostDirectory, portcullisAt, shared } from "./options.js";
import type { ListedTool } from "./served.js";

export const DEFAULT_URL = "http://127.0.0.1:7420/mcp";

export interface Reaching {
  url: string;
  delegation?: string;
  gateway?: string;
  keyEnv?: string;
  /** A host is started for the command, because it serves on stdio alone. */
  host?: boolean;
}

export type Listing = Reaching & { app?: string };

/** Options that select the server and the caller. */
const SERVER_OPTIONS = ["url", "host", "delegation", "gateway", "keyEnv"] as const;

/** Never an argument: every process of this machine can read those. */
function keyIn(name: string | undefined): Record<string, string> {
  if (name === undefined) return {};
  const key = process.env[name];
  if (key === undefined || key === "") throw new CliError(`the variable ${name} is not set`, EXIT.usage);
  return { authorization: `Bearer ${key}` };
}

export async function withClient<T>(
  command: Command,
  reaching: Reaching,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const { url, delegation, gateway, keyEnv } = reaching;
  const key = keyIn(keyEnv);
  const spend = delegation === undefined ? undefined : await spending(delegation, gateway);
  // Every request spends the delegation again.
  const headers = spend === undefined ? key : () => ({ ...key, [DELEGATION_HEADER]: spend() });
  let client: Client;
  try {
    client = await (reaching.host ? connect(hostLaunch(command)) : connect(url, { headers }));
  } catch (error) {
    throw connectionError(error, url, "start it with `portcullis serve`, or name another server with --url", reaching);
  }
  try {
    return await use(client);
  } catch (error) {
    // A credential can end between two requests.
    if (error instanceof McpError && isUnauthenticated(error)) throw connectionError(error, url, "", reaching);
    throw refused(error, command);
  } finally {
    await client.close();
  }
}

function hostLaunch(command: Command): { command: string; args: string[] } {
  const { config, state } = servedFiles(hostDirectory(command));
  requireFile(config);
  const files = ["--config", config, "--state", state];
  return { command: process.execPath, args: [mainFile(), "host", ...files, "--log-level", "error"] };
}

const DOCUMENT_TIMEOUT_MS = 30_000;

export async function documentOf(reaching: Reaching, file: string): Promise<string> {
  const { url, keyEnv } = reaching;
  const place = new URL(file, url);
  let response: Response;
  let text: string;
  try {
    const signal = AbortSignal.timeout(DOCUMENT_TIMEOUT_MS);
    response = await fetch(place, { headers: keyIn(keyEnv), redirect: "error", signal });
    text = await response.text();
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw connectionError(error, url, "start it with `portcullis serve`, or name another server with --url", reaching);
  }
  if (response.ok) return text;
  const isDenied = response.status === 401;
  const remedy = isDenied ? "name variable with the API key or token with --key-env" : undefined;
  const reason = reasonIn(text) ?? `status ${response.status}`;
  throw new CliError(`${place.href} returned an error: ${reason}`, isDenied ? EXIT.auth : EXIT.error, remedy);
}

function reasonIn(text: string): string | undefined {
  try {
    return (JSON.parse(text) as { error?: { reason?: string } }).error?.reason;
  } catch {
    return undefined;
  }
}

/** Spent once before the connection: a malformed delegation is reported without a server. */
async function spending(file: string, audience: string | undefined): Promise<() => string> {
  const { tokenIn } = await import("./workflow/tokens.js");
  const held = tokenIn(file);
  const spend = (): string => spendDelegation(held, { audience });
  try {
    spend();
  } catch (error) {
    throw unusableDelegation(file, error);
  }
  return spend;
}

interface ListedTools {
  readonly tools: readonly ListedTool[];
  readonly hidden?: { readonly app: string; readonly names: readonly string[] } | undefined;
  readonly note?: string;
}

/** From the server; where none was named and none answers, what the only application of the data directory served last. */
export async function listedTools(command: Command, options: Listing): Promise<ListedTools> {
  const named = SERVER_OPTIONS.filter((each) => command.getOptionValueSource(each) === "cli");
  if (options.app !== undefined) {
    const [other] = named;
    if (other === undefined) return fromDirectory(command, options.app);
    const flag = other.replace(/[A-Z]/g, (capital) => `-${capital.toLowerCase()}`);
    throw new CliError(`--app cannot be combined with --${flag}`, EXIT.usage, "a server lists what your key may call");
  }
  try {
    return await withClient(command, options, (client) => fromServer(command, options, client));
  } catch (error) {
    if (!(error instanceof Unreachable) || named.length > 0) throw error;
    return fromDirectory(command, undefined, error);
  }
}

async function fromServer(command: Command, options: Listing, client: Client): Promise<ListedTools> {
  const tools = (await client.listTools()) as readonly ListedTool[];
  // Loads the gateway's modules, which the other commands here do without.
  const { hiddenTools } = await import("./tool-snapshots.js");
  const directory = options.host ? hostDirectory(command) : statePaths(shared(command).dir).dir;
  return { tools, hidden: hiddenTools(directory, tools) };
}

async function fromDirectory(command: Command, app: string | undefined, failure?: CliError): Promise<ListedTools> {
  const { storedList } = await import("./served.js");
  const list = await storedList(command, app === undefined ? {} : { app });
  if (list === undefined) {
    const help = "it has not been served yet: start it with `portcullis serve`";
    throw failure ?? new CliError(`the tools of application \`${app}\` are not known`, EXIT.error, help);
  }
  const note = `application ${list.app} as it served last, by the policies stored now`;
  return {
    tools: list.tools,
    hidden: { app: list.app, names: list.hidden },
    note: failure === undefined ? note : `no gateway answers at ${DEFAULT_URL}: ${note}`,
  };
}

export interface CallFailure {
  code: string;
  reason: string;
  rule?: string;
  challenge?: string;
  suggestions?: string[];
  problems?: { path: string; message: string; suggestion?: string }[];
  trace_id?: string;
}

export function exitFor(code: string): ExitCode {
  if (code === "CHALLENGE") return EXIT.challenge;
  if (code === "UNAUTHENTICATED") return EXIT.auth;
  return ["POLICY_DENY", "GUARDRAIL_BLOCKED", "RATE_LIMITED", "FORBIDDEN"].includes(code) ? EXIT.deny : EXIT.error;
}

export function remedy(failure: CallFailure, command: Command): string {
  const lines = failure.rule === undefined ? [] : [`rule: ${failure.rule}`];
  if (failure.challenge !== undefined)
    lines.push(`approve it with: ${portcullisAt(command)} approve ${failure.challenge}`);
  const { problems = [] } = failure;
  if (problems.length > 1) {
    const about = ({ path, message, suggestion }: (typeof problems)[number]): string =>
      `${path === "" ? "the arguments" : path}: ${message}${suggestion === undefined ? "" : ` (${suggestion})`}`;
    return [...lines, ...problems.map(about)].join("\n");
  }
  // The command that explains this very call is printed instead of the general one.
  const others = (failure.suggestions ?? []).filter((each) => !each.includes("portcullis policy explain"));
  return [...lines, ...(failure.code === "POLICY_DENY" ? others : (failure.suggestions ?? []))].join("\n");
}

export function refused(error: unknown, command: Command): unknown {
  if (!(error instanceof McpError)) return error;
  const data = isJsonObject(error.data) ? (error.data as unknown as CallFailure) : undefined;
  const help = data ? remedy(data, command) : error.suggestions.join("\n");
  return new CliError(data?.reason ?? error.message, exitFor(error.code), help === "" ? undefined : help);
}
