// What holds a command, as plain data. Two commands with the same confinement can be run by the same supervisor.

import { isWithin, readMounts } from "../paths/mounts.js";
import type { SandboxMode } from "../policy/document.js";

export interface Confinement {
  readonly mode: SandboxMode;
  /** Directories that may be read. */
  readonly readableRoots: readonly string[];
  /** Directories that may be read and written. */
  readonly writableRoots: readonly string[];
  /** Inside a writable root, and yet never written. Where only the whole writable root can be closed, the whole writable root is. */
  readonly closed: readonly string[];
  /** Insides of repositories in a writable root: never written. Where only whole directories can be opened, what lies beside them is. */
  readonly repositories: readonly string[];
  /** Directories between a writable root and what is closed in it: writable, and neither renamed nor removed. */
  readonly pinned: readonly string[];
  /** Programs, libraries, and the command's own mounts. */
  readonly system: readonly string[];
  readonly files: readonly string[];
  readonly devices: readonly string[];
  readonly execFromRoots: boolean;
  readonly network: boolean;
  /** Undefined: the host's own user. */
  readonly user: { readonly uid: number; readonly gid: number } | undefined;
  /** In the policy's directories the dedicated user acts as their owner. A user the operator chose is just that user. */
  readonly actsAsOwner: boolean;
  readonly scratchBytes: number;
  /** What the policy opens and this confinement does not, for the operator. */
  readonly notes: readonly string[];
  /** Device and inode of each directory: another directory at the same path needs another supervisor. */
  readonly identity: string;
}

/** Ways to leave out for tests: each falls back to the next best, and the report must say so. */
export interface Without {
  readonly view?: boolean;
  readonly proc?: boolean;
  readonly ownerMapping?: boolean;
  readonly landlock?: boolean;
  readonly seccomp?: boolean;
  readonly pidNamespace?: boolean;
  readonly userNamespace?: boolean;
  readonly native?: boolean;
  readonly cgroup?: boolean;
  readonly bubblewrap?: boolean;
}

export interface Protections {
  /** Which files a command can reach is decided by: */
  readonly files: "view+landlock" | "view" | "landlock" | "bubblewrap" | "none";
  readonly network: "open" | "namespace+seccomp" | "namespace" | "seccomp" | "not restricted";
  /** How every descendant is found when it must go. */
  readonly processTree: "pid-namespace" | "cgroup" | "subreaper" | "process-group";
  readonly seccomp: boolean;
  readonly noNewPrivileges: boolean;
  readonly user: number | "same";
  /** Commands run in a user namespace of their own, with no rights outside it but those of the user. */
  readonly userNamespace: boolean;
  readonly rlimits: boolean;
  readonly cgroup: readonly string[];
  readonly parentDeathSignal: boolean;
  /** What was tried and refused, for the operator. */
  readonly notes: readonly string[];
  /** What the way in force leaves open or takes away that a better one would not. */
  readonly gaps: readonly string[];
  /** Mounted below the policy's directories, and not kept out. */
  readonly openMounts: readonly string[];
}

const MAX_NAMED = 3;

/** What `sandbox: required` asks for and this machine does not give. */
export function missingProtections(have: Protections, network: boolean, needsOwnUser = false): string[] {
  const missing: string[] = [];
  if (needsOwnUser && have.user === "same" && !have.userNamespace) {
    missing.push("a low-privilege user for commands (allow user namespaces, or start the gateway as root)");
  }
  if (have.files === "none") missing.push("file-system confinement (Landlock, a mount namespace or bubblewrap)");
  // Landlock looks at neither modes nor sockets nor signals.
  if (have.files === "landlock" && !have.seccomp) missing.push("seccomp beside Landlock");
  if (have.openMounts.length > 0) {
    const named = have.openMounts.slice(0, MAX_NAMED).join(", ");
    missing.push(
      `a view that keeps out what is mounted below the policy's directories (${named}); Landlock alone cannot`,
    );
  }
  if (!network && have.network === "not restricted") missing.push("network isolation (seccomp or a network namespace)");
  if (have.processTree === "process-group")
    missing.push("a way to end every descendant (PID namespace, cgroup or subreaper)");
  if (!have.noNewPrivileges) missing.push("no_new_privs");
  return missing;
}

export const SCRATCH = "/portcullis-scratch";

// Other file systems below the policy's directories. fs.read and fs.write end there, and so must commands.

/** Mount points below a root or a writable root that are not listed themselves. Read from the table: a hung one is not touched. */
export function mountsInside({ readableRoots, writableRoots, system }: Confinement): string[] {
  const directories = [...readableRoots, ...writableRoots];
  const listed = new Set([...directories, ...system]);
  const inside = readMounts().filter(({ path }) =>
    directories.some((directory) => path !== directory && isWithin(path, directory)),
  );
  return [...new Set(inside.map(({ path }) => path))].filter((path) => !listed.has(path));
}

// What of the system a sandboxed command can see: programs, libraries and the few settings they read. Everything else
// of the machine is absent.

export const SYSTEM_DIRECTORIES: readonly string[] = [
  ...["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc/alternatives"],
  ...["/etc/ld.so.conf.d", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/terminfo"],
];

export const SYSTEM_FILES: readonly string[] = [
  ...["/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime", "/etc/timezone", "/etc/passwd", "/etc/group"],
  ...["/etc/nsswitch.conf", "/etc/magic", "/etc/mime.types", "/etc/ssl/openssl.cnf"],
];

/** Only for commands that may reach the network. */
export const NETWORK_FILES: readonly string[] = [
  ...["/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/protocols", "/etc/services"],
];

export const DEVICES: readonly string[] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
