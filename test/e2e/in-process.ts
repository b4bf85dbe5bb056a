// The built commands, run in this process: what they print, how they would end. Starting Node for each would take most
// of a test's time; that the program itself starts and ends so is for other tests.

import { join } from "node:path";
import { Command } from "commander";
import { root } from "./serving.js";

export interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

const { addCommand }: { addCommand(program: Command, name: string): Promise<boolean> } = await import(
  join(root, "dist", "cli", "commands.js")
);

/** `programOf` returns a function that runs a program with these commands. */
export async function programOf(commands: readonly string[]) {
  return async (args: readonly string[]): Promise<Ended> => {
    const program = new Command("portcullis")
      .option("--json")
      .option("--dir <folder>", "", ".portcullis")
      .exitOverride();
    for (const name of commands) await addCommand(program, name);
    const printed = { stdout: "", stderr: "" };
    const restore = (["stdout", "stderr"] as const).map((name) => {
      const { write } = process[name];
      process[name].write = ((text: string | Uint8Array) => {
        printed[name] += String(text);
        return true;
      }) as typeof write;
      return () => {
        process[name].write = write;
      };
    });
    const before = process.exitCode;
    process.exitCode = undefined;
    try {
      const code = await program.parseAsync(["node", "portcullis", ...args]).then(
        () => Number(process.exitCode ?? 0),
        (error: Error & { exitCode?: number; help?: string; code?: string }) => {
          printed.stderr += `${error.message}\n${error.help ?? ""}`;
          return error.code?.startsWith("commander.") ? 64 : (error.exitCode ?? 1);
        },
      );
      return { code, ...printed };
    } finally {
      process.exitCode = before;
      for (const undo of restore) undo();
    }
  };
}
