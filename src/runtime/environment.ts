// Variables that hold secrets leave the process's environment once they have been read: nothing that this process starts
// later can inherit them, whatever starts it. Their values stay here, for settings that are read again.

import { createRequire } from "node:module";
import type { Sealer, Storage } from "../storage/index.js";
import type { ResolveText } from "./servers.js";

const kept = new Map<string, string>();

/** Names of what every program needs; a setting may refer to them, but they hold no secret. */
const ORDINARY = new Set("HOME LANG LC_ALL LOGNAME PATH SHELL TERM TMPDIR TZ USER HOSTNAME PWD".split(" "));

/** `environment` is the environment together with what was taken out of it. */
export function environment(): NodeJS.ProcessEnv {
  return { ...Object.fromEntries(kept), ...process.env };
}

/** `takeVariable` reads a variable and removes it from the environment. */
export function takeVariable(name: string): string | undefined {
  const value = process.env[name];
  if (value === undefined) return kept.get(name);
  if (!ORDINARY.has(name)) {
    kept.set(name, value);
    delete process.env[name];
  }
  return value;
}

const WITH_PASSWORD = /:\/\/[^/@\s]*:[^/@\s]+@/;

/** A URL with a password on the command line is replaced there: every user of the machine can list it otherwise. */
export function hideCommandLine(): void {
  if (process.argv.some((text) => WITH_PASSWORD.test(text))) process.title = "portcullis";
}

const REFERENCE = /\$\{(secret|env):([A-Za-z0-9_.-]{1,128})\}/g;

class ReferenceMissing extends Error {
  readonly code = "REFERENCE_MISSING";
}

export function referenceResolver(
  storage: Pick<Storage, "secrets">,
  sealer: Sealer,
  variable: (name: string) => string | undefined = takeVariable,
): ResolveText {
  return async (app, text, onSecret) => {
    const found = [...text.matchAll(REFERENCE)];
    if (found.length === 0) return text;
    const values = new Map<string, string>();
    for (const [whole, kind, name = ""] of found) {
      const value = kind === "env" ? fromEnvironment(variable, name) : await fromSecrets(storage, sealer, app, name);
      onSecret?.(value);
      values.set(whole, value);
    }
    return text.replace(REFERENCE, (whole) => values.get(whole) ?? whole);
  };
}

function fromEnvironment(variable: (name: string) => string | undefined, name: string): string {
  const value = variable(name);
  if (value !== undefined) return value;
  throw new ReferenceMissing(`the variable ${name} is not set; set it where the gateway is started`);
}

async function fromSecrets(
  storage: Pick<Storage, "secrets">,
  sealer: Sealer,
  app: string,
  name: string,
): Promise<string> {
  const secret = await storage.secrets.get(app, name);
  if (secret) return sealer.open({ kind: "secret", app, name }, secret.sealed);
  throw new ReferenceMissing(
    `application ${app} has no secret ${name}; add it with: portcullis secret set ${app} ${name}`,
  );
}

const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };

export const VERSION: string = version;
