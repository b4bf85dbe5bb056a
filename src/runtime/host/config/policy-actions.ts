// What the `policy` commands do with policy.yaml.

import { homedir } from "node:os";
import { isAbsolute, resolve } from "node:path";
import type { Command } from "commander";
import { parse } from "yaml";
import { realPathOf } from "../../../host/index.js";
import { paint, paintErr } from "../../../lib/print.js";
import { hostArguments, outFor } from "../../options.js";
import { type Edited, editCopy, editPolicy, type PolicyEdit, readText, replacePolicy, WHEN_IT_HOLDS } from "./edit.js";
import type { HostFiles } from "./files.js";
import { withTilde } from "./paths.js";
import { invalidPolicy, requireClient, requireClosed, requireHostPolicy } from "./read.js";
import { effectiveText, explainHostCall, policySummary } from "./show.js";
import { appendEntry, changeEntry, type PolicyFields } from "./yaml-edit.js";

const SHORT_HASH = 12;

export function showPolicy(command: Command, files: HostFiles): void {
  const out = outFor(command);
  if (out.json) {
    const policy = requireHostPolicy(command, files);
    out.data({ ...effectiveText(policy), text: readText(files.config) }, () => "");
    return;
  }
  const text = readText(files.config);
  out.note(paintErr.dim(`# ${files.config}`));
  process.stdout.write(text);
}

export function validatePolicy(command: Command, files: HostFiles): void {
  const out = outFor(command);
  const policy = requireHostPolicy(command, files);
  requireClosed(files.config);
  const { file, hash, notices } = policy;
  out.data({ ok: true, file, hash, notices }, () =>
    [
      ...notices.map((notice) => paint.yellow(notice)),
      `${paint.green("ok")}: ${file}, ${hash.slice(0, SHORT_HASH)}`,
      policySummary(policy),
    ].join("\n"),
  );
}

export function explainFor(
  command: Command,
  files: HostFiles,
  tool: string,
  text: string | undefined,
  client: string | undefined,
): void {
  const policy = requireClient(requireHostPolicy(command, files), client);
  process.exitCode = explainHostCall(policy, tool, hostArguments(tool, text), outFor(command));
}

export async function editInEditor(command: Command, files: HostFiles): Promise<void> {
  const before = readText(files.config);
  const edited = await editCopy(before, (after, copy) =>
    replacePolicy(files, before, after, (problems) =>
      invalidPolicy(
        command,
        copy,
        problems.map((problem) => ({ ...problem, file: copy })),
      ),
    ),
  );
  if (edited.after === edited.before) outFor(command).note("nothing changed");
  else report(command, edited);
}

export function addRoot(command: Command, files: HostFiles, directory: string, write: boolean): void {
  const path = spelled(directory);
  const root: PolicyEdit = (text) =>
    indexOf(text, "allowedRoots", path) < 0 ? appendEntry(text, "allowedRoots", path) : text;
  report(command, editPolicy(command, files, write ? [root, writing(path, {})] : [root]));
}

export interface WriteRuleOptions {
  recursive?: boolean;
  onlyReplace?: boolean;
  maxFileBytes?: number;
}

export function addWrite(command: Command, files: HostFiles, directory: string, options: WriteRuleOptions): void {
  report(command, editPolicy(command, files, [writing(spelled(directory), options)]));
}

/** A directory has one rule: another would be ignored, or ignore this one. What the options take away is taken from it. */
function writing(path: string, options: WriteRuleOptions): PolicyEdit {
  const { recursive = true, onlyReplace = false, maxFileBytes } = options;
  const size: PolicyFields = maxFileBytes === undefined ? {} : { maxFileBytes };
  const tighter: PolicyFields = {
    ...(recursive ? {} : { recursive }),
    ...(onlyReplace ? { createIfMissing: false } : {}),
    ...size,
  };
  return (text) => {
    const index = indexOf(text, "writeRules", path);
    if (index >= 0) return changeEntry(text, "writeRules", index, tighter);
    return appendEntry(text, "writeRules", { path, recursive, createIfMissing: !onlyReplace, ...size });
  };
}

/** Of the entry for the same directory, however it is spelled. */
function indexOf(text: string, list: "allowedRoots" | "writeRules", path: string): number {
  const entries = (parse(text) as Record<string, unknown> | null)?.[list];
  if (!Array.isArray(entries)) return -1;
  const same = realPathOf(expanded(path));
  return entries.findIndex((entry: string | { path: string }) => {
    const written = expanded(typeof entry === "string" ? entry : entry.path);
    return isAbsolute(written) && realPathOf(written) === same;
  });
}

function expanded(path: string): string {
  return path === "~" || path.startsWith("~/") ? homedir() + path.slice(1) : path;
}

/** A path of this terminal's directory; in the file it must mean the same wherever the host is started. */
function spelled(directory: string): string {
  return withTilde(resolve(expanded(directory)));
}

export function report(command: Command, edited: Edited): void {
  const out = outFor(command);
  const { added } = edited;
  const { file, hash } = edited.policy;
  out.data({ ok: true, file, hash, added }, () =>
    [
      `${paint.green("ok")}: ${file}, ${hash.slice(0, SHORT_HASH)}`,
      ...added.map((line) => paint.green(`+ ${line}`)),
    ].join("\n"),
  );
  const isSame = edited.after === edited.before;
  out.note(
    paintErr.dim(
      isSame ? "nothing changed: the policy has it already; `portcullis policy edit` changes it" : WHEN_IT_HOLDS,
    ),
  );
}
