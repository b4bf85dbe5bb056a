// The operator's credential of a gateway on the same machine: an agent that could read it could approve its own calls.

import { existsSync, readdirSync, realpathSync } from "node:fs";
import { basename, dirname, join, sep } from "node:path";
import type { Policy, HostPolicyProblem } from "../../../host/index.js";
import { PROJECT_DIRECTORY, userDataDirectory } from "../../find-data-directory.js";
import { statePaths } from "../../data-directory.js";

/** Just inside a folder of the policy, or around it: seen at every load. */
export function credentialProblems(policy: Policy): HostPolicyProblem[] {
  return [...policy.roots, ...policy.zones].flatMap(({ path, origin = "" }) => {
    const token = tokenReachedFrom(path);
    if (token === undefined) return [];
    return [
      {
        file: policy.file,
        line: Number(origin.split(":").at(-1) ?? 1) || 1,
        column: 1,
        path: "",
        message: `${path} reaches ${token}, with which a gateway's calls are approved`,
        remedy: "move the gateway's data directory elsewhere (--dir), or choose another directory",
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
const MAX_FOLDERS = 2000;

/** Further down, within a bound; for `doctor`. */
export function credentialsBelow(policy: Policy): string[] {
  const found: string[] = [];
  let level = [...policy.roots, ...policy.zones].map((place) => place.path);
  let looked = 0;
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const next: string[] = [];
    for (const folder of level) {
      if (++looked > MAX_FOLDERS) return found;
      const token = statePaths(join(folder, PROJECT_DIRECTORY)).operatorToken;
      if (existsSync(token)) found.push(token);
      next.push(...foldersIn(folder));
    }
    level = next;
  }
  return found;
}

function foldersIn(folder: string): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !/^(\.|node_modules$)/.test(entry.name))
      .map((entry) => join(folder, entry.name));
  } catch {
    return [];
  }
}
