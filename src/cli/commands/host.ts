import type { Command } from "commander";
import type { HostOptions } from "../host-run.js";

export function addHost(program: Command): void {
  program
    .command("host")
    .description("serve fs.read, fs.write and cmd.run on stdio, as policy.yaml allows, and nothing else")
    .requiredOption("--config <file>", "the policy")
    .option("--state <folder>", "where the ledger is kept (outside every root of the policy)")
    .option("--log-level <level>", "how much is said on stderr", "notice")
    .option("--stdio", "serve on stdin and stdout (the default, and the only way)")
    .option("--reload", "read the policy again on SIGHUP")
    .action(async (options: HostOptions) => {
      // Loaded only here: no other command needs the jail and the sandbox.
      const { runHost } = await import("../host-run.js");
      await runHost(options);
    });
}
