// The commands of the program. Each is loaded when it is used; most need only a few modules.

import type { Command } from "commander";

/** What each command does, in the groups and the order of the program's help. */
export const COMMANDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "Start:": {
    demo: "show a permit, a denial, an approval and a verified ledger in a minute",
    serve: "serve applications, a module, or the demonstration tools",
    host: "serve the three hardened host tools on stdio",
    import: "import the servers of an MCP client",
    console: "open the console in a browser, signed in",
    connect: "connect an MCP client to a gateway",
    disconnect: "restore the configuration of a client",
  },
  "Call tools:": {
    ls: "list the tools that may be called",
    call: "call a tool",
    catalog: "print schemas, tags and examples of tools",
  },
  "Decide:": {
    policy: "check, explain, test, compare and suggest policies",
    flow: "label what results carry and what calls do",
    approvals: "list and open calls that wait for approval",
    approve: "approve a call",
    deny: "deny a call with a reason",
    pin: "review changed tool definitions of servers",
    lattice: "analyze which agent can reach what",
  },
  "Audit:": { audit: "read, verify, prove, export and replay ledgers" },
  "Applications:": {
    app: "list, change and apply applications",
    key: "create, list, rotate and revoke API keys",
    secret: "store and list secrets of applications",
    server: "show the state of servers",
    export: "write applications to portcullis.yaml",
  },
  "Host:": {
    init: "write a first policy for the host",
    cmd: "list and change the commands that the host permits",
    run: "send JSON-RPC messages to a host",
  },
  "Operate:": {
    halt: "deny calls at once, at every gateway, until they are resumed",
    resume: "end a halt",
    doctor: "check this machine, the data directory and the host",
    backup: "write or verify a backup",
    restore: "restore a backup",
    rotate: "replace keys and tokens of the gateway",
    store: "show or lower the level of the store's tables",
    install: "install Portcullis for this user",
    update: "update or roll back an installation",
  },
  "Develop:": {
    gen: "generate typed clients and servers from a manifest",
    completion: "print a completion script for a shell",
  },
};

type AddCommands = (program: Command) => void;

const FILES: readonly (readonly [commands: string, load: () => Promise<AddCommands>])[] = [
  ["demo", async () => (await import("./commands/demo.js")).addDemo],
  ["serve", async () => (await import("./commands/serve.js")).addServe],
  ["host init cmd run", async () => (await import("./commands/host.js")).addHostCommands],
  ["import connect disconnect", async () => (await import("./commands/clients.js")).addClientCommands],
  ["ls call catalog", async () => (await import("./commands/call.js")).addCallCommands],
  ["policy", async () => (await import("./commands/policy.js")).addPolicyCommands],
  ["flow", async () => (await import("./commands/flow.js")).addFlowCommands],
  ["approvals approve deny console", async () => (await import("./commands/approvals.js")).addApprovalCommands],
  ["lattice", async () => (await import("./commands/lattice.js")).addLatticeCommands],
  ["audit", async () => (await import("./commands/audit.js")).addAuditCommands],
  ["app export", async () => (await import("./commands/app.js")).addAppCommands],
  ["key", async () => (await import("./commands/key.js")).addKeyCommands],
  ["secret", async () => (await import("./commands/secret.js")).addSecretCommands],
  ["server pin", async () => (await import("./commands/server.js")).addServerCommands],
  ["halt resume", async () => (await import("./commands/halt.js")).addHaltCommands],
  ["doctor", async () => (await import("./commands/doctor.js")).addDoctor],
  ["backup restore store", async () => (await import("./commands/store.js")).addStoreCommands],
  ["rotate", async () => (await import("./commands/rotate.js")).addRotateCommands],
  ["install update", async () => (await import("./commands/install.js")).addInstallCommands],
  ["gen", async () => (await import("./commands/gen.js")).addGen],
  ["completion", async () => (await import("./commands/completion.js")).addCompletion],
];

/** Adds a command, with those of its file, to `program`. Returns false where there is no such command. */
export async function addCommand(program: Command, name: string): Promise<boolean> {
  const file = FILES.find(([commands]) => commands.split(" ").includes(name));
  if (file) (await file[1]())(program);
  return file !== undefined;
}
