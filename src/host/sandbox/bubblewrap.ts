// The same view, built by bubblewrap, for machines where the native way is closed (no koffi build, no Landlock).

import { lstatSync, readlinkSync } from "node:fs";
import { dirname } from "node:path";
import { isWithin } from "../paths/mounts.js";
import { seccompProgram } from "./confine/seccomp.js";
import { type Confinement, mountsInside, SCRATCH } from "./confinement.js";

const DEVICE_LINKS = ["fd", "fd/0:stdin", "fd/1:stdout", "fd/2:stderr"].flatMap((entry) => {
  const [target = "", name = target] = entry.split(":");
  return ["--symlink", `/proc/self/${target}`, `/dev/${name}`];
});

/** Arguments up to and including `--`; the program follows. */
export function bubblewrapArgs(confinement: Confinement, cwd: string, withProc: boolean): string[] {
  // As process 1 the command takes its namespace with it before its own end is seen; bubblewrap's init would not.
  const args = ["--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"];
  if (!confinement.network) args.push("--unshare-net");
  if (bubblewrapFilter(confinement.network) !== undefined) args.push("--seccomp", "3");
  const shown = [
    ...confinement.system,
    ...confinement.files,
    ...confinement.devices,
    ...confinement.readableRoots,
    ...confinement.writableRoots,
  ];
  // In memory, and first: what the policy opens may lie below.
  for (const path of ["/tmp", "/dev/shm"])
    args.push("--perms", "1777", "--size", String(confinement.scratchBytes), "--tmpfs", path);
  if (withProc) args.push("--proc", "/proc", ...DEVICE_LINKS);
  // Directories on the way are made for root alone otherwise.
  for (const path of directoriesAbove(shown)) args.push("--perms", "0755", "--dir", path);
  for (const path of confinement.system) args.push(...show(path));
  for (const path of confinement.files) args.push("--ro-bind-try", path, path);
  for (const path of confinement.devices) args.push("--dev-bind-try", path, path);
  for (const path of outerFirst(confinement.readableRoots)) args.push("--ro-bind", path, path);
  for (const path of outerFirst(confinement.writableRoots)) args.push("--bind", path, path);
  for (const path of outerFirst(confinement.pinned)) args.push("--bind", path, path);
  for (const path of outerFirst(confinement.closed)) args.push("--ro-bind", path, path);
  for (const path of confinement.repositories) args.push("--ro-bind-try", path, path);
  // Directories are shown with what is mounted below them, so that is covered again.
  for (const path of mountsInside(confinement)) args.push("--tmpfs", path);
  const scratch = ["--perms", "1777", "--size", String(confinement.scratchBytes), "--tmpfs", SCRATCH];
  return [...args, ...scratch, "--chdir", cwd, "--"];
}

/** The same filter as without it. Undefined where the architecture's calls are not known. */
export function bubblewrapFilter(network: boolean): Buffer | undefined {
  return seccompProgram(process.arch, {
    network,
    // Names in the network's own namespace are not hidden by a view.
    hasOwnSocketNames: false,
    changesMetadataByName: true,
    holdsSignals: true,
    guardsTruncation: true,
  });
}

/** Outer ones first, each once, without those that are shown themselves or lie in one. */
function directoriesAbove(paths: readonly string[]): string[] {
  const above = new Set<string>();
  for (const path of paths) {
    for (let directory = dirname(path); directory !== "/"; directory = dirname(directory)) above.add(directory);
  }
  return outerFirst([...above].filter((directory) => !paths.some((path) => isWithin(directory, path))));
}

function show(path: string): string[] {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return [];
  return stats.isSymbolicLink() ? ["--symlink", readlinkSync(path), path] : ["--ro-bind", path, path];
}

function outerFirst(paths: readonly string[]): string[] {
  return [...paths].sort((a, b) => a.length - b.length);
}

/** Root becomes the sandbox user inside, with no right left but that to files when the policy's directories are root's. */
export function changeUser(setpriv: string | undefined, confinement: Confinement): string[] {
  const { user, actsAsOwner } = confinement;
  if (user === undefined || setpriv === undefined) return [];
  const caps = actsAsOwner ? "-all,+dac_override,+dac_read_search" : "-all";
  return [
    setpriv,
    `--reuid=${user.uid}`,
    `--regid=${user.gid}`,
    "--clear-groups",
    `--inh-caps=${caps}`,
    `--ambient-caps=${caps}`,
    `--bounding-set=${caps}`,
    "--securebits=+noroot,+noroot_locked,+no_setuid_fixup,+no_setuid_fixup_locked",
    "--no-new-privs",
    "--",
  ];
}
