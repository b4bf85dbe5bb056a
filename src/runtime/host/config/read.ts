// Reading a host's policy for a command: whether it holds, and in which words that is said.

import type { Command } from "commander";
import {
  type HostPolicyLoadOptions,
  type LoadResult,
  loadYamlPolicy,
  parsePolicy,
  type Policy,
  policyFor,
  type HostPolicyProblem,
  problemText,
} from "../../../host/index.js";
import { CliError, EXIT } from "../../../lib/exit.js";
import { outFor } from "../../options.js";
import { credentialProblems } from "./credential.js";
import { type HostFiles, requireFile } from "./files.js";
import { programPaths } from "./paths.js";

/** What nothing in a policy may reach, whoever reads it. */
function loadOptions({ config, state }: HostFiles): HostPolicyLoadOptions {
  return { protectedPaths: [state, config], programPaths: programPaths() };
}

export function loadHostPolicy(files: HostFiles): LoadResult {
  return withoutCredentials(loadYamlPolicy(files.config, loadOptions(files)));
}

/** A text as a host would read it from that file. */
export function checkHostPolicy(text: string, files: HostFiles): LoadResult {
  return withoutCredentials(parsePolicy(text, files.config, loadOptions(files)));
}

function withoutCredentials(loaded: LoadResult): LoadResult {
  const problems = loaded.ok ? credentialProblems(loaded.policy) : [];
  return problems.length === 0 ? loaded : { ok: false, problems };
}

/** The policy, or the end of the command with every problem it has. */
export function requireHostPolicy(command: Command, files: HostFiles): Policy {
  requireFile(files.config);
  const loaded = loadHostPolicy(files);
  if (loaded.ok) return loaded.policy;
  throw invalidPolicy(command, files.config, loaded.problems);
}

export function invalidPolicy(command: Command, file: string, problems: readonly HostPolicyProblem[]): CliError {
  const out = outFor(command);
  if (out.json) out.data({ ok: false, file, problems }, () => "");
  return policyProblemsOf(file, problems);
}

export function policyProblemsOf(file: string, problems: readonly HostPolicyProblem[]): CliError {
  const count = problems.length === 1 ? "a problem" : `${problems.length} problems`;
  return new CliError(`${file} has ${count}`, EXIT.invalidPolicy, problems.map(problemText).join("\n"));
}

/** A name that the policy has no profile for would get everything: more than whoever wrote the name meant. */
export function requireClient(policy: Policy, client: string | undefined): Policy {
  if (client === undefined || policy.clients.has(client)) return policyFor(policy, client);
  const known = [...policy.clients.keys()].join(", ");
  throw new CliError(
    `${policy.file} has no profile for the client ${client}`,
    EXIT.invalidPolicy,
    known === "" ? "add one under profiles, or leave --client out" : `add one under profiles, or use one of ${known}`,
  );
}
