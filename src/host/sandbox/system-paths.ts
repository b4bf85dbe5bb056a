// What of the system a sandboxed command can see: programs, libraries and the few settings they read. Everything else
// of the machine is absent.

export const SYSTEM_FOLDERS: readonly string[] = [
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib32",
  "/lib64",
  "/libx32",
  "/nix/store",
  "/gnu/store",
  "/etc/alternatives",
  "/etc/ld.so.conf.d",
  "/etc/ssl/certs",
  "/etc/pki/tls/certs",
  "/etc/pki/ca-trust/extracted",
  "/etc/terminfo",
];

export const SYSTEM_FILES: readonly string[] = [
  "/etc/ld.so.cache",
  "/etc/ld.so.conf",
  "/etc/localtime",
  "/etc/timezone",
  "/etc/passwd",
  "/etc/group",
  "/etc/nsswitch.conf",
  "/etc/magic",
  "/etc/mime.types",
  "/etc/ssl/openssl.cnf",
];

/** Only for commands that may reach the network. */
export const NETWORK_FILES: readonly string[] = [
  "/etc/hosts",
  "/etc/resolv.conf",
  "/etc/host.conf",
  "/etc/gai.conf",
  "/etc/protocols",
  "/etc/services",
];

export const DEVICES: readonly string[] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
