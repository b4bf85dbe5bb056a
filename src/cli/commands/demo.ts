// `portcullis demo`: a permitted call, a denied one, an approval, a verified ledger and one flipped byte found, offline.

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as prompts from "@clack/prompts";
import type { Command } from "commander";
import { verify } from "../../ledger/index.js";
import { CliError } from "../../lib/exit.js";
import { type Out, paint } from "../../lib/print.js";
import { connect, McpError } from "../../mcp/client/index.js";
import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import { VERSION } from "../../runtime/environment.js";
import { outFor } from "../../runtime/options.js";
import type { GatewayRuntime } from "../../runtime/start.js";
import { LOCAL_APP } from "../../runtime/store/open.js";

export function addDemo(program: Command): void {
  program
    .command("demo")
    .description("show a permit, a denial, an approval and a verified ledger in a minute")
    .option("--yes", "approve the call without asking")
    .action(async ({ yes }: { yes?: boolean }, command: Command) => {
      const out = outFor(command);
      const dir = mkdtempSync(join(tmpdir(), "portcullis-demo-"));
      // Loaded only here: help does without the gateway.
      const [{ DEMO_STARTER, demoServer }, { startGateway }] = await Promise.all([
        import("../../runtime/module.js"),
        import("../../runtime/start.js"),
      ]);
      const { server, notes } = demoServer(VERSION);
      const runtime = await startGateway({
        stateDir: dir,
        inProcess: { app: LOCAL_APP, server },
        starterPolicy: DEMO_STARTER,
        http: { host: "127.0.0.1", port: 0 },
        telemetry: { log: { level: "critical" } },
      });
      try {
        await runDemo(out, runtime, notes, yes === true);
      } finally {
        await runtime.close();
        rmSync(dir, { recursive: true, force: true });
      }
    });
}

type Steps = Record<string, unknown>;

async function runDemo(
  out: Out,
  runtime: GatewayRuntime,
  notes: ReadonlyMap<string, string>,
  yes: boolean,
): Promise<void> {
  const print = (text: string): void => {
    if (!out.json) process.stdout.write(`${text}\n`);
  };
  const steps: Steps = {};
  const url = runtime.listeners[0]?.url as string;
  const agent = await connect(url);
  try {
    print(`${paint.bold("1. A permitted call.")} An agent writes a note.`);
    const wrote = await call(agent, "notes.write", { title: "demo/plan", text: "water the plants" });
    print(
      `   ${paint.green("permit")}  notes.write demo/plan → ${wrote.text}   (notes now: ${[...notes.keys()].join(", ")})`,
    );
    steps.permit = { text: wrote.text, notes: notes.size };

    print(`\n${paint.bold("2. A denied one.")} The same agent tries a shell.`);
    const denied = await call(agent, "shell.run", { command: "rm -rf /" });
    const rule = runtime.policy.rules.find((each) => each.id === denied.error?.rule);
    print(`   ${paint.red("deny")}    ${denied.error?.reason}`);
    print(`           rule ${denied.error?.rule}, ${rule ? `${rule.file}:${rule.line}` : ""}; nothing ran`);
    steps.deny = { reason: denied.error?.reason, rule: denied.error?.rule, line: rule?.line };

    print(`\n${paint.bold("3. A challenge.")} It deletes the note, which needs an approval.`);
    const waiting = await call(agent, "notes.delete", { title: "demo/plan" });
    print(`   ${paint.yellow("challenge")}  ${waiting.error?.reason} Still there: ${notes.has("demo/plan")}`);
    const approved = yes || (await askApproval());
    const id = String(waiting.error?.challenge);
    const by = { name: "you", groups: ["operators"] };
    if (approved) await runtime.approvals.approve(id, by);
    else await runtime.approvals.deny(id, by, "not now");
    const after = await call(agent, "notes.delete", { title: "demo/plan" });
    print(
      approved
        ? `   ${paint.green("approved")}, and the same call again: ${after.text}`
        : `   ${paint.red("denied")}: ${after.error?.reason}`,
    );
    steps.challenge = { id, approved, left: notes.size };
  } finally {
    await agent.close();
  }
  await showLedger(print, runtime, steps);
  out.data(steps, () => `\nDone. ${paint.bold("portcullis serve")} starts a gateway of your own.`);
}

async function showLedger(print: (text: string) => void, runtime: GatewayRuntime, steps: Steps): Promise<void> {
  print(`\n${paint.bold("4. The ledger.")} Every decision was recorded before anything ran.`);
  await runtime.ledger.checkpoint();
  const good = await verify(runtime.state.ledgerDir);
  if (!good.ok) throw new CliError(`the ledger does not verify: ${good.problems[0]?.message}`);
  print(`   ${paint.green("good")}    ${good.to} records, signed up to ${good.covered}`);
  const copy = `${runtime.state.ledgerDir}-copy`;
  cpSync(runtime.state.ledgerDir, copy, { recursive: true });
  flipByte(copy);
  const bad = await verify(copy);
  if (bad.ok) throw new CliError("a flipped byte was not found");
  print(`\n${paint.bold("5. One flipped byte")} in a copy of it, and:`);
  print(`   ${paint.red("found")}   ${bad.problems[0]?.message}`);
  steps.ledger = { ok: good.ok, records: good.to, tampered: bad.problems[0]?.message };
}

/** Changes one character in the middle of the first segment. */
function flipByte(ledger: string): void {
  const segment = readdirSync(ledger, { recursive: true })
    .map(String)
    .filter((name) => /\.(ndjson|jsonl)$/.test(name))
    .sort()[0];
  if (segment === undefined) throw new CliError("the demonstration found no segment to tamper with");
  const path = join(ledger, segment);
  const bytes = readFileSync(path);
  const at = bytes.indexOf('"notes.write"') + 3;
  bytes[at] = (bytes[at] as number) ^ 1;
  writeFileSync(path, bytes);
}

interface CallResult {
  text: string;
  error?: { reason: string; rule?: string; challenge?: string };
}

/** The result of the tool, or the error object of the gateway. */
async function call(agent: Awaited<ReturnType<typeof connect>>, tool: string, args: JsonObject): Promise<CallResult> {
  let data: unknown;
  try {
    const result = await agent.callTool(tool, args);
    const text = result.content.map((block) => (block.type === "text" ? block.text : "")).join("");
    if (result.isError !== true) return { text };
    data = result.structuredContent;
  } catch (error) {
    if (!(error instanceof McpError)) throw error;
    data = error.data;
  }
  if (!isJsonObject(data)) throw new CliError(`${tool} failed in a way the demonstration did not expect`);
  return { text: "", error: data as unknown as CallResult["error"] };
}

async function askApproval(): Promise<boolean> {
  if (!process.stdin.isTTY) {
    throw new CliError("no terminal to ask for the approval", undefined, "run `portcullis demo --yes`");
  }
  const answer = await prompts.confirm({ message: 'notes.delete {"title":"demo/plan"} — let it run?' });
  if (prompts.isCancel(answer)) throw new CliError("cancelled");
  return answer;
}
