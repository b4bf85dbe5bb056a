import type { Command } from "commander";
import { CliError } from "../../lib/exit.js";
import { tableOf } from "../../lib/print.js";
import { type HaltFlags, haltedHere, haltRows, putHalt, resumeHalts } from "../../runtime/halt-stores.js";
import { outFor } from "../../runtime/options.js";
import { type StoreOptions, withStoreOptions } from "../../runtime/store/open.js";

export function addHaltCommands(program: Command): void {
  const halt = program.command("halt").description("deny calls at once, at every gateway, until they are resumed");
  withTarget(halt.command("put", { isDefault: true }))
    .description("halt calls; without a flag every call")
    .option("--reason <text>", "reason, which callers read with the name of who halted", "")
    .action(async (options: HaltFlags, command: Command) => {
      const { halt: made, note } = await putHalt(command, options);
      if (note) outFor(command).note(note);
      outFor(command).data(made, () => `halted: ${made.target}; end it with \`portcullis resume\` and the same flags`);
    });
  withStoreOptions(halt.command("ls"))
    .description("list what is halted")
    .action(async (options: StoreOptions, command: Command) => {
      const { halts, files } = await haltedHere(command, options);
      outFor(command).data({ halts, files }, () =>
        [tableOf(halts, "no halt in the store", haltRows), ...files.map((file) => `halted by file: ${file}`)].join(
          "\n",
        ),
      );
    });
  withTarget(program.command("resume"))
    .description("end the halt with the same flags; without a flag the halt of every call")
    .option("--all", "end every halt of the store")
    .action(async (options: HaltFlags, command: Command) => {
      const { resumed, left, target } = await resumeHalts(command, options);
      const still = left.length === 0 ? "" : `still halted: ${left.join(", ")}`;
      if (resumed.length === 0 && !options.all)
        throw new CliError(`${target} is not halted`, undefined, still || undefined);
      outFor(command).data({ resumed, still_halted: left }, () =>
        `resumed: ${resumed.join(", ") || "nothing"}\n${still}`.trim(),
      );
    });
}

function withTarget(command: Command): Command {
  return withStoreOptions(command)
    .option("--app <app>", "calls of this application")
    .option("--agent <agent>", "calls of this agent, and of agents that it delegated to; also APP/AGENT")
    .option("--server <server>", "calls to this server, and its requests to clients")
    .option("--tool <tool>", "calls of this tool; a * at the end matches every rest");
}
