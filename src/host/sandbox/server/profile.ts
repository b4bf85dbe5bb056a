// From a server's profile to the tree that the server sees: the system's programs, its own code, a home directory and a
// /tmp of its own, and what the profile names. Nothing else of the machine is there.

import { existsSync, lstatSync, mkdirSync, readlinkSync, realpathSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, extname, join, resolve } from "node:path";
import { isWithin } from "../../paths/mounts.js";
import { type Confinement, DEVICES, NETWORK_FILES, SYSTEM_DIRECTORIES, SYSTEM_FILES } from "../confinement.js";
import type { ServerCommand, ServerProfile, ServerSandbox, StrictPlan } from "./types.js";

const SCRATCH_BYTES = 256_000_000;
/** Numbers that no distribution hands out, one for each server: limits on processes are counted by user. */
const FIRST_USER = 61_954;
const USERS = 2_000;
/** How far above a script its package may begin. */
const MAX_LEVELS = 8;
const SCRIPTS = new Set([".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".jar", ".rb", ".sh", ".wasm"]);

/** Names are resolved by the gateway alone; an address of its answer leads to the gateway's side of the connection. */
const OWN_RESOLVER: readonly (readonly [path: string, text: string])[] = [
  ["/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n"],
  ["/etc/hosts", "127.0.0.1 localhost\n"],
  ["/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"],
];

/** The plan, or why the profile cannot be used: it names what is not there, or what holds files of the gateway. */
export function planStrict(
  profile: ServerProfile,
  sandbox: ServerSandbox,
  command: ServerCommand,
): StrictPlan | { readonly refused: string } {
  const store = sandbox.store === undefined ? undefined : ownDirectory(sandbox.store);
  if (store === undefined) return { refused: "a server with a profile needs a directory of its own for its home" };
  const code = codeOf(command);
  const named = { read: profile.read.map(real), write: profile.write.map(real) };
  for (const field of ["read", "write"] as const) {
    const absent = named[field].findIndex((path) => path === undefined);
    if (absent >= 0) {
      return { refused: `\`${profile[field][absent]}\` of sandbox.${field} does not exist: create it or remove it` };
    }
  }
  const write = (named.write as string[]).concat(store);
  const read = [...new Set([...(named.read as string[]), ...code])].filter((path) => !write.includes(path));
  for (const path of [...read, ...write]) {
    const inside = sandbox.hidden.find((hidden) => existsSync(hidden) && isWithin(realpathSync(hidden), path));
    if (inside !== undefined) {
      return { refused: `\`${path}\` holds \`${inside}\`, which is the gateway's own: name a directory without it` };
    }
  }
  // Without hosts, the names that it asks for are recorded all the same.
  const network = profile.observe === true && profile.network === "off" ? [] : profile.network;
  const isOpen = network === "on";
  const confinement: Confinement = {
    mode: sandbox.mode,
    readableRoots: read,
    writableRoots: write,
    closed: [],
    repositories: [],
    pinned: [],
    system: SYSTEM_DIRECTORIES,
    files: [...SYSTEM_FILES, ...(network === "off" ? [] : NETWORK_FILES)],
    devices: DEVICES,
    execFromRoots: true,
    network: isOpen,
    user: process.geteuid?.() === 0 ? userFor(store) : undefined,
    actsAsOwner: false,
    scratchBytes: SCRATCH_BYTES,
    notes: [],
    identity: "",
  };
  return {
    confinement,
    home: store,
    texts: isOpen || network === "off" ? [] : OWN_RESOLVER,
    network: isOpen ? "machine" : network === "off" ? "off" : "hosts",
    ports: isOpen || network === "off" ? [] : portsOf(network),
    profile,
    links: linksTo(profile, command),
    named: [...(named.read as string[]), ...(named.write as string[])],
    code,
  };
}

/** A plain name is reached by HTTPS and HTTP, one with a port there alone. */
export function portsOf(network: "public" | readonly string[]): number[] {
  if (network === "public") return WEB_PORTS;
  return [...new Set(network.flatMap((host) => portOf(host) ?? WEB_PORTS))];
}

export const WEB_PORTS = [443, 80];

export function portOf(host: string): number | undefined {
  const port = /:(\d+)$/.exec(host)?.[1];
  return port === undefined ? undefined : Number(port);
}

function ownDirectory(store: string): string {
  const home = join(store, "private");
  mkdirSync(home, { recursive: true, mode: 0o700 });
  return realpathSync(home);
}

function userFor(store: string): { uid: number; gid: number } {
  let hash = 0;
  for (const character of store) hash = (hash * 31 + character.charCodeAt(0)) % USERS;
  return { uid: FIRST_USER + hash, gid: FIRST_USER + hash };
}

/** What is shown is shown at its real path; entries may name it by another, as below `~/code`, which is a link. */
function linksTo({ read, write }: ServerProfile, { argv, cwd }: ServerCommand): StrictPlan["links"] {
  const spelled = [...read, ...write].map(expanded);
  const named = argv.map((text) => resolve(cwd, text)).filter((path) => existsSync(path));
  const links = new Map<string, string>();
  const modules = named.filter((path) => SCRIPTS.has(extname(path))).flatMap(modulesAbove);
  for (const path of [cwd, ...spelled, ...named, ...modules]) {
    const parts = path.split("/");
    for (let length = 2; length <= parts.length; length++) {
      const at = parts.slice(0, length).join("/");
      if (lstatSync(at, { throwIfNoEntry: false })?.isSymbolicLink()) links.set(at, readlinkSync(at));
    }
  }
  return [...links];
}

function expanded(path: string): string {
  return path === "~" || path.startsWith("~/") ? join(homedir(), path.slice(1)) : path;
}

function real(path: string): string | undefined {
  try {
    return realpathSync(expanded(path));
  } catch {
    return undefined;
  }
}

/** The program and its script with what they are installed with, where they are not the system's. */
function codeOf({ argv, cwd }: ServerCommand): string[] {
  const [program = "", ...args] = argv;
  const found = [program, real(program) ?? program].map(installationOf);
  for (const text of args) {
    const path = resolve(cwd, text);
    if (!SCRIPTS.has(extname(path)) || statSync(path, { throwIfNoEntry: false })?.isFile() !== true) continue;
    found.push(packageOf(path), packageOf(realpathSync(path)), ...modulesAbove(path).map((each) => realpathSync(each)));
  }
  const roots = [...new Set(found)].filter((path) => !SYSTEM_DIRECTORIES.some((each) => isWithin(path, each)));
  return roots.filter((path) => real(path) === path);
}

/** `…/node/bin/npx` is installed in `…/node`; any other program is a file by itself. */
function installationOf(path: string): string {
  const prefix = /^(.+)\/bin\/[^/]+$/.exec(path)?.[1];
  return prefix === undefined || isTooWide(prefix) ? path : prefix;
}

function packageOf(path: string): string {
  const modules = /^(.*?\/node_modules)\//.exec(path)?.[1];
  if (modules !== undefined) return modules;
  let directory = dirname(path);
  for (let level = 0; level < MAX_LEVELS && !isTooWide(directory); level++) {
    const isPackage = ["package.json", "pyproject.toml"].some((name) => lstatOf(join(directory, name)));
    if (isPackage) return directory;
    directory = dirname(directory);
  }
  return isTooWide(dirname(path)) ? path : dirname(path);
}

/** Where Node looks for what a script imports: a workspace keeps it above its packages. */
function modulesAbove(script: string): string[] {
  const found: string[] = [];
  let directory = dirname(realpathSync(script));
  for (let level = 0; level < MAX_LEVELS && !isTooWide(directory); level++) {
    const modules = join(directory, "node_modules");
    if (existsSync(modules)) found.push(modules);
    directory = dirname(directory);
  }
  return found;
}

function lstatOf(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Holds more than one program. */
function isTooWide(directory: string): boolean {
  return directory.split("/").length < 3 || isWithin(homedir(), directory) || directory === join(homedir(), ".local");
}

/** A destination as a profile names it. */
export function destinationName({ host, port }: { readonly host: string; readonly port: number | undefined }): string {
  return port === undefined || WEB_PORTS.includes(port) ? host : `${host}:${port}`;
}
