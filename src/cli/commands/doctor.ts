// `portcullis doctor`: checks the machine and the data directory; each finding has a remedy.

import { existsSync } from "node:fs";
import { Argument, type Command } from "commander";
import { EXIT, type ExitCode } from "../../lib/exit.js";
import { type Finding, printFindings } from "../../lib/finding.js";
import { withProgress } from "../../lib/progress.js";
import { type DoctorOptions, examineGateway, node } from "../../runtime/examine-gateway.js";
import { hostFiles, withHostFiles } from "../../runtime/host/config/files.js";
import { outFor } from "../../runtime/options.js";

export function addDoctor(program: Command): void {
  withHostFiles(program.command("doctor"))
    .addArgument(
      new Argument("[part]", "part to check (default: the gateway, and the host where it has a policy)").choices([
        "gateway",
        "host",
      ]),
    )
    .description("check this machine, the data directory and the host; each finding has a remedy")
    .option("--port <number>", "port to serve on", Number, 7420)
    .option("--app <name>", "check the policies and servers of this application only")
    .action(async (part: string | undefined, options: DoctorOptions, command: Command) => {
      const files = hostFiles(options);
      const wantsGateway = part === undefined ? options.config === undefined : part === "gateway";
      const wantsHost = part === undefined ? options.config !== undefined || existsSync(files.config) : part === "host";
      const findings: Finding[] = [node()];
      if (wantsGateway) {
        findings.push(...(await withProgress("checking", () => examineGateway(command, options))));
      }
      let exitCode: ExitCode = findings.every((finding) => finding.ok) ? EXIT.ok : EXIT.error;
      if (wantsHost) {
        // Loaded only here: no other part needs the host's paths and sandbox.
        const { examineHost } = await import("../../runtime/host/doctor/index.js");
        const host = await examineHost(files);
        const named = (finding: Finding): Finding => ({ ...finding, check: `host: ${finding.check}` });
        findings.push(...(wantsGateway ? host.findings.map(named) : host.findings));
        if (host.exitCode !== EXIT.ok) exitCode = host.exitCode;
      }
      printFindings(outFor(command), findings);
      if (exitCode !== EXIT.ok) process.exitCode = exitCode;
    });
}
