import { type Command, InvalidArgumentError } from "commander";
import { type Client, connect, errorObjectOf, McpError } from "../../mcp/client/index.js";
import { spendDelegation } from "../../policy/index.js";
import { DELEGATION_HEADER } from "../../auth/index.js";
import { isJsonObject, type JsonObject, nearest } from "../../mcp/index.js";
import type { ToolResult } from "../../mcp/server/index.js";
import { CliError, EXIT, type ExitCode } from "../../lib/exit.js";
import { mainFile } from "../../runtime/host/config/paths.js";
import { requireFile, servedFiles } from "../../runtime/host/config/files.js";
import { hostDirectory, jsonArguments, outFor, shared } from "../../runtime/options.js";
import { paint, tableOf } from "../../lib/print.js";
import { statePaths } from "../../runtime/data-directory.js";
import type { ListedTool } from "../../runtime/served.js";
import { visible } from "../../telemetry/index.js";
import { connectionError, isUnauthenticated, Unreachable, unusableDelegation } from "../connection-error.js";

const DEFAULT_URL = "http://127.0.0.1:7420/mcp";

interface Reaching {
  url: string;
  delegation?: string;
  gateway?: string;
  keyEnv?: string;
  /** A host is started for the command, because it serves on stdio alone. */
  host?: boolean;
}

type Listing = Reaching & { app?: string };

/** Options that select the server and the caller. */
const SERVER_OPTIONS = ["url", "host", "delegation", "gateway", "keyEnv"] as const;

const DELEGATION = ["--delegation <file>", "call as the agent of the delegation in this file"] as const;
const GATEWAY = ["--gateway <id>", "gateway that is called, where another one minted the delegation"] as const;

const KEY = ["--key-env <name>", "variable with the API key or token"] as const;

const HOST = ["--host", "start the host of this machine instead of calling a server"] as const;

const MAX_TIMEOUT_MS = 3_600_000;

function milliseconds(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= MAX_TIMEOUT_MS) return value;
  throw new InvalidArgumentError(`write a whole number of milliseconds from 1 to ${MAX_TIMEOUT_MS}, such as 5000`);
}

/** Never an argument: every process of this machine can read those. */
function keyIn(name: string | undefined): Record<string, string> {
  if (name === undefined) return {};
  const key = process.env[name];
  if (key === undefined || key === "") throw new CliError(`the variable ${name} is not set`, EXIT.usage);
  return { authorization: `Bearer ${key}` };
}

async function withClient<T>(command: Command, reaching: Reaching, use: (client: Client) => Promise<T>): Promise<T> {
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
    throw refused(error);
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

async function documentOf(reaching: Reaching, file: string): Promise<string> {
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
  const { tokenIn } = await import("./lattice.js");
  const held = tokenIn(file);
  const spend = (): string => spendDelegation(held, { audience });
  try {
    spend();
  } catch (error) {
    throw unusableDelegation(file, error);
  }
  return spend;
}

type Calling = Reaching & { timeout?: number; wait?: boolean };

/** The command reports at once that a call needs approval. */
const AT_ONCE = { "portcullis/challengeWaitMs": 0 };

export function addCallCommands(program: Command): void {
  program
    .command("ls")
    .description("list the tools that may be called")
    .option("--app <name>", "application of the data directory, as it was served last; no server is called")
    .option("--url <url>", "URL of the server", DEFAULT_URL)
    .option(...HOST)
    .option(...DELEGATION)
    .option(...GATEWAY)
    .option(...KEY)
    .action(async (options: Listing, command: Command) => {
      const out = outFor(command);
      const { tools, hidden, note } = await listed(command, options);
      out.data(tools, () =>
        tableOf(tools, "no tool may be called: see `portcullis policy check`", {
          tool: ({ name }) => name,
          outlook: ({ _meta: meta }) => (meta?.["portcullis/outlook"] === "challenge" ? "needs approval" : ""),
          description: ({ description }) => description ?? "",
        }),
      );
      if (hidden !== undefined && hidden.names.length > 0) out.note(hiddenNote(hidden));
      if (note !== undefined) out.note(note);
    });
  program
    .command("catalog")
    .description("print schemas, tags, metadata and examples of the tools that may be called")
    .option("--openapi", "print an OpenAPI 3.1 document instead")
    .option("--url <url>", "URL of the server; the key selects the application", DEFAULT_URL)
    .option(...KEY)
    .action(async (options: Reaching & { openapi?: boolean }) => {
      process.stdout.write(`${await documentOf(options, options.openapi ? "openapi.json" : "catalog.json")}\n`);
    });
  program
    .command("call <tool> [arguments]")
    .description("call a tool; arguments are a JSON object, or - for standard input")
    .option("--url <url>", "URL of the server", DEFAULT_URL)
    .option(...HOST)
    .option("--timeout <ms>", "how long to wait for the result, in milliseconds", milliseconds)
    .option("--wait", "wait for the approval of a call that needs one")
    .option(...DELEGATION)
    .option(...GATEWAY)
    .option(...KEY)
    .action(async (tool: string, text: string | undefined, options: Calling, command: Command) => {
      const out = outFor(command);
      const args = jsonArguments(text);
      await withClient(command, options, async (client) => {
        try {
          const meta = options.wait ? {} : AT_ONCE;
          const result = await client.callTool(tool, args, { timeoutMs: options.timeout, meta });
          const failure = errorObjectOf(result) as Failure | undefined;
          if (failure) {
            const help = [remedy(failure), ...(await explanation(command, failure, tool, args))];
            throw new CliError(failure.reason, exitFor(failure.code), help.filter((line) => line !== "").join("\n"));
          }
          out.data(result, () => shown(result));
          if (result.isError === true) process.exitCode = EXIT.error;
        } catch (error) {
          const denial = refused(error);
          if (error instanceof McpError && error.type === "ToolNotFound" && denial instanceof CliError) {
            const meant = nearest(
              tool,
              (await client.listTools()).map(({ name }) => name),
            );
            const help = meant === undefined ? "" : `did you mean \`${meant}\`? `;
            throw new CliError(denial.message, denial.exitCode, `${help}list the tools with: portcullis ls`);
          }
          if (error instanceof McpError && denial instanceof CliError && isJsonObject(error.data)) {
            const lines = await explanation(command, error.data as unknown as Failure, tool, args);
            throw new CliError(denial.message, denial.exitCode, [denial.help ?? "", ...lines].join("\n").trim());
          }
          throw denial;
        }
      });
    });
}

interface ListedTools {
  readonly tools: readonly ListedTool[];
  readonly hidden?: { readonly app: string; readonly names: readonly string[] } | undefined;
  readonly note?: string;
}

/** From the server; where none was named and none answers, what the only application of the data directory served last. */
async function listed(command: Command, options: Listing): Promise<ListedTools> {
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
  const { hiddenTools } = await import("../../runtime/tool-snapshots.js");
  const directory = options.host ? hostDirectory(command) : statePaths(shared(command).dir).dir;
  return { tools, hidden: hiddenTools(directory, tools) };
}

async function fromDirectory(command: Command, app: string | undefined, failure?: CliError): Promise<ListedTools> {
  const { storedList } = await import("../../runtime/served.js");
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

const MAX_NAMED = 5;

function hiddenNote({ app, names }: { app: string; names: readonly string[] }): string {
  const named = names.slice(0, MAX_NAMED).map((name) => visible(name));
  const more = names.length > MAX_NAMED ? ", …" : "";
  const count = names.length === 1 ? "1 tool" : `${names.length} tools`;
  return `${count} of application ${app} hidden by policy: ${named.join(", ")}${more}`;
}

/** For a denial by policy: the command that explains it. */
async function explanation(command: Command, failure: Failure, tool: string, args: JsonObject): Promise<string[]> {
  if (failure.code !== "POLICY_DENY") return [];
  const { trace_id: trace = "" } = failure;
  const { explainDenied } = await import("../../runtime/ledgers.js");
  return [`explain it with: ${await explainDenied(command, { tool, arguments: JSON.stringify(args), trace })}`];
}

function shown(result: ToolResult): string {
  const parts = result.content.map((block) => (block.type === "text" ? block.text : `[${block.type}]`));
  if (parts.length === 0 && result.structuredContent !== undefined)
    parts.push(JSON.stringify(result.structuredContent));
  const text = parts.join("\n");
  return result.isError === true ? paint.red(text) : text;
}

interface Failure {
  code: string;
  reason: string;
  rule?: string;
  challenge?: string;
  suggestions?: string[];
  trace_id?: string;
}

function exitFor(code: string): ExitCode {
  if (code === "CHALLENGE") return EXIT.challenge;
  if (code === "UNAUTHENTICATED") return EXIT.auth;
  return ["POLICY_DENY", "GUARDRAIL_BLOCKED", "RATE_LIMITED", "FORBIDDEN"].includes(code) ? EXIT.deny : EXIT.error;
}

function remedy(failure: Failure): string {
  const lines = failure.rule === undefined ? [] : [`rule: ${failure.rule}`];
  if (failure.challenge !== undefined) lines.push(`approve it with: portcullis approve ${failure.challenge}`);
  // The command that explains this very call is printed instead of the general one.
  const others = (failure.suggestions ?? []).filter((each) => !each.includes("portcullis policy explain"));
  return [...lines, ...(failure.code === "POLICY_DENY" ? others : (failure.suggestions ?? []))].join("\n");
}

function refused(error: unknown): unknown {
  if (!(error instanceof McpError)) return error;
  const data = isJsonObject(error.data) ? (error.data as unknown as Failure) : undefined;
  const help = data ? remedy(data) : error.suggestions.join("\n");
  return new CliError(data?.reason ?? error.message, exitFor(error.code), help === "" ? undefined : help);
}
