// Examples and exit codes at the end of help.

import type { Command } from "commander";

/** A command line and what it does. */
type Example = readonly [string, string];

export const ROOT_EXAMPLES: readonly Example[] = [
  ["portcullis demo --yes", "see a permit, a denial and an approval"],
  ["portcullis import --from claude-desktop", "import the servers of a client"],
  ["portcullis serve", "serve them on http://127.0.0.1:7420/mcp"],
  ["portcullis help call", "show the help of a command"],
];

/** By the path of the command. */
export const EXAMPLES: Readonly<Record<string, readonly Example[]>> = {
  serve: [
    ["portcullis serve", "serve the applications of the data directory"],
    ["portcullis serve ./tools.mjs --port 8080", "serve the tools of a module"],
    ["portcullis serve --observe --keep-arguments", "record calls for `policy suggest`, enforce nothing"],
  ],
  host: [["portcullis host --config policy.yaml", "serve the host tools under this policy"]],
  import: [
    ["portcullis import --from cursor --dry-run", "show what would be imported"],
    ["portcullis import --from server.mcpb --yes", "import a bundle without asking"],
  ],
  connect: [
    ["portcullis connect claude-code", "let the client start a gateway"],
    ["portcullis connect vscode --url http://127.0.0.1:7420/mcp", "use a gateway that runs"],
  ],
  disconnect: [["portcullis disconnect claude-code", "restore its configuration"]],
  ls: [["portcullis ls --url https://gate.example/mcp --key-env GATE_KEY", "list the tools of a remote gateway"]],
  call: [
    [`portcullis call math.add '{"a":1,"b":2}'`, "call a tool"],
    ["portcullis call notes.write - < note.json", "read the arguments from standard input"],
  ],
  policy: [
    ["portcullis policy check", "validate the policies in force"],
    [`portcullis policy explain shell.run '{}' --agent local/cli`, "explain a decision"],
  ],
  approve: [["portcullis approve ch_ID", "approve the call once"]],
  deny: [["portcullis deny ch_ID --reason 'not today'", "deny it; the agent reads the reason"]],
  audit: [
    ["portcullis audit tail", "show the last records"],
    ["portcullis audit verify", "verify every ledger of the data directory"],
  ],
  app: [["portcullis app apply portcullis.yaml --dry-run", "show what a file would change"]],
  key: [["portcullis key add blog --name ci --allow 'invoke(*)' list", "create an API key"]],
  secret: [["portcullis secret set blog TOKEN < token.txt", "store a secret"]],
  completion: [["portcullis completion bash > ~/.local/share/bash-completion/completions/portcullis", "install it"]],
};

export const EXIT_HELP = `
Exit codes: 0 ok, 1 error, 2 denied, 3 invalid policy, 4 not authenticated,
            5 waits for approval, 64 wrong usage
`;

/** Options of a command with many, by the heading that they stand under. */
export function groupOptions(command: Command, groups: Readonly<Record<string, string>>): Command {
  for (const [heading, names] of Object.entries(groups)) {
    for (const name of names.split(" ")) {
      command.options.find(({ long }) => long === `--${name}`)?.helpGroup(heading);
    }
  }
  return command;
}

export function addExamples(command: Command, examples: typeof EXAMPLES): void {
  const own = Object.hasOwn(examples, command.name()) ? examples[command.name()] : undefined;
  if (own) command.addHelpText("after", text(own));
}

const MAX_COLUMNS = 80;

export function text(examples: readonly Example[]): string {
  const longest = Math.max(...examples.map(([line]) => line.length));
  const isWide = examples.some(([, what]) => longest + what.length + 4 > MAX_COLUMNS);
  const lines = examples.map(([line, what]) =>
    isWide ? `  ${line}\n      ${what}` : `  ${line.padEnd(longest)}  ${what}`,
  );
  return `\nExamples:\n${lines.join("\n")}`;
}
