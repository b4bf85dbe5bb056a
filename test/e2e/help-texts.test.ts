// The help of every command is docs/reference/cli.md: a change of a word is seen in review. HELP=1 writes the page.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Command } from "commander";
import { expect, it } from "vitest";
import { root } from "./serving.js";

const PAGE = join(root, "docs", "reference", "cli.md");
const HEAD = `# Command line

After this page you know every command with its options. Examples and exit codes are in \`portcullis help COMMAND\`.
`;

interface Commands {
  readonly COMMANDS: Readonly<Record<string, Readonly<Record<string, string>>>>;
  addCommand(program: Command, name: string): Promise<boolean>;
}

function helpOf(command: Command, path: string): string[] {
  const text = command.configureHelp({ helpWidth: 100 }).helpInformation().trimEnd();
  // Where the host keeps its files depends on the machine.
  const own = `## ${path}\n\n\`\`\`text\n${text.replaceAll(/\(default: +\/\S+\)/g, "(default: PATH)").replaceAll(/\(default:\s+\/\S+\)/g, "(default: PATH)")}\n\`\`\``;
  return [own, ...command.commands.flatMap((each) => helpOf(each as Command, `${path} ${each.name()}`))];
}

it("prints for every command the help that was reviewed", async () => {
  const { COMMANDS, addCommand }: Commands = await import(join(root, "dist", "cli", "commands.js"));
  const program = new Command("portcullis");
  const names = Object.values(COMMANDS).flatMap((group) => Object.keys(group));
  for (const name of names) {
    if (!program.commands.some((each) => each.name() === name))
      expect(await addCommand(program, name), name).toBe(true);
  }
  const texts = names.flatMap((name) => {
    const command = program.commands.find((each) => each.name() === name);
    return helpOf(command as Command, name);
  });
  const all = `${HEAD}\n${texts.join("\n\n")}\n`;
  if (process.env.HELP === "1") writeFileSync(PAGE, all);
  expect(all).toBe(readFileSync(PAGE, "utf8"));
});
