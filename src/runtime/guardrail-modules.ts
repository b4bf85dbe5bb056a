// JavaScript guardrails: files in the directory `guardrails` of the data directory. A document names a file there and
// nothing else, so that who may change a document cannot choose code of this process.

import { statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { GuardrailCallback } from "../policy/index.js";

export const GUARDRAILS_DIRECTORY = "guardrails";

/** `guardrailModules` loads a file again when it has changed, the next time its application is opened or changed. */
export function guardrailModules(dataDirectory: string): (file: string) => Promise<GuardrailCallback> {
  const directory = join(dataDirectory, GUARDRAILS_DIRECTORY);
  return async (file) => {
    const path = join(directory, file);
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats?.isFile() !== true) throw new Error(`${path} does not exist: create it on every machine of this gateway`);
    const url = pathToFileURL(path);
    url.searchParams.set("changed", String(stats.mtimeMs));
    const { default: callback } = (await import(url.href)) as { default?: unknown };
    if (typeof callback !== "function") throw new Error(`${path} has no function as its default export`);
    return callback as GuardrailCallback;
  };
}
