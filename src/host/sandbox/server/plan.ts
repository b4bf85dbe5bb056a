// Which paths a stdio server does not see, sees read-only, or keeps although they lie inside one of those.

import { existsSync, lstatSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, isAbsolute, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isWithin } from "../../paths/mounts.js";
import type { HomePlan } from "../confine/cover.js";
import type { ServerCommand, ServerPlan, ServerSandbox } from "./types.js";

/** Programs and settings of the machine. A root gateway's servers could change them otherwise. */
const SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/boot", "/opt", "/sys"].concat(
  ["/nix", "/gnu", "/var/spool/cron", "/var/lib/dpkg", "/var/lib/rpm", "/run/systemd"],
);

/** Other users' files and services' state, for a root gateway alone: an ordinary user cannot change them anyway. */
const OF_OTHERS = ["/home", "/root", "/var/lib", "/var/spool", "/var/mail", "/var/backups", "/var/cache"];

/** In the home directory: what runs when the user next logs in, opens a shell, or starts one of these programs. */
const START_UP = [
  ".ssh .bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .inputrc .xprofile",
  ".xsession .xinitrc .pam_environment .gitconfig .npmrc .vimrc .tmux.conf .node_modules .node_libraries",
  ".config/fish .config/systemd .config/autostart .config/environment.d .config/git .config/nvim .config/Code/User",
  ".local/bin .local/lib .local/share/systemd .local/share/applications .local/share/uv .local/share/portcullis bin go/bin .cargo/bin .bun/bin",
  ".deno/bin .pyenv .nvm .rbenv .asdf .volta .vim .emacs.d .oh-my-zsh .gnupg .docker .kube .aws .claude .cursor .codex",
  ".vscode",
].flatMap((line) => line.split(" "));

/** From these, `npx` and `uvx` of the user and of other servers run code. */
const PACKAGE_CACHES = [".npm", ".cache/uv", ".cache/pip", ".cache/node", ".cache/pnpm"];

const CONTAINER_PROGRAMS = new Set(["docker", "podman", "nerdctl"]);
const CONTAINER_SOCKETS = [
  ...["/run/docker.sock", "/var/run/docker.sock", "/run/docker", "/run/podman", "/run/containerd", "/run/crio"],
  ...["/run/libvirt", "/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket"],
];

/** Sockets of the user's own services that run commands, or give out secrets, outside of any namespace. */
function commandSockets(program: string, env: ServerCommand["env"]): string[] {
  const uid = process.getuid?.() ?? 0;
  const runtime = `/run/user/${uid}`;
  const names = ["bus", "systemd", "keyring", "gnupg", "ssh-agent.socket", "openssh_agent", "gcr"];
  const own = [...names.map((name) => join(runtime, name)), `/tmp/tmux-${uid}`, "/run/screen", ...agentSocket(env)];
  const containers = [...CONTAINER_SOCKETS, `${runtime}/docker.sock`, `${runtime}/podman`];
  return CONTAINER_PROGRAMS.has(basename(program)) ? own : [...own, ...containers];
}

/** The gateway's own ssh-agent, which signs for any process of the user; a server has it where its entry passes it on. */
function agentSocket(env: ServerCommand["env"]): string[] {
  const socket = process.env.SSH_AUTH_SOCK;
  return socket === undefined || env.SSH_AUTH_SOCK !== undefined || !isAbsolute(socket) ? [] : [socket];
}

/** SQLite keeps these beside its file. */
const BESIDE_A_DATABASE = ["-wal", "-shm", "-journal"];

/** Names in a data directory that are the gateway's, whatever an entry says. */
const OF_THE_GATEWAY =
  /^(operator\.token|metrics\.token|seal\.key|portcullis\.db.*|ledgers?|policy|guardrails|admin|repositories|servers|tools|connected|workflow|replica)$/;

export function planServer(sandbox: ServerSandbox, command: ServerCommand): ServerPlan {
  const gateway = sandbox.hidden.flatMap((path) => [path, ...BESIDE_A_DATABASE.map((end) => path + end)]);
  const hidden = realPaths([...gateway, ...commandSockets(command.argv[0] ?? "", command.env)]);
  const home = realHome();
  const startUp = home === undefined ? [] : START_UP.map((name) => join(home, name));
  const others = process.geteuid?.() === 0 ? OF_OTHERS.flatMap((path) => exceptOwn(path, home)) : [];
  const readOnly = realPaths([
    ...SYSTEM,
    ...others,
    ...startUp,
    ...ownModules(),
    realpathSync(process.execPath),
    ...sandbox.readOnly,
  ]);
  const named = namedPaths(command, [...sandbox.hidden, homedir()]);
  return {
    hidden,
    readOnly,
    own: [...namedInside(hidden, named), ...namedOutside(hidden, others, named), ...ownPackages(command)],
    splitHome: home === undefined ? undefined : homePlan(home, sandbox, command, named),
    absent: startUp.filter((path) => lstatSync(path, { throwIfNoEntry: false }) === undefined),
  };
}

function realHome(): string | undefined {
  const [home] = realPaths([homedir()]);
  return home;
}

/** `/home` holds the gateway's own home directory, and perhaps its package. */
function exceptOwn(path: string, home: string | undefined): string[] {
  if (home === undefined || !isWithin(home, path)) return [path];
  if (home === path) return [];
  return readdirSync(path).flatMap((name) => exceptOwn(join(path, name), home));
}

function isBelowAny(path: string, directories: readonly string[]): boolean {
  return directories.some((directory) => path !== directory && isWithin(path, directory));
}

/** An operator who names the home directory itself gives it to the server, but for the start-up files that exist. */
function homePlan(
  home: string,
  { store }: ServerSandbox,
  { argv, env, cwd }: ServerCommand,
  named: readonly string[],
): HomePlan | undefined {
  const { HOME: _, PWD: __, ...values } = env;
  const isGiven = [...argv.slice(1), ...Object.values(values)].some(
    (text) => isAbsolute(text) && resolve(cwd, text) === home,
  );
  if (store === undefined || isGiven) return undefined;
  const caches = PACKAGE_CACHES.map((name) => join(home, name));
  return { path: home, store, apart: caches.filter((cache) => !named.some((path) => isWithin(path, cache))) };
}

/** Each once, by its real name; what is not there cannot be covered. A link in /bin leads to what is covered anyway. */
function realPaths(paths: readonly string[]): string[] {
  const real = new Set<string>();
  for (const path of paths) {
    try {
      real.add(realpathSync(path));
    } catch {
      // Not there.
    }
  }
  return [...real].filter((path) => path !== "/");
}

/** The operator wrote these paths into the server's entry: its script, its own data. */
function namedPaths({ argv, env, cwd }: ServerCommand, spelled: readonly string[]): string[] {
  const texts = [...argv, ...Object.values(env), cwd];
  return [...new Set(texts.flatMap((text) => namedPath(text, cwd, spelled) ?? []))];
}

/**
 * INVARIANT: no symbolic link on the way, but for those that lead to one of `spelled` itself. A server could have left a link
 * where its entry names a path, and would find another server's directory opened at its next start.
 */
function namedPath(text: string, cwd: string, spelled: readonly string[]): string | undefined {
  const path = pathIn(text, cwd);
  if (path === undefined) return undefined;
  try {
    const at = existsSync(path) ? path : dirname(path);
    const real = realpathSync(at);
    if (real === at) return real;
    const directory = spelled.find((each) => isWithin(at, each));
    return directory !== undefined && real === join(realpathSync(directory), at.slice(directory.length))
      ? real
      : undefined;
  } catch {
    return undefined;
  }
}

function namedInside(hidden: readonly string[], named: readonly string[]): string[] {
  const found = new Set<string>();
  for (const path of named) {
    const around = hidden.find((directory) => path !== directory && isWithin(path, directory));
    if (around === undefined) continue;
    const first = path.slice(around.length + 1).split("/")[0] ?? "";
    if (!OF_THE_GATEWAY.test(first)) found.add(path);
  }
  return [...found];
}

/** INVARIANT: nothing hidden is named here; `namedInside` alone decides about that. */
function namedOutside(hidden: readonly string[], others: readonly string[], named: readonly string[]): string[] {
  return named.filter((path) => isBelowAny(path, others) && !hidden.some((directory) => isWithin(path, directory)));
}

const MAX_PATH = 4096;

/** The path that a text of an entry names, or one in a directory in which the server is going to make it. */
function pathIn(text: string, cwd: string): string | undefined {
  const value = text.replace(/^--?[\w-]+=/, "");
  if (value === "" || value.length > MAX_PATH || value.includes("\0") || !(isAbsolute(value) || /[./]/.test(value))) {
    return undefined;
  }
  return resolve(cwd, value);
}

/**
 * A server that is installed beside the gateway may write into its own package, as some do by default. The packages that
 * the gateway itself loads stay read-only. Links are followed here (`node_modules/.bin`): no server can change those.
 */
function ownPackages(command: ServerCommand): string[] {
  const modules = ownModules();
  const packages = command.argv.flatMap((text) => {
    const path = pathIn(text, command.cwd);
    const [real] = path !== undefined && isBelowAny(path, modules) ? realPaths([path]) : [];
    const match = real === undefined ? null : /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//.exec(real);
    return match !== null && isBelowAny(match[1] as string, modules) && !gatewayDependencies().has(match[2] as string)
      ? [match[1] as string]
      : [];
  });
  return [...new Set(packages)];
}

let root: string | undefined;

/** The directory of the gateway's own package. */
function packageRoot(): string {
  if (root !== undefined) return root;
  let directory = dirname(realpathSync(fileURLToPath(import.meta.url)));
  while (lstatSync(join(directory, "package.json"), { throwIfNoEntry: false }) === undefined)
    directory = dirname(directory);
  root = directory;
  return directory;
}

/** The gateway's package, and every directory in which Node looks for what it imports. */
function ownModules(): string[] {
  const modules: string[] = [];
  for (let directory = packageRoot(); directory !== "/"; directory = dirname(directory))
    modules.push(join(directory, "node_modules"));
  return [packageRoot(), ...modules, "/node_modules"];
}

let dependencies: ReadonlySet<string> | undefined;

function gatewayDependencies(): ReadonlySet<string> {
  dependencies ??= new Set(dependencyNames());
  return dependencies;
}

function dependencyNames(): string[] {
  const read = JSON.parse(readFileSync(join(packageRoot(), "package.json"), "utf8")) as Record<string, object>;
  return ["dependencies", "optionalDependencies", "peerDependencies"].flatMap((kind) => Object.keys(read[kind] ?? {}));
}
