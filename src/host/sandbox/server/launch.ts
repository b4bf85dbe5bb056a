// How a gateway starts a stdio server in its sandbox: what stands before the command, and the launcher's report.

import type { Duplex } from "node:stream";
import { loadKoffi } from "../../../lib/index.js";
import { closeToOthers } from "../confine/privileges.js";
import { kernel } from "../confine/syscalls.js";
import { launcherEntry } from "../entry.js";
import { launchers, namespaceFlags } from "../launchers.js";
import { SANDBOX_USER } from "../plan.js";
import { planServer } from "./plan.js";
import { planStrict } from "./profile.js";
import type {
  LaunchMessage,
  LaunchReport,
  ListenerMessage,
  ServerCommand,
  ServerProtections,
  ServerSandbox,
} from "./types.js";

export interface ServerLaunch {
  /** Gives the launcher, and so the server, namespaces of its own; empty where the machine refuses them. */
  readonly namespaces: readonly string[];
  readonly program: readonly string[];
  readonly message: LaunchMessage;
}

/** git refuses repositories of another user, and every repository is, once the server has a user of its own. */
const TRUST_EVERY_OWNER = { GIT_CONFIG_COUNT: "1", GIT_CONFIG_KEY_0: "safe.directory", GIT_CONFIG_VALUE_0: "*" };

/** Why there is no sandbox at all here, or the way to start a server in one. */
export async function prepareServerLaunch(
  sandbox: ServerSandbox,
  command: ServerCommand,
): Promise<ServerLaunch | { readonly unavailable: string } | { readonly refused: string }> {
  if (process.platform !== "linux") return { unavailable: `there is no sandbox for servers on ${process.platform}` };
  if (sandbox.without?.native === true || loadKoffi() === undefined)
    return { unavailable: "koffi, by which the kernel is called, cannot be loaded here" };
  const strict = sandbox.profile === undefined ? undefined : planStrict(sandbox.profile, sandbox, command);
  if (strict !== undefined && "refused" in strict) return strict;
  const isRoot = process.geteuid?.() === 0;
  const { unshare } = await launchers();
  const hasNamespaces = unshare !== undefined && sandbox.without?.pidNamespace !== true;
  const env =
    isRoot && command.env.GIT_CONFIG_COUNT === undefined ? { ...command.env, ...TRUST_EVERY_OWNER } : command.env;
  // A profile that does not name the gateway's own directory does not show it either.
  const cwd = strict !== undefined && command.cwd === process.cwd() ? strict.home : command.cwd;
  return {
    namespaces: hasNamespaces ? [unshare, ...namespaceFlags(true)] : [],
    program: [process.execPath, launcherEntry()],
    message: {
      ...(strict === undefined ? planServer(sandbox, command) : NOTHING_COVERED),
      ...command,
      mode: sandbox.mode,
      env: strict === undefined ? env : { ...env, HOME: strict.home, PWD: cwd },
      cwd,
      strict,
      limitedByCgroup: [],
      user: strict?.confinement.user ?? (isRoot ? SANDBOX_USER : undefined),
      inPidNamespace: hasNamespaces,
      inUserNamespace: hasNamespaces && !isRoot,
      withoutMounts: sandbox.without?.view === true,
    },
  };
}

const NOTHING_COVERED = { hidden: [], readOnly: [], own: [], splitHome: undefined, absent: [] };

/** For a server that runs without a sandbox, by choice or because there is none. */
export function unprotected(mode: ServerProtections["mode"], notes: readonly string[]): ServerProtections {
  return {
    mode,
    files: "none",
    processes: "none",
    user: "same",
    seccomp: false,
    noNewPrivileges: false,
    network: "machine",
    limits: [],
    notes,
    gaps: ["the server can read and change everything that the gateway's user can, the operator's token included"],
  };
}

const MAX_REPORT_BYTES = 1_000_000;

/** Sends the launch message; resolves with the launcher's report, or with why there is none. */
export function launchReport(
  channel: Duplex,
  message: LaunchMessage,
  /** False when the server cannot be observed. */
  onListener: (fd: number) => boolean,
): Promise<LaunchReport> {
  return new Promise((resolve) => {
    let text = "";
    const end = (answer: LaunchReport): void => {
      channel.destroy();
      resolve(answer);
    };
    channel.setEncoding("utf8");
    channel.on("data", (chunk: string) => {
      text += chunk;
      for (let line = text.indexOf("\n"); line >= 0; line = text.indexOf("\n")) {
        const answer = JSON.parse(text.slice(0, line)) as LaunchReport | ListenerMessage;
        text = text.slice(line + 1);
        if (answer.kind !== "listener") return end(answer);
        if (!onListener(answer.fd)) return end({ kind: "refused", reason: "it cannot be observed on this machine" });
        channel.write("\n");
      }
      if (text.length > MAX_REPORT_BYTES) end({ kind: "refused", reason: "the launcher's report is too long" });
    });
    channel.on("error", (error) => end({ kind: "refused", reason: error.message }));
    channel.on("close", () => end({ kind: "refused", reason: "the launcher ended without a report" }));
    channel.write(`${JSON.stringify(message)}\n`);
  });
}

// The gateway itself, closed to processes of its own user: environment, memory and descriptors are root's to look at.

/** `closeProcess` makes this process not dumpable. False where that cannot be done (no Linux, no koffi). */
export function closeProcess(): boolean {
  const calls = kernel();
  return calls !== undefined && closeToOthers(calls);
}
