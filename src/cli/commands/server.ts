import { sandboxText } from "../../runtime/server-sandbox.js";
import type { Command } from "commander";
import { visible } from "../../telemetry/index.js";
import { askAdmin, withAdmin } from "../../runtime/admin-client.js";
import { CliError, EXIT } from "../../lib/exit.js";
import type { ServerFacts } from "../../runtime/server-facts.js";
import { outFor } from "../../runtime/options.js";
import { paint, table } from "../../lib/print.js";

export function addServerCommands(program: Command): void {
  const server = program.command("server").description("the servers behind a running gateway: how they are");
  withAdmin(server.command("ls [app]"))
    .description("list those in use")
    .action(async (app: string | undefined, { admin }: { admin?: string }, command: Command) => {
      const servers = (await factsOf(command, admin)).filter((each) => app === undefined || each.app === app);
      outFor(command).data(servers, () =>
        servers.length === 0
          ? "none is in use; an application's servers are started by its first caller"
          : table(
              ["app", "server", "state", "tools", "calls", "failures", "restarts", "last problem"],
              servers.map((each) => [
                each.app,
                each.server,
                stateWord(each),
                String(each.tools),
                String(each.counts.calls),
                String(each.counts.failures + each.counts.timeouts),
                String(each.restarts),
                each.lastError?.message ?? "",
              ]),
            ),
      );
    });
  withAdmin(server.command("show <app> <server>"))
    .description("one of them, with the end of what it wrote to stderr; known secrets are left out")
    .action(async (app: string, name: string, { admin }: { admin?: string }, command: Command) => {
      const found = (await factsOf(command, admin)).find((each) => each.app === app && each.server === name);
      if (!found) {
        throw new CliError(
          `server ${name} of application ${app} is not in use`,
          EXIT.error,
          "`portcullis server ls` lists those that are; an application's servers are started by its first caller",
        );
      }
      outFor(command).data(found, () => told(found));
    });
}

async function factsOf(command: Command, admin: string | undefined): Promise<readonly ServerFacts[]> {
  return ((await askAdmin(command, admin, "/v1/servers")) as { servers: ServerFacts[] }).servers;
}

function stateWord({ state, circuit }: ServerFacts): string {
  return circuit === "closed" ? state : `${state}, circuit ${circuit}`;
}

function told(facts: ServerFacts): string {
  const { counts } = facts;
  const failed = `${counts.failures} failed, ${counts.timeouts} timed out, ${counts.cancelled} cancelled`;
  const rows: [string, string | undefined][] = [
    ["state", stateWord(facts)],
    ["by", `${facts.transport}${facts.pid === undefined ? "" : `, process ${facts.pid}`}`],
    ["revision", facts.revision],
    ["tools", String(facts.tools)],
    ["calls", `${counts.calls}: ${counts.results} answered, ${counts.errors} refused by it, ${failed}`],
    [
      "nonsense",
      `${counts.malformed} malformed, ${counts.strayAnswers} stray, ${counts.refusedMessages} not asked for`,
    ],
    ["now", `${facts.inFlight} in flight, ${facts.queued} waiting`],
    ["restarts", String(facts.restarts)],
    ["problem", facts.lastError && `${facts.lastError.message} (${facts.lastError.at})`],
    ["contained", facts.containment],
    ["sandbox", facts.sandbox && sandboxText(facts.sandbox)],
    ...(facts.sandbox?.gaps ?? []).map((gap): [string, string] => ["", `open: ${gap}`]),
    ...(facts.sandbox?.notes ?? []).map((note): [string, string] => ["", `refused by this machine: ${note}`]),
  ];
  const lines = rows.flatMap(([what, text]) => (text === undefined ? [] : [`  ${what.padEnd(10)} ${visible(text)}`]));
  const stderr = facts.stderr.trimEnd().split("\n").map(visible);
  return [
    `${paint.bold(`${facts.app}/${facts.server}`)}  at replica ${facts.replica}`,
    ...lines,
    ...(facts.stderr === "" ? [] : ["  stderr", ...stderr.map((line) => `    ${line}`)]),
  ].join("\n");
}
