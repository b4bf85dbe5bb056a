// `serve --oauth FILE`: who may issue tokens for this gateway, read whole or every problem with its line.

import { readFileSync } from "node:fs";
import { placed, readYaml } from "../host/index.js";
import { type OAuthSettings, readOAuthSettings } from "../auth/index.js";
import { takeVariable } from "./environment.js";
import { CliError, EXIT } from "../lib/exit.js";

export function readOAuthFile(file: string, env?: NodeJS.ProcessEnv): OAuthSettings {
  let source: string;
  try {
    source = readFileSync(file, "utf8");
  } catch (error) {
    throw new CliError(`${file} cannot be read (${(error as NodeJS.ErrnoException).code})`, EXIT.usage);
  }
  const yaml = readYaml(source, file);
  const read = yaml.problems.length > 0 ? undefined : readOAuthSettings(yaml.value ?? {});
  if (read?.ok) return withSecrets(read.settings, env);
  const problems = read ? read.problems.map((problem) => placed(problem, yaml.positions)) : yaml.problems;
  const lines = problems.map(
    ({ line, path, message }) => `${file}:${line}: ${path === "" ? "" : `${path} `}${message}`,
  );
  throw new CliError(lines.join("\n"), EXIT.usage, "docs/guides/oauth.md shows a whole file");
}

/** A secret never stands in the file itself. */
function withSecrets(settings: OAuthSettings, env: NodeJS.ProcessEnv | undefined): OAuthSettings {
  const issuers = settings.issuers.map((issuer) => {
    const { introspection } = issuer;
    if (!introspection) return issuer;
    const [, name = ""] = /^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$/.exec(introspection.clientSecret) ?? [];
    const clientSecret = (env === undefined ? takeVariable(name) : env[name]) ?? "";
    if (clientSecret !== "") return { ...issuer, introspection: { ...introspection, clientSecret } };
    throw new CliError(
      `introspection at ${issuer.issuer} has no client secret`,
      EXIT.usage,
      "write clientSecret: ${env:NAME} and set that variable",
    );
  });
  return { ...settings, issuers };
}
