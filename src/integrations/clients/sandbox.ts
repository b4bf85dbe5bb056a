// The profile that an imported stdio server begins with: the paths that its entry names, the hosts that it is known to need,
// and its package registry. Where a profile would stop the server from working, there is none, and the reason is stated.

import { existsSync, readFileSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, extname, isAbsolute, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { isCredentialName, type SandboxEntry, type ServerEntry } from "../../storage/index.js";
import { profileHosts } from "./sandbox-hosts.js";

export interface ImportedSandbox {
  readonly entry: ServerEntry;
  /** Why there is no profile. */
  readonly reason?: string;
}

export interface SandboxContext {
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The data directory of the gateway, which no profile may hold. */
  readonly dir: string;
  readonly platform: NodeJS.Platform;
}

const CONTAINERS = new Set(["docker", "podman", "nerdctl", "container"]);
const SHELLS = new Set(["sh", "bash", "zsh", "dash", "fish", "cmd", "powershell", "pwsh"]);
const RUNNERS: Readonly<Record<string, "npm" | "python">> = {
  npx: "npm",
  npm: "npm",
  pnpx: "npm",
  pnpm: "npm",
  bunx: "npm",
  bun: "npm",
  uvx: "python",
  uv: "python",
  pipx: "python",
};
const NPM_REGISTRY = "registry.npmjs.org";
const PYTHON_REGISTRY = ["pypi.org", "files.pythonhosted.org"];
/** They are read with the package they belong to. */
const SCRIPTS = new Set([".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".jar", ".rb", ".sh", ".wasm"]);
const KEYS = new Set([".pem", ".key", ".crt", ".cer"]);
const NPM_VARIABLES = ["npm_config_registry", "npm_config_cafile"];
const SYSTEM = /^\/(usr|bin|sbin|lib|lib32|lib64|dev|proc|sys|nix\/store)(\/|$)/;

export function importedSandbox(entry: ServerEntry, context: SandboxContext): ImportedSandbox {
  if (entry.command === undefined || context.platform !== "linux") return { entry };
  const program = basename(entry.command);
  if (CONTAINERS.has(program)) return { entry, reason: `${program} needs the socket of its engine` };
  if (SHELLS.has(program)) return { entry, reason: `what ${program} runs is not known` };
  const paths = pathsOf(entry, context);
  if (typeof paths === "string") return { entry, reason: paths };
  const runner = RUNNERS[program];
  const registry: Registry | string = runner === undefined ? { hosts: [] } : registryOf(runner, context);
  if (typeof registry === "string") return { entry, reason: registry };
  const { env = {}, read = [] } = registry;
  const readable = [...paths.read, ...read];
  const hosts = profileHosts(packageOf(entry, program));
  const network = [...new Set([...(hosts ?? ["public"]), ...registry.hosts])];
  const sandbox: SandboxEntry = {
    mode: "preferred",
    ...(readable.length === 0 ? {} : { read: readable }),
    ...(paths.write.length === 0 ? {} : { write: paths.write }),
    // The registry is named beside `public`: inside a company it may be at a private address.
    network: network.length === 1 && network[0] === "public" ? "public" : network,
  };
  const withEnv = Object.keys(env).length === 0 ? {} : { env: { ...env, ...entry.env } };
  return { entry: { ...entry, ...withEnv, sandbox: network.length === 0 ? { ...sandbox, network: "off" } : sandbox } };
}

/** Package runners of every profile may need these again. */
export function isPublicRegistry(host: string): boolean {
  return host === NPM_REGISTRY || PYTHON_REGISTRY.includes(host);
}

/** Whether an entry starts the server that was imported with this one, whatever its sandbox is. */
export function isSameServer(stored: ServerEntry | undefined, imported: ServerEntry): boolean {
  const { sandbox: _, env: storedEnv, ...rest } = stored ?? {};
  const { sandbox: __, env: importedEnv, ...wanted } = imported;
  const plain = (env: ServerEntry["env"] = {}): object =>
    Object.fromEntries(Object.entries(env).filter(([name]) => !NPM_VARIABLES.includes(name)));
  return isDeepStrictEqual(rest, wanted) && isDeepStrictEqual(plain(storedEnv), plain(importedEnv));
}

interface NamedPaths {
  readonly read: readonly string[];
  readonly write: readonly string[];
}

/** Every path of the entry that exists, or why the entry's paths cannot be a profile's. */
function pathsOf(entry: ServerEntry, context: SandboxContext): NamedPaths | string {
  const { args = [], env = {}, cwd } = entry;
  const found = { read: new Set<string>(), write: new Set<string>() };
  const texts: [name: string, text: string][] = [
    ...[...args, ...(cwd === undefined ? [] : [cwd])].map((text): [string, string] => ["", text]),
    ...Object.entries(env),
  ];
  for (const [name, text] of texts) {
    const path = text.replace(/^--?[\w-]+=/, "");
    if (/^\.{1,2}(\/|$)/.test(path) && cwd === undefined)
      return `\`${path}\` depends on the directory it is started in`;
    if (!isAbsolute(path) || path.includes("\0") || SYSTEM.test(path)) continue;
    if (SCRIPTS.has(extname(path))) continue;
    if ((isCredentialName(name) || KEYS.has(extname(path))) && statSync(path, { throwIfNoEntry: false })?.isFile()) {
      found.read.add(path);
      continue;
    }
    const named = directoryOf(path);
    if (named === undefined) return `\`${path}\` does not exist`;
    const why = tooWide(named, context);
    if (why !== undefined) return why;
    found.write.add(named);
  }
  return { read: [...found.read], write: [...found.write] };
}

/** A file is made again under another name and renamed, or has a journal beside it: its directory is needed. */
function directoryOf(path: string): string | undefined {
  const facts = statSync(path, { throwIfNoEntry: false });
  if (facts?.isDirectory()) return path;
  const directory = facts !== undefined || extname(path) !== "" ? dirname(path) : undefined;
  return directory !== undefined && existsSync(directory) ? directory : undefined;
}

function tooWide(path: string, { home, dir }: SandboxContext): string | undefined {
  const [real, data] = [path, dir].map((each) => (existsSync(each) ? realpathSync(each) : each)) as [string, string];
  if (real.split("/").length < 3 || `${home}/`.startsWith(`${real}/`))
    return `\`${path}\` holds more than one program's files`;
  return `${data}/`.startsWith(`${real}/`) ? `\`${path}\` holds the gateway's data directory` : undefined;
}

interface Registry {
  readonly hosts: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly read?: readonly string[];
}

/** Where packages come from, or which settings of the user a sandboxed package runner would not have. */
function registryOf(runner: "npm" | "python", context: SandboxContext): Registry | string {
  return runner === "npm" ? npmRegistry(context) : pythonRegistry(context);
}

function pythonRegistry({ home, env }: SandboxContext): Registry | string {
  const variables = ["UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "PIP_INDEX_URL"];
  const files = [".config/uv/uv.toml", ".config/pip/pip.conf", ".pip/pip.conf"];
  const variable = variables.find((name) => env[name] !== undefined);
  const file = files.find((name) => existsSync(join(home, name)));
  const own = variable ?? (file === undefined ? undefined : `~/${file}`);
  return own === undefined ? { hosts: PYTHON_REGISTRY } : `packages come by settings of your own (${own})`;
}

/** A proxy, certificate or credential: a server must not have the credential, and its own network has no proxy. */
const CLOSED_SETTING = /^(https?-proxy|proxy|ca(\[\])?|cert|key|@[^:]+:registry|\/\/.*)$/;

function npmRegistry({ home, env }: SandboxContext): Registry | string {
  const settings = new Map<string, string>();
  for (const file of ["/etc/npmrc", join(home, ".npmrc")]) {
    for (const [, name = "", value = ""] of textOf(file).matchAll(/^\s*([^\s#;=][^\s=]*)\s*=\s*(.*?)\s*$/gm)) {
      if (CLOSED_SETTING.test(name)) return `packages come by settings of your own (${name.split(":")[0]} in ${file})`;
      settings.set(name, value);
    }
  }
  for (const [name, value = ""] of Object.entries(env)) {
    const setting = /^npm_config_(.+)$/i.exec(name)?.[1]?.toLowerCase().replaceAll("_", "-");
    if (setting !== undefined) settings.set(setting, value);
  }
  const [registry, cafile] = [settings.get("registry"), settings.get("cafile")];
  const url = registry !== undefined && URL.canParse(registry) ? new URL(registry) : undefined;
  if (url !== undefined && (url.username !== "" || !/[a-z]/i.test(url.hostname))) {
    return "packages come from a registry that has no name, or needs a credential";
  }
  const isKnown = url === undefined || url.host === NPM_REGISTRY;
  return {
    hosts: [isKnown ? NPM_REGISTRY : url.host],
    env: {
      ...(isKnown ? {} : { npm_config_registry: url.href }),
      ...(cafile === undefined ? {} : { npm_config_cafile: cafile }),
    },
    read: cafile === undefined || SYSTEM.test(cafile) ? [] : [cafile],
  };
}

function textOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

/** The name of the package that the entry runs. */
function packageOf({ args = [] }: ServerEntry, program: string): string | undefined {
  if (RUNNERS[program] !== undefined) {
    const rest = args.filter((each) => !["run", "dlx", "exec", "x", "tool"].includes(each));
    const from = rest.findIndex((each) => ["--from", "--package", "-p"].includes(each));
    const named = from >= 0 ? rest[from + 1] : rest.find((each) => !each.startsWith("-"));
    return named?.replace(/(?<=.)(@|==|\[).*$/, "");
  }
  const module = args.indexOf("-m");
  if (module >= 0) return args[module + 1]?.replaceAll("_", "-");
  const script = args.find((each) => SCRIPTS.has(extname(each)));
  return /\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(script ?? "")?.[1] ?? program;
}
