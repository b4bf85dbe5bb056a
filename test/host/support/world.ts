// A small world for a test: a root with a writable root in it, a secret outside, a policy, a sandbox of its own.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type CmdContext,
  type CmdRunResult,
  executeCmdRun,
  executeFsRead,
  executeFsWrite,
  type FsReadResult,
  type FsWriteResult,
  type HostOutcome,
  loadYamlPolicy,
  type Policy,
  problemText,
  Sandbox,
} from "../../../src/host/index.js";
import type { Without } from "../../../src/host/sandbox/confinement.js";

export const SECRET = "CANARY-in-the-mine";

export interface World {
  readonly base: string;
  readonly root: string;
  readonly writableRoot: string;
  readonly outside: string;
  readonly policy: Policy;
  readonly sandbox: Sandbox;
  read(args: unknown): Promise<HostOutcome<FsReadResult>>;
  write(args: unknown): Promise<HostOutcome<FsWriteResult>>;
  run(
    commandId: string,
    args?: readonly string[],
    more?: object,
    context?: CmdContext,
  ): Promise<HostOutcome<CmdRunResult>>;
  close(): Promise<void>;
}

/** `commands` is YAML in flow or block form, indented by two; `more` are further top-level lines. */
export function makeWorld(commands = "  []", more = "", without: Without = {}): World {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "world-")));
  const root = join(base, "root");
  const writableRoot = join(root, "out");
  const outside = join(base, "outside");
  mkdirSync(writableRoot, { recursive: true });
  mkdirSync(outside);
  mkdirSync(join(root, "src"));
  writeFileSync(join(root, "readme.md"), "hello\n");
  writeFileSync(join(root, "src/app.ts"), "const needle = 1;\n");
  writeFileSync(join(outside, "secret.txt"), `${SECRET}\n`);
  const file = join(base, "policy.yaml");
  const text = `version: 1
allowedRoots: ["${root}"]
writeRules: [{ path: "${writableRoot}", recursive: true, createIfMissing: true, maxFileBytes: 65_536 }]
${more}
commands:
${commands.replaceAll("${ROOT}", root)}
`;
  writeFileSync(file, text);
  const loaded = loadYamlPolicy(file);
  if (!loaded.ok) throw new Error(loaded.problems.map(problemText).join("\n"));
  const { policy } = loaded;
  const sandbox = new Sandbox(without);
  return {
    base,
    root,
    writableRoot,
    outside,
    policy,
    sandbox,
    read: (args) => executeFsRead(policy, args),
    write: (args) => executeFsWrite(policy, args),
    run: (commandId, args = [], extra = {}, context = {}) =>
      executeCmdRun(policy, { commandId, args, ...extra }, { sandbox, ...context }),
    async close() {
      await sandbox.close();
      rmSync(base, { recursive: true, force: true });
    },
  };
}

/** The result, or a failure that shows the denial. */
export function ok<R>(outcome: HostOutcome<R>): R {
  if (!outcome.ok) throw new Error(JSON.stringify(outcome.denial));
  return outcome.result;
}

export function code(outcome: HostOutcome<unknown>): string {
  return outcome.ok ? "allowed" : outcome.denial.code;
}

export function rule(outcome: HostOutcome<unknown>): string {
  return outcome.ok ? "allowed" : outcome.denial.rule;
}
