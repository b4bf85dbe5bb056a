import { type Command, InvalidArgumentError } from "commander";
import { type Client, connect, errorObjectOf, McpError } from "../../mcp/client/index.js";
import { spendDelegation } from "../../policy/index.js";
import { DELEGATION_HEADER } from "../../auth/index.js";
import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import type { ToolResult } from "../../mcp/server/index.js";
import { CliError, EXIT, type ExitCode } from "../../lib/exit.js";
import { mainFile } from "../../runtime/host/config/paths.js";
import { requireFile } from "../../runtime/host/config/files.js";
import { servedFiles } from "../../runtime/host/served-policy.js";
import { hostDirectory, jsonArguments, outFor, shared } from "../../runtime/options.js";
import { paint, table } from "../../lib/print.js";
import { statePaths } from "../../runtime/data-directory.js";
import { visible } from "../../telemetry/index.js";
import { isUnauthenticated, turnedAway, unusableDelegation } from "../connection-error.js";

const DEFAULT_URL = "http://127.0.0.1:7420/mcp";

interface Reaching {
  url: string;
  delegation?: string;
  gateway?: string;
  keyEnv?: string;
  /** A host is started for the command, because it serves on stdio alone. */
  host?: boolean;
}

const DELEGATION = ["--delegation <file>", "call as the agent that holds this delegation"] as const;
const GATEWAY = ["--gateway <id>", "the gateway that is asked, where another one minted the delegation"] as const;

const KEY = ["--key-env <name>", "the variable that holds your key"] as const;

const HOST = ["--host", "start the host of this machine for it instead of asking a server"] as const;

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
  // Every request spends the delegation anew.
  const headers = spend === undefined ? key : () => ({ ...key, [DELEGATION_HEADER]: spend() });
  let client: Client;
  try {
    client = await (reaching.host ? connect(hostLaunch(command)) : connect(url, { headers }));
  } catch (error) {
    throw turnedAway(error, url, "start it with `portcullis serve`, or name another server with --url", reaching);
  }
  try {
    return await use(client);
  } catch (error) {
    // A credential can end between two requests.
    if (error instanceof McpError && isUnauthenticated(error)) throw turnedAway(error, url, "", reaching);
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
    throw turnedAway(error, url, "start it with `portcullis serve`, or name another server with --url", reaching);
  }
  if (response.ok) return text;
  const isDenied = response.status === 401;
  const remedy = isDenied ? "name the variable that holds your key with --key-env" : undefined;
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

/** Tried once before anybody is asked: what is no delegation at all is no matter of the server. */
async function spending(file: string, audience: string | undefined): Promise<() => string> {
  const { tokenIn } = await import("./lattice-token.js");
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

/** A person at a terminal is told at once that a call needs approval, and can approve it there. */
const AT_ONCE = { "portcullis/challengeWaitMs": 0 };

export function addCallCommands(program: Command): void {
  program
    .command("ls")
    .description("list the tools that may be called")
    .option("--url <url>", "the server", DEFAULT_URL)
    .option(...HOST)
    .option(...DELEGATION)
    .option(...GATEWAY)
    .option(...KEY)
    .action(async (options: Reaching, command: Command) => {
      const out = outFor(command);
      await withClient(command, options, async (client) => {
        const tools = await client.listTools();
        // Loads the gateway's modules, which the other commands here do without.
        const { hiddenTools } = await import("../../runtime/tool-snapshots.js");
        const hidden = hiddenTools(options.host ? hostDirectory(command) : statePaths(shared(command).dir).dir, tools);
        out.data(tools, () =>
          tools.length === 0
            ? "no tool may be called; look at the policy"
            : table(
                ["tool", "outlook", "description"],
                tools.map((tool) => [
                  tool.name,
                  (tool._meta as JsonObject | undefined)?.["portcullis/outlook"] === "challenge" ? "asks a person" : "",
                  tool.description ?? "",
                ]),
              ),
        );
        if (hidden) out.note(hiddenNote(hidden));
      });
    });
  program
    .command("catalog")
    .description("print the catalog of the tools that may be called: schemas, tags, metadata and examples")
    .option("--openapi", "print an OpenAPI 3.1 document instead")
    .option("--url <url>", "the server; the key decides the application", DEFAULT_URL)
    .option(...KEY)
    .action(async (options: Reaching & { openapi?: boolean }) => {
      process.stdout.write(`${await documentOf(options, options.openapi ? "openapi.json" : "catalog.json")}\n`);
    });
  program
    .command("call <tool> [arguments]")
    .description("call a tool; arguments are a JSON object, or - for standard input")
    .option("--url <url>", "the server", DEFAULT_URL)
    .option(...HOST)
    .option("--timeout <ms>", "how long to wait, in milliseconds", milliseconds)
    .option("--wait", "where a person has to approve it, wait for that instead of saying so")
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
          if (error instanceof McpError && denial instanceof CliError && isJsonObject(error.data)) {
            const lines = await explanation(command, error.data as unknown as Failure, tool, args);
            throw new CliError(denial.message, denial.exitCode, [denial.help ?? "", ...lines].join("\n").trim());
          }
          throw denial;
        }
      });
    });
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
  const { explainDenied } = await import("../../runtime/explain-command.js");
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
