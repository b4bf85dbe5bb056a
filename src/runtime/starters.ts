// Starter policies: written where an operator has no rules yet, and in force only for the server they were written for.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { PolicySet, PolicySource } from "../policy/index.js";

export interface StarterPolicy {
  readonly name: string;
  readonly text: string;
  /** The same rules, already loaded: while they are the only ones, Cedar is not started. */
  readonly set?: PolicySet;
}

const MARK = /^\/\/ `portcullis serve` keeps this file up to date until it is changed: ([0-9a-f]{64})\n$/m;
const MARK_START = "\n// `portcullis serve` keeps this file up to date until it is changed: ";

/** The text with a last line by which `isUntouched` recognizes it. */
export function marked(text: string): string {
  return `${text}${MARK_START}${hashOf(text)}\n`;
}

/** True for a starter that no one has changed since it was written, by this version or another. */
export function isUntouched(text: string): boolean {
  const at = text.lastIndexOf(MARK_START);
  return at >= 0 && MARK.exec(text.slice(at + 1))?.[1] === hashOf(text.slice(0, at));
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** The policy that every application of a new gateway shares: it permits nothing. */
export const COMMON_STARTER: StarterPolicy = {
  name: "common.cedar",
  text: marked(`// Rules for every application, in addition to its own. A saved change applies at once.
// An application cannot override a forbid of this file:
//
//   @id("no-shell")
//   forbid (principal, action in Action::"tools/call", resource)
//   when { resource.name like "*shell*" };
`),
};

/**
 * Brings the starter of this server up to date in a directory that exists. Nothing is written where the operator changed
 * it, or has rules of their own and no starter.
 */
export function updateStarter(directory: string, { name, text }: StarterPolicy): void {
  if (!isUntouched(text)) return;
  const files = readdirSync(directory).filter((file) => file.endsWith(".cedar") && !file.startsWith("."));
  const isOwners = (file: string): boolean => !isUntouched(readFileSync(join(directory, file), "utf8"));
  const own = files.filter((file) => file === name);
  if (files.length === 0 || (own.length > 0 ? own : files).some(isOwners)) return;
  if (own.length > 0 && readFileSync(join(directory, name), "utf8") === text) return;
  writeFileSync(join(directory, name), text, { mode: 0o600 });
}

/**
 * True for the operator's rules and the starter of what is served. `own` is its name, or for commands that know only the
 * tools those: a starter for other tools is not in force.
 */
export function isInForce({ file, text }: PolicySource, own: string | readonly { readonly name: string }[]): boolean {
  if (!isUntouched(text)) return true;
  if (typeof own === "string") return basename(file) === own;
  const tools = new Set(own.map(({ name }) => name));
  const rules = text.replaceAll(/^\/\/.*$/gm, "");
  const named = [...rules.matchAll(/Action::"([^"/]+)"/g)].map(([, name]) => name as string);
  return tools.size === 0 || named.every((name) => tools.has(name));
}
