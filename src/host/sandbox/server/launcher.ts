// The launcher of a stdio server: gives up the rights that its one line of input names, reports what is in force, and
// then becomes the server. It leaves no process of its own behind.

import { accessSync, closeSync, constants, readSync, writeSync } from "node:fs";
import { coverTree, TERMINALS } from "../confine/cover.js";
import { closeInherited } from "../confine/descriptors.js";
import { restrictAbstractSockets, restrictFiles, rulesAround, SCOPES } from "../confine/landlock.js";
import { dieWithParent, dropRights, forbidNewPrivileges } from "../confine/privileges.js";
import { seccompProgram } from "../confine/seccomp.js";
import { CLONE, type Kernel, kernel, noted } from "../confine/syscalls.js";
import { errnoName } from "../../paths/native.js";
import { LAUNCH_FD, type LaunchMessage, type LaunchReport, missingForServer, type ServerProtections } from "./types.js";

/** Landlock's version that covers truncation. */
const TRUNCATION = 3;
/** An account that every machine has, `"nobody"`; without a mount namespace no other user can be given one. */
const UNPRIVILEGED = { uid: 65_534, gid: 65_534 };
const MAX_MESSAGE_BYTES = 64_000_000;

launch();

function launch(): void {
  try {
    const message = readMessage();
    const calls = kernel();
    if (calls === undefined) throw new Error("koffi is not available here");
    const isRoot = process.geteuid?.() === 0 && !message.inUserNamespace;
    const protections = confineServer(calls, message);
    const missing = message.mode === "required" ? missingForServer(protections, isRoot) : [];
    if (missing.length > 0) {
      const why = [...missing.map((what) => `${what} is missing`), ...protections.notes].join("; ");
      throw new Error(`this machine does not give what \`sandbox: required\` asks for: ${why}`);
    }
    const [program = ""] = message.argv;
    accessSync(program, constants.X_OK);
    report({ kind: "ready", protections });
    closeSync(LAUNCH_FD);
    const failed = calls.execute(program, message.argv, message.env);
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

function report(answer: LaunchReport): void {
  writeSync(LAUNCH_FD, `${JSON.stringify(answer)}\n`);
}

function confineServer(calls: Kernel, message: LaunchMessage): ServerProtections {
  const notes: string[] = [];
  const gaps: string[] = [];
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
  const program = seccompProgram(process.arch, {
    network: true,
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
    files: covered !== undefined ? "mount-namespace" : landlock > 0 ? "landlock" : "none",
    processes: message.inPidNamespace ? "pid-namespace" : landlock >= SCOPES ? "landlock" : "none",
    user,
    seccomp,
    noNewPrivileges,
    notes,
    gaps,
  };
}

function coverFiles(calls: Kernel, message: LaunchMessage, notes: string[]): { readonly hasProc: boolean } | undefined {
  if (message.withoutMounts) return undefined;
  if (!noted(notes, "mount namespace", calls.unshare(CLONE.NEWNS))) return undefined;
  try {
    return coverTree(calls, { ...message, home: message.env.HOME ?? "/" }, notes);
  } catch (error) {
    notes.push(`mount namespace: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}

/** Returns the version of Landlock in force, or 0. */
function closeFiles(calls: Kernel, message: LaunchMessage, notes: string[], gaps: string[]): number {
  const version = restrictFiles(
    calls,
    rulesAround([...message.hidden, ...message.absent, TERMINALS], message.readOnly, message.own),
    true,
  );
  if (typeof version === "string") {
    notes.push(`Landlock: ${version}`);
    return 0;
  }
  gaps.push(
    "names in the gateway's directories can be listed, and command lines of other processes read",
    "files cannot be made in the home directory itself, nor in the directories that lead to the gateway's own",
    "pseudo-terminals cannot be opened",
  );
  return version;
}
