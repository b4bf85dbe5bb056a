// What `doctor` states about the sandbox of stdio servers: what this machine gives, and which servers run without it.

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { ServerProtections } from "../host/index.js";
import { ServerProcess } from "../upstream/index.js";
import type { Finding } from "../lib/finding.js";
import { STORE_FILE } from "./data-directory.js";
import { allPages, openStore, pageAfter } from "./store/open.js";

const REMEDY =
  "run the gateway on Linux with user namespaces or Landlock, or as root; docs/platforms.md lists what each gives";

/** Starts a program that does nothing, as a server would be started. */
export async function serverSandboxFindings(dir: string, app?: string): Promise<Finding[]> {
  const servers = (await stdioServers(dir)).filter(({ name }) => app === undefined || name.startsWith(`${app}/`));
  const found = await probe(dir);
  const machine: Finding = {
    check: "server sandbox",
    // Only a server that asks for it cannot run without.
    ok: found.files !== "none" || !servers.some(({ mode }) => mode === "required"),
    detail: [sandboxText(found), ...found.gaps.map((gap) => `open: ${gap}`), ...found.notes].join("; "),
    remedy: REMEDY,
  };
  return [machine, ...servers.map((server) => finding(server, found))];
}

interface StdioServer {
  readonly name: string;
  readonly mode: ServerProtections["mode"];
}

function finding({ name, mode }: StdioServer, machine: ServerProtections): Finding {
  const isRefused = mode === "required" && machine.files === "none";
  return {
    check: `server ${name}`,
    ok: !isRefused,
    detail: isRefused
      ? "sandbox: required, which this machine cannot give: it is not started"
      : sandboxText({ ...machine, mode }),
    remedy: REMEDY,
  };
}

async function probe(dir: string): Promise<ServerProtections> {
  const sandbox = { mode: "preferred", hidden: [dir], readOnly: [] } as const;
  const limits = { leaveMs: 1_000, graceMs: 1_000, stderrBytes: 4_096 };
  const target = { transport: "stdio", command: process.execPath, args: ["-e", ""], sandbox } as const;
  const server = await ServerProcess.start(target, limits);
  await server.stop();
  return server.protections;
}

async function stdioServers(dir: string): Promise<StdioServer[]> {
  const file = join(dir, STORE_FILE);
  if (!existsSync(file)) return [];
  const storage = await openStore(dir, undefined, { sweepMs: 0 });
  try {
    const applications = await allPages((after) => storage.applications.list(pageAfter(after)));
    return applications.flatMap(({ id, document }) =>
      Object.entries(document.servers ?? {})
        .filter(([, entry]) => entry.command !== undefined)
        .map(([name, entry]) => ({ name: `${id}/${name}`, mode: entry.sandbox ?? "preferred" })),
    );
  } finally {
    await storage.close();
  }
}

/** `sandboxText` states what is in force, and first of all when nothing is. */
export function sandboxText({ mode, files, processes, user, seccomp }: ServerProtections): string {
  if (mode === "off") return "OFF: the server has every right of the gateway's user";
  if (files === "none") return `NONE (${mode}): the server has every right of the gateway's user`;
  const as = user === "same" ? "the gateway's user" : `user ${user}`;
  return `${mode}: files by ${files}, processes by ${processes}, ${as}, ${seccomp ? "seccomp" : "no seccomp"}`;
}
