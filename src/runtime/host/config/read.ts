// Reads a host's policy for a command: loads it, and reports its problems.

import { existsSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join, sep } from "node:path";
import type { Command } from "commander";
import {
  type HostPolicyLoadOptions,
  type HostPolicyProblem,
  type LoadResult,
  loadYamlPolicy,
  type Policy,
  parsePolicy,
  policyFor,
  problemText,
} from "../../../host/index.js";
import { CliError, EXIT } from "../../../lib/exit.js";
import { PROJECT_DIRECTORY, statePaths, userDataDirectory } from "../../data-directory.js";
import { outFor } from "../../options.js";
import { type HostFiles, requireFile } from "./files.js";
import { programPaths } from "./paths.js";

/** Paths that no policy may open. */
function loadOptions({ config, state }: HostFiles): HostPolicyLoadOptions {
  return { protectedPaths: [state, config], programPaths: programPaths() };
}

export function loadHostPolicy(files: HostFiles): LoadResult {
  return withoutCredentials(loadYamlPolicy(files.config, loadOptions(files)));
}

/** A text as a host would read it from that file. */
export function checkHostPolicy(text: string, files: HostFiles): LoadResult {
  return withoutCredentials(parsePolicy(text, files.config, loadOptions(files)));
}

function withoutCredentials(loaded: LoadResult): LoadResult {
  const problems = loaded.ok ? credentialProblems(loaded.policy) : [];
  return problems.length === 0 ? loaded : { ok: false, problems };
}

/** The policy, or the end of the command with every problem it has. */
export function requireHostPolicy(command: Command, files: HostFiles): Policy {
  requireFile(files.config);
  const loaded = loadHostPolicy(files);
  if (loaded.ok) return loaded.policy;
  throw invalidPolicy(command, files.config, loaded.problems);
}

export function invalidPolicy(command: Command, file: string, problems: readonly HostPolicyProblem[]): CliError {
  const out = outFor(command);
  if (out.json) out.data({ ok: false, file, problems }, () => "");
  return policyProblemsOf(file, problems);
}

export function policyProblemsOf(file: string, problems: readonly HostPolicyProblem[]): CliError {
  const count = problems.length === 1 ? "a problem" : `${problems.length} problems`;
  return new CliError(`${file} has ${count}`, EXIT.invalidPolicy, problems.map(problemText).join("\n"));
}

/** Refuses a client without a profile: it would get everything that the policy allows. */
export function requireClient(policy: Policy, client: string | undefined): Policy {
  if (client === undefined || policy.clients.has(client)) return policyFor(policy, client);
  const known = [...policy.clients.keys()].join(", ");
  throw new CliError(
    `${policy.file} has no profile for the client ${client}`,
    EXIT.invalidPolicy,
    known === "" ? "add one under profiles, or leave --client out" : `add one under profiles, or use one of ${known}`,
  );
}

/** Just inside a directory of the policy, or around it: seen at every load. */
function credentialProblems(policy: Policy): HostPolicyProblem[] {
  return [...policy.readableRoots, ...policy.writableRoots].flatMap(({ path, origin = "" }) => {
    const token = tokenReachedFrom(path);
    if (token === undefined) return [];
    return [
      {
        file: policy.file,
        line: Number(origin.split(":").at(-1) ?? 1) || 1,
        column: 1,
        path: "",
        message: `${path} reaches ${token}, with which a gateway's calls are approved`,
        remedy: "choose another data directory for the gateway (--dir), or another directory here",
      },
    ];
  });
}

/** The credential of a project's data directory in or around `path`, or of the user's where it is below `path`. */
function tokenReachedFrom(path: string): string | undefined {
  const around = basename(path) === PROJECT_DIRECTORY ? dirname(path) : path;
  const project = statePaths(join(around, PROJECT_DIRECTORY)).operatorToken;
  if (existsSync(project)) return project;
  const user = statePaths(userDataDirectory()).operatorToken;
  const isBelow = existsSync(user) && realpathSync(user).startsWith(path.endsWith(sep) ? path : `${path}${sep}`);
  return isBelow ? user : undefined;
}

const MAX_DEPTH = 4;
const MAX_DIRECTORIES = 2000;

/** Further down, within a bound; for `doctor`. */
export function credentialsBelow(policy: Policy): string[] {
  const found: string[] = [];
  let level = [...policy.readableRoots, ...policy.writableRoots].map((place) => place.path);
  let looked = 0;
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const next: string[] = [];
    for (const directory of level) {
      if (++looked > MAX_DIRECTORIES) return found;
      const token = statePaths(join(directory, PROJECT_DIRECTORY)).operatorToken;
      if (existsSync(token)) found.push(token);
      next.push(...directoriesIn(directory));
    }
    level = next;
  }
  return found;
}

function directoriesIn(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !/^(\.|node_modules$)/.test(entry.name))
      .map((entry) => join(directory, entry.name));
  } catch {
    return [];
  }
}

interface Openness {
  readonly detail: string;
  readonly remedy: string;
  /** Anyone it is open to can rewrite the file as it stands; the others are a matter of whom one trusts. */
  readonly isWritable: boolean;
}

const WRITABLE_BY_OTHERS = 0o022;
const STICKY = 0o1000;

/** The worst of it, or nothing. Left to access lists on Windows. */
export function opennessOf(config: string): Openness | undefined {
  if (process.platform === "win32") return undefined;
  const own = process.getuid?.() ?? 0;
  const { mode, uid } = statSync(config);
  if ((mode & WRITABLE_BY_OTHERS) !== 0) {
    return { detail: `${config} can be written by others`, remedy: `chmod 600 ${config}`, isWritable: true };
  }
  if (uid !== own && uid !== 0) {
    const detail = `${config} belongs to user ${uid}, which can change the policy`;
    return { detail, remedy: `chown ${own} ${config}`, isWritable: false };
  }
  const directory = dirname(config);
  const above = statSync(directory).mode;
  if ((above & WRITABLE_BY_OTHERS) !== 0 && (above & STICKY) === 0) {
    return { detail: `others can put files into ${directory}`, remedy: `chmod go-w ${directory}`, isWritable: false };
  }
  return undefined;
}

/** Rules that others can rewrite are theirs, not the operator's. */
export function requireClosed(config: string): void {
  const open = opennessOf(config);
  if (open?.isWritable === true) throw new CliError(open.detail, EXIT.invalidPolicy, open.remedy);
}
