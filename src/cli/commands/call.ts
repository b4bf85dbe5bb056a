import { type Command, InvalidArgumentError } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { counted, paint, tableOf } from "../../lib/print.js";
import { errorObjectOf, McpError } from "../../mcp/client/index.js";
import { isJsonObject, type JsonObject, nearest } from "../../mcp/index.js";
import type { ToolResult } from "../../mcp/server/index.js";
import {
  type CallFailure,
  DEFAULT_URL,
  documentOf,
  exitFor,
  type Listing,
  listedTools,
  type Reaching,
  refused,
  remedy,
  withClient,
} from "../../runtime/calling.js";
import { jsonArguments, outFor } from "../../runtime/options.js";
import { visible } from "../../telemetry/index.js";

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
      const { tools, hidden, note } = await listedTools(command, options);
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
      const text = await documentOf(options, options.openapi ? "openapi.json" : "catalog.json");
      process.stdout.write(`${JSON.stringify(JSON.parse(text), null, 2)}\n`);
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
          const failure = errorObjectOf(result) as CallFailure | undefined;
          if (failure) {
            const help = [remedy(failure, command), ...(await explanation(command, failure, tool, args))];
            throw new CliError(failure.reason, exitFor(failure.code), help.filter((line) => line !== "").join("\n"));
          }
          out.data(result, () => shown(result));
          if (result.isError === true) process.exitCode = EXIT.error;
        } catch (error) {
          const denial = refused(error, command);
          if (error instanceof McpError && error.type === "ToolNotFound" && denial instanceof CliError) {
            const names = (await client.listTools()).map(({ name }) => name);
            // Names have the prefix of their server, or not.
            const meant = names.find((name) => isSameTool(name, tool)) ?? nearest(tool, names);
            const help = meant === undefined ? "" : `did you mean \`${meant}\`? `;
            throw new CliError(denial.message, denial.exitCode, `${help}list the tools with: portcullis ls`);
          }
          if (error instanceof McpError && denial instanceof CliError && isJsonObject(error.data)) {
            const lines = await explanation(command, error.data as unknown as CallFailure, tool, args);
            throw new CliError(denial.message, denial.exitCode, [denial.help ?? "", ...lines].join("\n").trim());
          }
          throw denial;
        }
      });
    });
}

function isSameTool(name: string, given: string): boolean {
  return [".", "_"].some((dot) => name.endsWith(`${dot}${given}`) || given.endsWith(`${dot}${name}`));
}

const MAX_NAMED = 5;

function hiddenNote({ app, names }: { app: string; names: readonly string[] }): string {
  const named = names.slice(0, MAX_NAMED).map((name) => visible(name));
  const more = names.length > MAX_NAMED ? ", …" : "";
  return `${counted(names.length, "tool")} of application ${app} hidden by policy: ${named.join(", ")}${more}`;
}

/** For a denial by policy: the command that explains it. */
async function explanation(command: Command, failure: CallFailure, tool: string, args: JsonObject): Promise<string[]> {
  // A halt comes from an operator, not from a rule; the command that ends it is named already.
  if (failure.code !== "POLICY_DENY" || failure.rule === "halt") return [];
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
