// The launcher of a stdio server: gives up the rights that its one line of input names, reports what is in force, and
// then becomes the server. It leaves no process of its own behind.

import type { ChildProcess, SendHandle } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { accessSync, closeSync, constants, mkdirSync, readSync, writeSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { errnoName } from "../../paths/native.js";
import { coverTree, TERMINALS } from "../confine/cover.js";
import { closeInherited } from "../confine/descriptors.js";
import { type FileRules, restrictAbstractSockets, restrictFiles, rulesAround, SCOPES } from "../confine/landlock.js";
import { dieWithParent, dropRights, forbidNewPrivileges } from "../confine/privileges.js";
import { seccompProgram } from "../confine/seccomp.js";
import { CLONE, type Kernel, kernel, LIMIT, noted } from "../confine/syscalls.js";
import { enterView } from "../confine/view.js";
import { observingProgram } from "./notify.js";
import {
  LAUNCH_FD,
  type LaunchMessage,
  type LaunchReport,
  type ListenerMessage,
  missingForServer,
  NAME_SERVER,
  type ServerProtections,
  type StrictPlan,
} from "./types.js";

/** Landlock's version that covers truncation. */
const TRUNCATION = 3;
/** An account that every machine has, `"nobody"`; without a mount namespace no other user can be given one. */
const UNPRIVILEGED = { uid: 65_534, gid: 65_534 };
const MAX_MESSAGE_BYTES = 64_000_000;
const MAX_FILE_BYTES = 1_000_000_000;

await launch();

async function launch(): Promise<void> {
  try {
    const message = readMessage();
    const calls = kernel();
    if (calls === undefined) throw new Error("koffi is not available here");
    const isRoot = process.geteuid?.() === 0 && !message.inUserNamespace;
    const notes: string[] = [];
    const network = message.strict === undefined ? "machine" : await openNetwork(calls, message.strict, notes);
    const protections = confineServer(calls, message, network, notes);
    const missing = message.mode === "required" ? missingForServer(protections, isRoot) : [];
    if (missing.length > 0) {
      const why = [...missing.map((what) => `${what} is missing`), ...protections.notes].join("; ");
      throw new Error(`this machine does not give what \`sandbox: required\` asks for: ${why}`);
    }
    const [program = ""] = message.argv;
    accessSync(program, constants.X_OK);
    if (message.strict?.profile.observe === true) beObserved(calls, protections.notes as string[]);
    report({ kind: "ready", protections });
    closeSync(LAUNCH_FD);
    const { strict } = message;
    const env = strict === undefined ? message.env : { ...message.env, TMPDIR: temporaryOf(protections, strict) };
    const failed = calls.execute(program, message.argv, env);
    writeSync(2, `${program} cannot be run: ${errnoName(failed)}\n`);
    process.exit(126);
  } catch (error) {
    report({ kind: "refused", reason: error instanceof Error ? error.message : String(error) });
    process.exit(125);
  }
}

function readMessage(): LaunchMessage {
  const chunks: Buffer[] = [];
  let length = 0;
  for (;;) {
    const chunk = Buffer.alloc(65_536);
    const read = readSync(LAUNCH_FD, chunk);
    if (read === 0) throw new Error("the gateway ended before it sent the launch message");
    const end = chunk.subarray(0, read).indexOf(10);
    chunks.push(chunk.subarray(0, end < 0 ? read : end));
    if (end >= 0) return JSON.parse(Buffer.concat(chunks).toString()) as LaunchMessage;
    length += read;
    if (length > MAX_MESSAGE_BYTES) throw new Error("the launch message is too long");
  }
}

/** From here on each call that names a path waits for the gateway. */
function beObserved(calls: Kernel, notes: string[]): void {
  const program = observingProgram(process.arch);
  const fd = program === undefined ? -1 : calls.seccompListener(program);
  if (fd < 0) {
    notes.push(`observe: ${program === undefined ? `no table for ${process.arch}` : errnoName(fd)}`);
    return;
  }
  report({ kind: "listener", fd });
  readSync(LAUNCH_FD, Buffer.alloc(1));
}

function report(answer: LaunchReport | ListenerMessage): void {
  writeSync(LAUNCH_FD, `${JSON.stringify(answer)}\n`);
}

/** With a view /tmp is the server's own; without, it is the machine's, and the server has a directory in its home. */
function temporaryOf({ files }: ServerProtections, { home }: StrictPlan): string {
  if (files === "view") return "/tmp";
  const path = join(home, "tmp");
  mkdirSync(path, { recursive: true });
  return path;
}

/**
 * A network namespace of the server's own. Its listening sockets go to the gateway, which connects what comes in with the
 * hosts of the profile; nothing else leads outside. Returns what the server has.
 */
async function openNetwork(
  calls: Kernel,
  { network, ports }: StrictPlan,
  notes: string[],
): Promise<StrictPlan["network"]> {
  if (network === "machine") return network;
  const isOwn =
    noted(notes, "network namespace", calls.unshare(CLONE.NEWNET | CLONE.NEWIPC)) &&
    noted(notes, "loopback", calls.startLoopback());
  if (network === "off") return "off";
  try {
    if (isOwn) await handOver(ports);
    return isOwn ? "hosts" : "off";
  } catch (error) {
    notes.push(`network: ${error instanceof Error ? error.message : String(error)}`);
    return "off";
  } finally {
    process.disconnect?.();
  }
}

async function handOver(ports: readonly number[]): Promise<void> {
  const names = createSocket("udp4");
  names.bind(NAME_SERVER, "127.0.0.1");
  await once(names, "listening");
  await given("names", names);
  for (const port of ports) {
    const server = createServer();
    server.listen(port, "0.0.0.0");
    await once(server, "listening");
    await given("port", server);
  }
}

/** Resolves when the gateway has it. */
async function given(kind: string, handle: SendHandle): Promise<void> {
  const taken = once(process, "message");
  (process as unknown as ChildProcess).send(kind, handle);
  await taken;
}

/** What the machine does not give is in `notes`. */
function setLimits(calls: Kernel, message: LaunchMessage, notes: string[]): string[] {
  const { strict, limitedByCgroup } = message;
  if (strict === undefined) return [];
  const { memoryBytes, processes } = strict.profile;
  const wanted: [name: string, resource: number, value: number][] = [
    ["memory of a process", LIMIT.DATA, memoryBytes],
    ["processes", LIMIT.NPROC, processes],
    ["size of a file", LIMIT.FSIZE, MAX_FILE_BYTES],
    ["core dumps", LIMIT.CORE, 0],
  ];
  const set = wanted.filter(([name, resource, value]) => noted(notes, name, calls.setLimit(resource, value)));
  return [...limitedByCgroup.map((name) => `${name} of all processes`), ...set.map(([name]) => name)];
}

function confineServer(
  calls: Kernel,
  message: LaunchMessage,
  network: StrictPlan["network"],
  notes: string[],
): ServerProtections {
  const gaps: string[] = [];
  const { strict } = message;
  closeInherited([LAUNCH_FD]);
  const covered = coverFiles(calls, message, notes);
  // By its name, after covering: the directory this process started in may lie below a covered one.
  process.chdir(message.cwd);
  const noNewPrivileges = forbidNewPrivileges(calls);
  const landlock = covered === undefined ? closeFiles(calls, message, notes, gaps) : 0;
  if (covered !== undefined && !covered.hasProc) gaps.push("names of other processes can be listed in /proc");
  if (landlock < SCOPES && !restrictAbstractSockets(calls)) {
    gaps.push("sockets with abstract names of other processes can be reached (closed by Linux 6.12 with Landlock)");
  }
  const hasCapabilities = message.user !== undefined || message.inUserNamespace;
  const wanted = message.user === undefined || covered !== undefined ? message.user : UNPRIVILEGED;
  const user = hasCapabilities
    ? dropRights(calls, { user: wanted, bypassModes: "owner", keepAdmin: false }, notes)
    : "same";
  const isHeld = message.inPidNamespace || landlock >= SCOPES;
  const isOffByFilter = network === "off" && notes.some((note) => /^(network|loopback)/.test(note));
  const limits = setLimits(calls, message, notes);
  const program = seccompProgram(process.arch, {
    network: !isOffByFilter,
    hasOwnSocketNames: true,
    changesMetadataByName: true,
    holdsSignals: isHeld,
    guardsTruncation: covered !== undefined || landlock >= TRUNCATION,
  });
  if (program === undefined) notes.push(`seccomp: no table for ${process.arch}`);
  const seccomp = program !== undefined && noted(notes, "seccomp", calls.seccompFilter(program));
  dieWithParent(calls);
  return {
    mode: message.mode,
    files:
      covered !== undefined ? (strict === undefined ? "mount-namespace" : "view") : landlock > 0 ? "landlock" : "none",
    processes: message.inPidNamespace ? "pid-namespace" : landlock >= SCOPES ? "landlock" : "none",
    user,
    seccomp,
    noNewPrivileges,
    network,
    limits,
    profile: strict?.profile,
    notes,
    gaps,
  };
}

function coverFiles(calls: Kernel, message: LaunchMessage, notes: string[]): { readonly hasProc: boolean } | undefined {
  if (message.withoutMounts) return undefined;
  if (!noted(notes, "mount namespace", calls.unshare(CLONE.NEWNS))) return undefined;
  try {
    const { strict, inPidNamespace } = message;
    if (strict !== undefined) {
      const { confinement, home, texts, links } = strict;
      const view = { confinement, actsAsOwner: false, hasOwnProcesses: inPidNamespace, home, texts, links };
      return enterView(calls, view, notes);
    }
    return coverTree(calls, { ...message, home: message.env.HOME ?? "/" }, notes);
  } catch (error) {
    const why = `mount namespace: ${error instanceof Error ? error.message : String(error)}`;
    // Half a view is none, and what it has replaced cannot be had back.
    if (message.strict !== undefined) throw new Error(why);
    notes.push(why);
    return undefined;
  }
}

/** Returns the version of Landlock in force, or 0. */
function closeFiles(calls: Kernel, message: LaunchMessage, notes: string[], gaps: string[]): number {
  const { strict } = message;
  const rules =
    strict === undefined
      ? rulesAround([...message.hidden, ...message.absent, TERMINALS], message.readOnly, message.own)
      : rulesOf(strict);
  const version = restrictFiles(calls, rules, true);
  if (typeof version === "string") {
    notes.push(`Landlock: ${version}`);
    return 0;
  }
  if (strict !== undefined) {
    gaps.push(
      "names, sizes and times of other files can be asked for",
      "there is no /proc, and TMPDIR instead of /tmp",
    );
    return version;
  }
  gaps.push(
    "names in the gateway's directories can be listed, and command lines of other processes read",
    "files cannot be made in the home directory itself, nor in the directories that lead to the gateway's own",
    "pseudo-terminals cannot be opened",
  );
  return version;
}

function rulesOf({ confinement: { system, readableRoots, writableRoots, files, devices } }: StrictPlan): FileRules {
  return {
    read: files,
    execute: [...system, ...readableRoots, ...writableRoots],
    write: devices,
    writeUnlinked: writableRoots,
  };
}
