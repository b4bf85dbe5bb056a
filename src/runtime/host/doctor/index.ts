// What could keep the host from working here, from the file to a real call.

import { existsSync, lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Policy, problemText, Sandbox } from "../../../host/index.js";
import { verify } from "../../../ledger/index.js";
import { type CliError, EXIT, type ExitCode } from "../../../lib/exit.js";
import type { Finding } from "../../../lib/finding.js";
import { type HostFiles, ownName } from "../config/files.js";
import { loadHostPolicy } from "../config/read.js";
import { talkToHost } from "../config/talk.js";
import { programs, protections } from "./commands.js";
import { hardLinks, mounts, permissions } from "./files.js";

interface HostFindings {
  readonly findings: readonly Finding[];
  readonly exitCode: ExitCode;
}

export async function examineHost(files: HostFiles): Promise<HostFindings> {
  const check = "policy";
  if (!existsSync(files.config)) {
    const missing: Finding = {
      check,
      ok: false,
      detail: `there is none at ${files.config}`,
      remedy: `\`${ownName()} init host\` writes one; --config <file> names another`,
    };
    return { findings: [missing], exitCode: EXIT.error };
  }
  const loaded = loadHostPolicy(files);
  if (!loaded.ok) {
    const invalid = loaded.problems.map((problem) => ({
      check,
      ok: false,
      detail: problemText({ ...problem, remedy: "" }).replace(/; $/, ""),
      remedy: problem.remedy,
    }));
    return { findings: invalid, exitCode: EXIT.invalidPolicy };
  }
  const { policy } = loaded;
  const sandbox = new Sandbox();
  try {
    const findings = [
      { check, ok: true, detail: `${files.config}, ${policy.hash.slice(0, 12)}` },
      ...permissions(policy, files),
      mounts(policy),
      ...hardLinks(policy),
      ...(await programs(policy, sandbox)),
      ...(await protections(policy, sandbox)),
      ...(await realStart(policy, files)),
    ];
    return { findings, exitCode: findings.every((finding) => finding.ok) ? EXIT.ok : EXIT.error };
  } finally {
    await sandbox.close();
  }
}

const START_TIMEOUT_MS = 30_000;
const MAX_LOOKED_AT = 1000;

interface Answer {
  readonly id?: number;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string; readonly data?: { readonly code?: string; readonly rule?: string } };
}

async function realStart(policy: Policy, files: HostFiles): Promise<Finding[]> {
  const sample = policy.readableRoots.map((root) => someFile(root.path)).find((file) => file !== undefined);
  const runs = policy.commands.get("ls")?.profile?.name === "ls";
  const initialize = {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "portcullis-doctor", version: "0" },
  };
  const requests = [
    { id: 1, method: "initialize", params: initialize },
    { method: "notifications/initialized" },
    { id: 2, method: "tools/list" },
    { id: 3, method: "fs.read", params: { path: files.config } },
    ...(sample === undefined
      ? []
      : [{ id: 4, method: "fs.read", params: { path: sample, length: 1, encoding: "base64" } }]),
    ...(runs ? [{ id: 5, method: "cmd.run", params: { commandId: "ls" } }] : []),
  ];
  const messages = requests.map((request) => JSON.stringify({ jsonrpc: "2.0", ...request }));
  let answers: readonly Answer[];
  try {
    const talk = await talkToHost({ files, messages, timeoutMs: START_TIMEOUT_MS });
    answers = talk.answers as readonly Answer[];
  } catch (error) {
    const { message, help } = error as CliError;
    const detail = help === undefined || help === "" ? message : `${message}: ${help}`;
    return [{ check: "a real start", ok: false, detail, remedy: "run `portcullis host --log-level debug` and see" }];
  }
  const by = new Map(answers.map((answer) => [answer.id, answer]));
  return [
    started(by.get(2)),
    denied(by.get(3)),
    ...permitted(by.get(4), sample),
    ...ran(by.get(5)),
    await ledger(files),
  ];
}

function started(answer: Answer | undefined): Finding {
  const check = "a real start";
  const tools = (answer?.result?.tools as readonly { name: string }[] | undefined)?.map((tool) => tool.name).sort();
  const ok = tools?.join(" ") === "cmd.run fs.read fs.write";
  const detail = ok ? "it starts, and offers fs.read, fs.write and cmd.run" : (answer?.error?.message ?? "no tools");
  return { check, ok, detail, remedy: "run `portcullis host --log-level debug` and see" };
}

/** A host that shows its own policy holds nothing back. */
function denied(answer: Answer | undefined): Finding {
  const ok = answer?.error?.data?.code === "POLICY_DENY";
  const detail = ok
    ? `reading the policy is denied (${answer?.error?.data?.rule})`
    : "reading the policy was not denied";
  return { check: "a real denial", ok, detail, remedy: "stop using this host, and report this" };
}

function permitted(answer: Answer | undefined, file: string | undefined): Finding[] {
  const check = "a real read";
  if (file === undefined) return [];
  if (answer?.result !== undefined) return [{ check, ok: true, detail: file }];
  const remedy = `run \`portcullis policy explain fs.read ${file}\``;
  return [{ check, ok: false, detail: answer?.error?.message ?? "no answer", remedy }];
}

function ran(answer: Answer | undefined): Finding[] {
  const check = "a real command";
  if (answer === undefined) return [];
  const ok = answer.result?.exitCode === 0;
  const detail = ok ? "ls ran in its sandbox" : (answer.error?.message ?? String(answer.result?.stderr ?? "no answer"));
  return [{ check, ok, detail, remedy: "run `portcullis cmd test ls --run`" }];
}

/** A regular file with one name, near the top: anything will do. */
function someFile(directory: string): string | undefined {
  let looked = 0;
  for (const at of [directory, ...subdirectories(directory)]) {
    for (const name of namesIn(at)) {
      if (++looked > MAX_LOOKED_AT) return undefined;
      const path = join(at, name);
      const stats = lstatSync(path, { throwIfNoEntry: false });
      if (stats?.isFile() && stats.nlink === 1) return path;
    }
  }
  return undefined;
}

function subdirectories(directory: string): string[] {
  return namesIn(directory)
    .slice(0, MAX_LOOKED_AT)
    .map((name) => join(directory, name))
    .filter((path) => lstatSync(path, { throwIfNoEntry: false })?.isDirectory());
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).sort();
  } catch {
    return [];
  }
}

async function ledger({ state }: HostFiles): Promise<Finding> {
  const check = "ledger";
  const directory = join(state, "ledger");
  const remedy = "keep a copy before you touch it";
  let records = 0;
  for (const name of existsSync(directory) ? readdirSync(directory) : []) {
    const dir = join(directory, name);
    try {
      const result = await verify(dir);
      if (!result.ok) return { check, ok: false, detail: `${dir}: ${result.problems[0]?.message}`, remedy };
      records += result.to;
    } catch (error) {
      return { check, ok: false, detail: `${dir}: ${(error as Error).message}`, remedy };
    }
  }
  return { check, ok: true, detail: `${records} records, all good` };
}
