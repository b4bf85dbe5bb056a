// Folders that more than one application can reach. An operator may want that; whoever loads applications can say so.

import { realpathSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { isJsonObject, type JsonValue } from "../../mcp/index.js";
import type { CoreApplication } from "../application.js";

export interface SharedDirectory {
  readonly folder: string;
  /** Whose folder it is, and who reaches it too, by the same folder or one above it. */
  readonly applications: readonly string[];
}

export function sharedDirectories(applications: Iterable<CoreApplication>): SharedDirectory[] {
  const owners = new Map<string, Set<string>>();
  for (const app of applications) {
    for (const folder of foldersOf(app)) owners.set(folder, (owners.get(folder) ?? new Set()).add(app.id));
  }
  const shared: SharedDirectory[] = [];
  for (const [folder, own] of owners) {
    const all = new Set(own);
    for (const above of foldersAbove(folder)) for (const id of owners.get(above) ?? []) all.add(id);
    if (all.size > 1) shared.push({ folder, applications: [...all].sort() });
  }
  return shared;
}

function foldersOf({ filesystem }: CoreApplication): string[] {
  const roots = listOf(filesystem?.allowedRoots);
  const zones = listOf(filesystem?.writeRules).map((rule) => (isJsonObject(rule) ? rule.path : undefined));
  return [...roots, ...zones].filter((folder) => typeof folder === "string").map(realFolder);
}

function listOf(value: JsonValue | undefined): readonly JsonValue[] {
  return Array.isArray(value) ? value : [];
}

function realFolder(folder: string): string {
  try {
    return realpathSync(folder);
  } catch {
    return resolve(folder);
  }
}

function foldersAbove(folder: string): string[] {
  const above: string[] = [];
  for (let at = folder; dirname(at) !== at; ) {
    at = dirname(at);
    above.push(at);
  }
  return above;
}
