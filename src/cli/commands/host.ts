import { type Command, Option } from "commander";
import { withHostFiles } from "../../runtime/host/config/files.js";
import { portNumber, seconds } from "../../runtime/options.js";
import type { HostOptions } from "../../runtime/host/run.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical"];

export function addHost(program: Command): void {
  withHostFiles(program.command("host"))
    .description("serve fs.read, fs.write and cmd.run on stdio, as policy.yaml allows, and nothing else")
    .option("--client <name>", "which of the policy's profiles holds for the client that starts this host")
    .addOption(
      new Option("--log-level <level>", "how much is said on stderr (default: the policy's logging.level)").choices(
        LEVELS,
      ),
    )
    .option("--metrics-port <number>", "serve /metrics and /healthz on this port of this machine", portNumber)
    .option("--stdio", "serve on stdin and stdout (the default, and the only way)")
    .option("--reload", "also read the policies on SIGHUP; a saved change applies at once, an invalid one never")
    .option("--observe", "enforce policy.yaml alone: decide and record what the Cedar policies would do")
    .option("--keep-arguments", "keep the arguments of calls in the ledger, for `policy suggest` and `audit replay`")
    .option("--challenge-wait <seconds>", "how long a call waits for its approval before it is answered", seconds, 45)
    .action(async (options: HostOptions) => {
      // Loaded only here: no other command needs the jail and the sandbox.
      const { runHost } = await import("../../runtime/host/run.js");
      await runHost(options);
    });
}
