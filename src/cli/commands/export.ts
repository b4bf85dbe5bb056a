import type { Command } from "commander";
import type { ExportOptions } from "../declared/export.js";
import { withStoreOptions } from "../store/open.js";

export function addExport(program: Command): void {
  withStoreOptions(program.command("export"))
    .description("applications as portcullis.yaml, without secrets; `app apply` reads it")
    .option("--app <name...>", "only these")
    .option("--out <folder>", "write it there, with the policies beside it")
    .option("--force", "over files that are there")
    .action(async (options: ExportOptions, command: Command) => {
      const { exportApplications } = await import("../declared/export.js");
      await exportApplications(command, options);
    });
}
