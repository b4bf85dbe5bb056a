import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { type Out, paint, tableOf } from "../../lib/print.js";
import { type AdminPlace, adminPlaces, askAdmin, askPlace, withAdmin } from "../../runtime/admin-client.js";
import { openSignedIn } from "../../runtime/browser.js";
import { outFor } from "../../runtime/options.js";
import { visible } from "../../telemetry/index.js";

const WATCH_MS = 1_000;

interface Shown {
  id: string;
  state: string;
  app: string;
  agent: string;
  tool: string;
  reason: string;
  arguments?: string;
  forwarded?: string;
  arguments_preview: string;
  rules: { id: string; file?: string; line?: number }[];
  expires_at: string;
}

export function addApprovalCommands(program: Command): void {
  const approvals = program.command("approvals").description("list and open calls that wait for approval");
  withAdmin(approvals.command("ls"))
    .description("list the calls that wait for approval")
    .option("--all", "include those that are answered")
    .action(async (options: { admin?: string; all?: boolean }, command: Command) => {
      const path = options.all ? "/v1/approvals" : "/v1/approvals?state=pending";
      const approvals = await approvalsAt(command, options.admin, path);
      outFor(command).data(approvals, () =>
        tableOf(approvals, "no call waits for approval", {
          id: ({ id }) => id,
          state: ({ state }) => state,
          who: ({ app, agent }) => `${app}/${agent}`,
          tool: ({ tool }) => tool,
          arguments: ({ arguments_preview: preview }) => preview,
          why: ({ reason }) => reason,
        }),
      );
    });
  withAdmin(approvals.command("show <id>"))
    .description("show an approval request with its full arguments")
    .action(async (id: string, { admin }: { admin?: string }, command: Command) => {
      show(outFor(command), (await askAdmin(command, admin, `/v1/approvals/${encodeURIComponent(id)}`)) as Shown);
    });
  withAdmin(approvals.command("open [id]"))
    .description("open what waits in the console, signed in; print the link where there is no browser")
    .action(async (id: string | undefined, { admin }: { admin?: string }, command: Command) => {
      const place = await placeOf(command, admin, id);
      await openSignedIn(command, place, id === undefined ? "/approvals" : `/approve/${encodeURIComponent(id)}`);
    });
  withAdmin(program.command("console"))
    .description("open the console in a browser, signed in; print the link where there is no browser")
    .option("--no-browser", "print the link alone")
    .action(async (options: { admin?: string; browser: boolean }, command: Command) =>
      openSignedIn(command, await placeOf(command, options.admin, undefined), "/console/", options.browser),
    );
  withAdmin(approvals.command("watch"))
    .description("print approval requests as they arrive, until stopped")
    .action(async ({ admin }: { admin?: string }, command: Command) => {
      const out = outFor(command);
      const stop = new AbortController();
      process.once("SIGINT", () => stop.abort());
      process.once("SIGTERM", () => stop.abort());
      let shown = new Set<string>();
      while (!stop.signal.aborted) {
        const open = await approvalsAt(command, admin, "/v1/approvals?state=pending");
        for (const each of open) if (!shown.has(each.id)) out.line(each, () => waitingLine(each));
        // Those that were answered are forgotten, so this stays as small as what waits.
        shown = new Set(open.map(({ id }) => id));
        await sleep(WATCH_MS, undefined, { signal: stop.signal }).catch(() => undefined);
      }
    });
  withAdmin(program.command("approve <id>"))
    .description("approve a waiting call once")
    .action(async (id: string, { admin }: { admin?: string }, command: Command) => {
      const path = `/v1/approvals/${encodeURIComponent(id)}/approve`;
      show(outFor(command), (await askAdmin(command, admin, path, {})) as Shown);
    });
  withAdmin(program.command("deny <id>"))
    .description("deny a waiting call")
    .option("--reason <text>", "reason that the model reads", "denied by an operator")
    .action(async (id: string, options: { admin?: string; reason: string }, command: Command) => {
      const path = `/v1/approvals/${encodeURIComponent(id)}/deny`;
      show(outFor(command), (await askAdmin(command, options.admin, path, { reason: options.reason })) as Shown);
    });
}

async function approvalsAt(command: Command, admin: string | undefined, path: string): Promise<Shown[]> {
  const places = adminPlaces(command, admin);
  const answers = await Promise.all(places.map((place) => askPlace(place, path) as Promise<{ approvals: Shown[] }>));
  return answers.flatMap(({ approvals }) => approvals);
}

/** Where this approval is answered; the first place where none is named. */
async function placeOf(command: Command, admin: string | undefined, id: string | undefined): Promise<AdminPlace> {
  const places = adminPlaces(command, admin);
  if (id !== undefined) {
    for (const place of places) {
      const known = (await askPlace(place, "/v1/approvals")) as { approvals: Shown[] };
      if (known.approvals.some((each) => each.id === id)) return place;
    }
  }
  return places[0] as AdminPlace;
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
      ...(challenge.forwarded === undefined || challenge.forwarded === "{}"
        ? []
        : [`  forwarded  ${challenge.forwarded}`]),
      `  why        ${challenge.reason}`,
      ...challenge.rules.map((rule) => `  rule       ${rule.id}${rule.file ? ` (${rule.file}:${rule.line})` : ""}`),
      `  expires    ${challenge.expires_at}`,
    ].join("\n"),
  );
}
