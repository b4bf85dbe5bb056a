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
const EXAMPLES: Readonly<Record<string, readonly Example[]>> = {
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
  "policy check": [["portcullis policy check --policy new.cedar", "validate a file before it is used"]],
  "policy explain": [
    [`portcullis policy explain notes.write '{"title":"demo/a","text":"hi"}'`, "by which rule and which values"],
  ],
  "policy test": [["portcullis policy test cases.yaml", "run the cases of a file; exit 1 when one fails"]],
  "policy diff": [["portcullis policy diff old.cedar new.cedar --recorded", "compare two policies on recorded calls"]],
  "policy suggest": [["portcullis policy suggest > suggested.cedar", "write rules for the calls that were recorded"]],
  flow: [["portcullis flow suggest --app team > labels.yaml", "write labels to review"]],
  "flow suggest": [["portcullis flow suggest", "print labels for the tools that are served"]],
  approvals: [
    ["portcullis approvals ls", "list the calls that wait"],
    ["portcullis approvals open", "open what waits in the console, signed in"],
  ],
  approve: [["portcullis approve ch_ID", "approve the call once"]],
  console: [["portcullis console", "open the console in a browser, signed in"]],
  deny: [["portcullis deny ch_ID --reason 'not today'", "deny it; the agent reads the reason"]],
  audit: [
    ["portcullis audit tail", "show the last records"],
    ["portcullis audit verify", "verify every ledger of the data directory"],
  ],
  "audit replay": [["portcullis audit replay new.cedar", "decide the recorded calls again by another policy"]],
  "audit prove": [["portcullis audit prove 3 -o proof.json", "prove one record; `audit tail` shows the numbers"]],
  demo: [["portcullis demo --yes", "run all of it without questions"]],
  catalog: [["portcullis catalog --openapi > openapi.json", "write an OpenAPI document of the tools"]],
  pin: [["portcullis pin ls local files", "show how the tools of a server have changed"]],
  lattice: [["portcullis lattice check workflow.yaml", "find every way to a tool that an agent must not have"]],
  server: [["portcullis server ls", "show which servers run, and their last errors"]],
  export: [["portcullis export > portcullis.yaml", "write every application to a file"]],
  init: [["portcullis init host", "write a policy and a client configuration"]],
  cmd: [["portcullis cmd add git", "permit git with its curated profile"]],
  run: [["portcullis run requests.jsonl", "send the JSON-RPC requests of a file to the host"]],
  halt: [
    ["portcullis halt --tool 'shell.*' --reason 'under review'", "deny these calls"],
    ["portcullis halt", "deny every call"],
  ],
  resume: [["portcullis resume --tool 'shell.*'", "permit these calls again, as policy decides"]],
  doctor: [
    ["portcullis doctor", "check everything"],
    ["portcullis doctor --app blog", "check one application and its servers"],
  ],
  backup: [["portcullis backup create backups/", "back up while the gateway runs"]],
  restore: [["portcullis --dir restored restore backups/FILE", "restore into a new data directory"]],
  rotate: [["portcullis rotate operator-token", "replace the token that approves calls"]],
  store: [["portcullis store level", "show the level of the store's tables"]],
  install: [["portcullis install --dest ~/.local", "install this version for this user"]],
  update: [["portcullis update", "install the next signed release"]],
  gen: [["portcullis gen ts tools.json --out src/tools", "write typed callers and handlers"]],
  app: [["portcullis app apply portcullis.yaml --dry-run", "show what a file would change"]],
  key: [["portcullis key add blog --name ci --allow 'invoke(*)' list", "create an API key"]],
  secret: [["portcullis secret set blog TOKEN < token.txt", "store a secret"]],
  completion: [["portcullis completion bash > ~/.local/share/bash-completion/completions/portcullis", "install it"]],
};

export const EXIT_HELP = `
Exit codes: 0 ok, 1 error, 2 denied, 3 invalid policy, 4 not authenticated,
            5 waits for approval, 64 wrong usage
`;

/** Also of the commands below it; a mistake in the use of one shows how it is used. */
export function addExamples(command: Command, path: string = command.name()): void {
  const own = Object.hasOwn(EXAMPLES, path) ? EXAMPLES[path] : undefined;
  if (own) command.addHelpText("after", examplesText(own));
  const example = own?.[0] ? `example: ${own[0][0]}\n` : "";
  command.showHelpAfterError(
    `usage: portcullis ${path} ${command.usage()}\n${example}(portcullis ${path} --help shows more)`,
  );
  for (const each of command.commands) addExamples(each, `${path} ${each.name()}`);
}

const MAX_COLUMNS = 80;

export function examplesText(examples: readonly Example[]): string {
  const longest = Math.max(...examples.map(([line]) => line.length));
  const isWide = examples.some(([, what]) => longest + what.length + 4 > MAX_COLUMNS);
  const lines = examples.map(([line, what]) =>
    isWide ? `  ${line}\n      ${what}` : `  ${line.padEnd(longest)}  ${what}`,
  );
  return `\nExamples:\n${lines.join("\n")}`;
}
