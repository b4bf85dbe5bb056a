// What could keep the host from working here, from the file to a real call.

import { problemText, Sandbox } from "../../../host/index.js";
import { EXIT, type ExitCode } from "../../../lib/exit.js";
import type { Finding } from "../../../lib/finding.js";
import { type HostFiles, ownName } from "../config/files.js";
import { loadHostPolicy } from "../config/read.js";
import { existsSync } from "node:fs";
import { hardLinks } from "./hard-links.js";
import { mounts } from "./mounts.js";
import { permissions } from "./permissions.js";
import { programs } from "./programs.js";
import { protections } from "./protections.js";
import { realStart } from "./start.js";

export interface HostFindings {
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
