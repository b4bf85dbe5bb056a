import { type Command, Option } from "commander";
import { withHostFiles } from "../host-config/files.js";
import { portNumber } from "../options.js";
import type { HostOptions } from "../host-run.js";

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
    .option("--reload", "read the policy again on SIGHUP; one with a mistake is refused and the old one stays")
    .action(async (options: HostOptions) => {
      // Loaded only here: no other command needs the jail and the sandbox.
      const { runHost } = await import("../host-run.js");
      await runHost(options);
    });
}
