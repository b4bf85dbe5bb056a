// The operator's credential of a gateway on the same machine: an agent that could read it could approve its own calls.

import { existsSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Policy, PolicyProblem } from "../../host/index.js";
import { DEFAULT_STATE_DIR, statePaths } from "../state.js";

/** Just inside a folder of the policy, or around it: seen at every load. */
export function credentialProblems(policy: Policy): PolicyProblem[] {
  return [...policy.roots, ...policy.zones].flatMap(({ path, origin = "" }) => {
    const around = basename(path) === DEFAULT_STATE_DIR ? dirname(path) : path;
    const token = statePaths(join(around, DEFAULT_STATE_DIR)).operatorToken;
    if (!existsSync(token)) return [];
    return [
      {
        file: policy.file,
        line: Number(origin.split(":").at(-1) ?? 1) || 1,
        column: 1,
        path: "",
        message: `${path} reaches ${token}, with which a gateway's calls are approved`,
        remedy: "move the gateway's working folder elsewhere (--dir), or choose another folder",
      },
    ];
  });
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
      const token = statePaths(join(folder, DEFAULT_STATE_DIR)).operatorToken;
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
