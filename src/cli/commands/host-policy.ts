// `portcullis policy …` for the host's policy.yaml. The jail and the sandbox are loaded only when one of these runs.

import type { Command } from "commander";
import { type HostFileOptions, hostFiles, withHostFiles } from "../../runtime/host/config/files.js";
import { wholeNumber } from "../../runtime/host/config/numbers.js";
import type { WriteRuleOptions } from "../../runtime/host/config/policy-actions.js";

const actions = () => import("../../runtime/host/config/policy-actions.js");

export function addHostPolicyCommands(policy: Command): void {
  withHostFiles(policy.command("show"))
    .description("print the host's policy.yaml (--json: as it holds on this machine)")
    .action(async (options: HostFileOptions, command: Command) => {
      (await actions()).showPolicy(command, hostFiles(options));
    });

  policy
    .command("schema")
    .description("print the JSON Schema of policy.yaml, for editors and checks")
    .action(async () => {
      const { policySchemaText } = await import("../../host/index.js");
      process.stdout.write(policySchemaText());
    });

  withHostFiles(policy.command("validate"))
    .description("is the host's policy.yaml right? exit code 3 when not")
    .action(async (options: HostFileOptions, command: Command) => {
      (await actions()).validatePolicy(command, hostFiles(options));
    });

  withHostFiles(policy.command("edit"))
    .description("open a copy of policy.yaml in $EDITOR; it takes the old one's place only when it is right")
    .action(async (options: HostFileOptions, command: Command) => {
      await (await actions()).editInEditor(command, hostFiles(options));
    });

  withHostFiles(policy.command("add-root <folder>"))
    .description("let the agent read this folder and everything below it")
    .option("--write", "let it write there as well")
    .action(async (folder: string, options: HostFileOptions & { write?: boolean }, command: Command) => {
      (await actions()).addRoot(command, hostFiles(options), folder, options.write === true);
    });

  withHostFiles(policy.command("add-write <folder>"))
    .description("let the agent write in this folder")
    .option("--no-recursive", "not in the folders below it")
    .option("--only-replace", "files that are there may be replaced, none created")
    .option("--max-file-bytes <number>", "the largest file", wholeNumber)
    .action(async (folder: string, options: HostFileOptions & WriteRuleOptions, command: Command) => {
      (await actions()).addWrite(command, hostFiles(options), folder, options);
    });
}
