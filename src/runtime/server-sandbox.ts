// What `doctor` states about the sandbox of stdio servers: what this machine gives, and which servers run without it.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { destinationName, type ServerProtections } from "../host/index.js";
import type { Finding } from "../lib/finding.js";
import { ServerProcess, type UpstreamHealth } from "../upstream/index.js";
import { STORE_FILE } from "./data-directory.js";
import { sandboxOf } from "./servers.js";
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
  readonly profile?: ServerProtections["profile"];
}

function finding({ name, mode, profile }: StdioServer, machine: ServerProtections): Finding {
  const isRefused = mode === "required" && machine.files === "none";
  return {
    check: `server ${name}`,
    ok: !isRefused,
    detail: isRefused
      ? "sandbox: required, which this machine cannot give: it is not started"
      : [sandboxText({ ...machine, mode }), ...profileLines(profile)].join("; "),
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
        .map(([name, entry]) => ({ name: `${id}/${name}`, ...sandboxOf(entry) })),
    );
  } finally {
    await storage.close();
  }
}

/** `profileLines` states what a server with a profile may touch; nothing for one without. */
export function profileLines(profile: ServerProtections["profile"]): string[] {
  if (profile === undefined) return [];
  const { read, write, network, memoryBytes, processors, processes } = profile;
  const list = (paths: readonly string[]): string => (paths.length === 0 ? "nothing" : paths.join(", "));
  return [
    `reads ${list(read)} beside its code; writes ${list(write)} beside a home and a /tmp of its own`,
    `network: ${typeof network === "string" ? network : list(network)}`,
    `at most ${Math.round(memoryBytes / 1_000_000)} MB, ${processors} processors, ${processes} processes`,
  ];
}

/** `destinationLines` states where a server connected to, and where it was not let. */
export function destinationLines(destinations: ServerProtections["destinations"] = []): string[] {
  return destinations.map(
    ({ host, port, allowed, count, reason }) =>
      `${allowed ? "reached" : "refused"} ${host}${port === undefined ? "" : `:${port}`} ${count}×${reason === undefined ? "" : `: ${reason}`}`,
  );
}

/** `startRemedies` says how the profile of a server that is not ready is opened for what it needs. */
export function startRemedies(
  app: string,
  server: string,
  { state, sandbox }: Pick<UpstreamHealth, "state" | "sandbox">,
): string[] {
  if ((state !== "failed" && state !== "starting") || sandbox?.profile === undefined) return [];
  const observe = `portcullis server observe ${app} ${server}`;
  const closed = (sandbox.destinations ?? []).filter(({ allowed, refusal }) => !allowed && refusal !== "connection");
  const places = closed.map(({ host, port, refusal }) =>
    refusal === "address" && port !== undefined ? `${host}:${port}` : destinationName({ host, port }),
  );
  return [
    ...[...new Set(places)].map(
      (place) => `if it needs ${place}: \`${observe} --host ${place}\`, or name it in \`sandbox.network\``,
    ),
    `if it needs a path${closed.length > 0 ? "" : " or host"} that its profile does not name: \`${observe} --read PATH\`, or --write${closed.length > 0 ? "" : ", --host"}`,
  ];
}

/** `sandboxText` states what is in force, and first of all when nothing is. */
export function sandboxText({ mode, files, processes, user, seccomp }: ServerProtections): string {
  if (mode === "off") return "OFF: the server has every right of the gateway's user";
  if (files === "none") return `NONE (${mode}): the server has every right of the gateway's user`;
  const as = user === "same" ? "the gateway's user" : `user ${user}`;
  return `${mode}: files by ${files}, processes by ${processes}, ${as}, ${seccomp ? "seccomp" : "no seccomp"}`;
}
