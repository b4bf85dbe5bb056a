import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { request } from "undici";
import { readOperatorToken } from "../../admin/index.js";
import { CliError, EXIT } from "../exit.js";
import { knownAdmins } from "../gateway/admin-places.js";
import { outFor, shared } from "../options.js";
import { type Out, paint, table } from "../print.js";
import { visible } from "../../telemetry/index.js";
import { statePaths } from "../state.js";

const DEFAULT_ADMIN = "http://127.0.0.1:7421";
const TIMEOUT_MS = 10_000;
const WATCH_MS = 1_000;

interface Shown {
  id: string;
  state: string;
  app: string;
  agent: string;
  tool: string;
  reason: string;
  arguments?: string;
  arguments_preview: string;
  rules: { id: string; file?: string; line?: number }[];
  expires_at: string;
}

/** Asks the admin port as the operator. */
async function ask(command: Command, admin: string | undefined, path: string, body?: object): Promise<unknown> {
  const { operatorToken, dir } = statePaths(shared(command).dir);
  let token: string;
  try {
    token = readOperatorToken(operatorToken);
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === "ENOENT";
    throw new CliError(
      missing ? `there is no operator credential at ${operatorToken}` : (error as Error).message,
      EXIT.auth,
      missing ? "run this where the gateway runs, or name its working folder with --dir" : undefined,
    );
  }
  // Every gateway on this folder knows of every approval; the one that started last is asked unless another is named.
  const url = admin ?? knownAdmins(dir)[0] ?? DEFAULT_ADMIN;
  const response = await request(new URL(path, url), {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: body ? JSON.stringify(body) : null,
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
  }).catch((error: Error) => {
    throw new CliError(
      `cannot reach the admin port at ${url}: ${error.message}`,
      EXIT.error,
      "is `portcullis serve` running?",
    );
  });
  const answer = (await response.body.json()) as { error?: { reason: string; suggestions?: string[] } };
  if (response.statusCode < 400) return answer;
  const exit = response.statusCode === 401 ? EXIT.auth : EXIT.error;
  throw new CliError(
    answer.error?.reason ?? `HTTP ${response.statusCode}`,
    exit,
    answer.error?.suggestions?.join("\n"),
  );
}

export function addApprovalCommands(program: Command): void {
  const withAdmin = (command: Command): Command =>
    command.option("--admin <url>", `the admin port (default: of the running gateway, or ${DEFAULT_ADMIN})`);
  const approvals = program.command("approvals").description("calls that wait for a person");
  withAdmin(approvals.command("ls"))
    .description("list them")
    .option("--all", "also those already answered")
    .action(async (options: { admin?: string; all?: boolean }, command: Command) => {
      const path = options.all ? "/v1/approvals" : "/v1/approvals?state=pending";
      const answer = (await ask(command, options.admin, path)) as { approvals: Shown[] };
      outFor(command).data(answer.approvals, () =>
        answer.approvals.length === 0
          ? "nothing waits"
          : table(
              ["id", "state", "who", "tool", "arguments", "why"],
              answer.approvals.map((each) => [
                each.id,
                each.state,
                `${each.app}/${each.agent}`,
                each.tool,
                each.arguments_preview,
                each.reason,
              ]),
            ),
      );
    });
  withAdmin(approvals.command("show <id>"))
    .description("one of them, with its full arguments")
    .action(async (id: string, { admin }: { admin?: string }, command: Command) => {
      show(outFor(command), (await ask(command, admin, `/v1/approvals/${encodeURIComponent(id)}`)) as Shown);
    });
  withAdmin(approvals.command("watch"))
    .description("say each as it comes, until stopped")
    .action(async ({ admin }: { admin?: string }, command: Command) => {
      const out = outFor(command);
      const stop = new AbortController();
      process.once("SIGINT", () => stop.abort());
      process.once("SIGTERM", () => stop.abort());
      let said = new Set<string>();
      while (!stop.signal.aborted) {
        const { approvals: open } = (await ask(command, admin, "/v1/approvals?state=pending")) as {
          approvals: Shown[];
        };
        for (const each of open) if (!said.has(each.id)) out.line(each, () => waitingLine(each));
        // Those that were answered are forgotten, so this stays as small as what waits.
        said = new Set(open.map(({ id }) => id));
        await sleep(WATCH_MS, undefined, { signal: stop.signal }).catch(() => undefined);
      }
    });
  withAdmin(program.command("approve <id>"))
    .description("let a waiting call run, once")
    .action(async (id: string, { admin }: { admin?: string }, command: Command) => {
      const path = `/v1/approvals/${encodeURIComponent(id)}/approve`;
      show(outFor(command), (await ask(command, admin, path, {})) as Shown);
    });
  withAdmin(program.command("deny <id>"))
    .description("refuse a waiting call")
    .option("--reason <text>", "what the model is told", "a person said no")
    .action(async (id: string, options: { admin?: string; reason: string }, command: Command) => {
      const path = `/v1/approvals/${encodeURIComponent(id)}/deny`;
      show(outFor(command), (await ask(command, options.admin, path, { reason: options.reason })) as Shown);
    });
}

function waitingLine({ id, app, agent, tool, arguments_preview: preview, reason }: Shown): string {
  return visible(`${id}  ${app}/${agent}  ${tool} ${preview}  ${reason}`);
}

function show(out: Out, challenge: Shown): void {
  out.data(challenge, () =>
    [
      `${paint.bold(challenge.id)}  ${challenge.state}`,
      `  who        ${challenge.app}/${challenge.agent}`,
      `  tool       ${challenge.tool}`,
      `  arguments  ${challenge.arguments ?? challenge.arguments_preview}`,
      `  why        ${challenge.reason}`,
      ...challenge.rules.map((rule) => `  rule       ${rule.id}${rule.file ? ` (${rule.file}:${rule.line})` : ""}`),
      `  expires    ${challenge.expires_at}`,
    ].join("\n"),
  );
}
