// What the `policy` commands do with policy.yaml.

import { homedir } from "node:os";
import { resolve } from "node:path";
import type { Command } from "commander";
import { jsonArguments, outFor } from "../options.js";
import { paint, paintErr } from "../print.js";
import type { ListName } from "./append.js";
import { addEntries, type Edited, readText, replacePolicy, WHEN_IT_HOLDS } from "./edit.js";
import { editCopy } from "./editor.js";
import { explainCall } from "./explain.js";
import type { HostFiles } from "./files.js";
import { withTilde } from "./paths.js";
import { requireClient, requireHostPolicy } from "./read.js";
import { effective, summary } from "./show.js";

const SHORT_HASH = 12;

export function showPolicy(command: Command, files: HostFiles): void {
  const out = outFor(command);
  if (out.json) {
    const policy = requireHostPolicy(command, files);
    out.data({ ...effective(policy), text: readText(files.config) }, () => "");
    return;
  }
  const text = readText(files.config);
  out.note(paintErr.dim(`# ${files.config}`));
  process.stdout.write(text);
}

export function validatePolicy(command: Command, files: HostFiles): void {
  const out = outFor(command);
  const policy = requireHostPolicy(command, files);
  const { file, hash, notices } = policy;
  out.data({ ok: true, file, hash, notices }, () =>
    [
      ...notices.map((notice) => paint.yellow(notice)),
      `${paint.green("ok")}: ${file}, ${hash.slice(0, SHORT_HASH)}`,
      summary(policy),
    ].join("\n"),
  );
}

/** `fs.read` and `fs.write` take a path as it stands, so that nobody has to write JSON to ask. */
export function explainFor(
  command: Command,
  files: HostFiles,
  tool: string,
  text: string | undefined,
  client: string | undefined,
): void {
  const policy = requireClient(requireHostPolicy(command, files), client);
  const isPath = text !== undefined && tool.startsWith("fs.") && !/^\s*\{/.test(text) && text !== "-";
  const path = isPath ? { path: text, ...(tool === "fs.write" ? { data: "", overwrite: true } : {}) } : undefined;
  process.exitCode = explainCall(policy, tool, path ?? jsonArguments(text), outFor(command));
}

export async function editInEditor(command: Command, files: HostFiles): Promise<void> {
  const before = readText(files.config);
  const edited = await editCopy(before, (after) => replacePolicy(command, files, before, after));
  if (edited.after === edited.before) outFor(command).note("nothing changed");
  else report(command, edited);
}

export function addRoot(command: Command, files: HostFiles, folder: string, write: boolean): void {
  const path = spelled(folder);
  const rule: [ListName, unknown][] = write ? [["writeRules", writeRule(path, {})]] : [];
  report(command, addEntries(command, files, [["allowedRoots", path], ...rule]));
}

export interface WriteRuleOptions {
  recursive?: boolean;
  onlyReplace?: boolean;
  maxFileBytes?: number;
}

export function addWrite(command: Command, files: HostFiles, folder: string, options: WriteRuleOptions): void {
  report(command, addEntries(command, files, [["writeRules", writeRule(spelled(folder), options)]]));
}

function writeRule(path: string, { recursive = true, onlyReplace = false, maxFileBytes }: WriteRuleOptions): object {
  return {
    path,
    recursive,
    createIfMissing: !onlyReplace,
    ...(maxFileBytes === undefined ? {} : { maxFileBytes }),
  };
}

/** A path of this terminal's folder; in the file it must mean the same wherever the host is started. */
function spelled(folder: string): string {
  const expanded = folder === "~" || folder.startsWith("~/") ? homedir() + folder.slice(1) : folder;
  return withTilde(resolve(expanded));
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
  out.note(paintErr.dim(WHEN_IT_HOLDS));
}
