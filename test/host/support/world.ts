// A small world for a test: a root with a write zone in it, a secret outside, a policy, a sandbox of its own.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  cmdRun,
  type CmdContext,
  type CmdRunResult,
  fsRead,
  fsWrite,
  loadYamlPolicy,
  type HostOutcome,
  type Policy,
  problemText,
  Sandbox,
} from "../../../src/host/index.js";
import type { FsReadResult, FsWriteResult } from "../../../src/host/index.js";
import type { Without } from "../../../src/host/sandbox/index.js";

export const SECRET = "CANARY-in-the-mine";

export interface World {
  readonly base: string;
  readonly root: string;
  readonly zone: string;
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
  const zone = join(root, "out");
  const outside = join(base, "outside");
  mkdirSync(zone, { recursive: true });
  mkdirSync(outside);
  mkdirSync(join(root, "src"));
  writeFileSync(join(root, "readme.md"), "hello\n");
  writeFileSync(join(root, "src/app.ts"), "const needle = 1;\n");
  writeFileSync(join(outside, "secret.txt"), `${SECRET}\n`);
  const file = join(base, "policy.yaml");
  const text = `version: 1
allowedRoots: ["${root}"]
writeRules: [{ path: "${zone}", recursive: true, createIfMissing: true, maxFileBytes: 65_536 }]
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
    zone,
    outside,
    policy,
    sandbox,
    read: (args) => fsRead(policy, args),
    write: (args) => fsWrite(policy, args),
    run: (commandId, args = [], extra = {}, context = {}) =>
      cmdRun(policy, { commandId, args, ...extra }, { sandbox, ...context }),
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
