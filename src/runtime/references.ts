// `${secret:NAME}` and `${env:NAME}` in the texts of an application's document, resolved where they are used.

import type { Sealer, Storage } from "../storage/index.js";
import { takeVariable } from "./environment.js";
import type { ResolveText } from "./servers.js";

const REFERENCE = /\$\{(secret|env):([A-Za-z0-9_.-]{1,128})\}/g;

export class ReferenceMissing extends Error {
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
