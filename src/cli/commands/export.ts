import type { Command } from "commander";
import type { DeclaredExportOptions } from "../../integrations/declared/export.js";
import { withStoreOptions } from "../../runtime/store/open.js";

export function addExport(program: Command): void {
  withStoreOptions(program.command("export"))
    .description("applications as portcullis.yaml, without secrets; `app apply` reads it")
    .option("--app <name...>", "only these")
    .option("--out <folder>", "write it there, with the policies beside it")
    .option("--force", "over files that are there")
    .action(async (options: DeclaredExportOptions, command: Command) => {
      const { exportApplications } = await import("../../integrations/declared/export.js");
      await exportApplications(command, options);
    });
}
