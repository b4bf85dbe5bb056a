import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { counted, effectWord, type Out, paint } from "../../lib/print.js";
import type { JsonObject } from "../../mcp/index.js";
import type { Problem } from "../../mcp/server/index.js";
import {
  type CaseResult,
  describeProblem,
  diffPolicies,
  METHODS,
  NO_FLOW,
  type ObservedCall,
  type PolicyCase,
  PolicyInvalid,
  type PolicyRequest,
  type PolicySet,
  parseCases,
  permitForServer,
  runCases,
  SERVER_REQUESTS,
  serverRequest,
  suggestPolicy,
  type ToolSummary,
} from "../../policy/index.js";
import { type HostFileOptions, type HostFiles, hostFiles } from "../../runtime/host/config/files.js";
import { HOST_APP, HOST_TOOLS } from "../../runtime/host/starter-policy.js";
import { hostArguments, jsonArguments, outFor } from "../../runtime/options.js";
import { afterRecorded, asAsked, pastLine, recorded } from "../../runtime/recorded-requests.js";
import {
  type CheckedTools,
  hostApps,
  type Served,
  type ServedOptions,
  schemaProblems,
  servedApps,
  servedBy,
  withProblems,
  withServedOptions,
} from "../../runtime/served.js";
import { addHostPolicyCommands } from "./host.js";

interface ExplainOptions {
  agent?: string;
  user?: string;
  group: string[];
  client?: string;
  forwarded?: string;
  server?: string;
  during: string;
}

export function addPolicyCommands(program: Command): void {
  const policy = program
    .command("policy")
    .description("check, explain, test, compare and suggest policies; edit the host's policy.yaml");
  const common = withServedOptions;

  common(policy.command("check"))
    .description("validate the policies of every application, or of one with --app (policy.yaml: --config)")
    .option("--config <file>", "validate a host's policy.yaml instead")
    .option("--state <directory>", "directory of that host's state")
    .action(async (options: ServedOptions & HostFileOptions, command: Command) => {
      const yaml = yamlPolicy(options);
      if (yaml) return (await import("../../runtime/host/config/policy-actions.js")).validatePolicy(command, yaml);
      await checkPolicies(command, options);
    });

  common(policy.command("explain <tool> [arguments]"))
    .description("explain a decision: the rules, the conditions and their values")
    .option("--agent <app/agent>", "caller; for a request of a server, whose client gets it (default: APP/local)")
    .option("--user <name>", "user behind the caller, for rules that read principal.user")
    .option("--group <name...>", "groups of the caller, for rules that read principal.groups", [])
    .option("--forwarded <json>", "fields that are sent beside the arguments: _meta, inputResponses and others")
    .option("--server <name>", "server that sends elicitation/create, sampling/createMessage or roots/list")
    .option("--during <tool>", "tool of the call that such a request belongs to", "")
    .option("--config <file>", "decide by a host's policy.yaml (default for fs.read, fs.write and cmd.run)")
    .option("--state <directory>", "directory of that host's state")
    .option("--client <name>", "profile of policy.yaml to decide by")
    .action(
      async (
        tool: string,
        text: string | undefined,
        options: ServedOptions & HostFileOptions & ExplainOptions,
        command: Command,
      ) => {
        const out = outFor(command);
        let served = await servedBy(command, { ...options, app: options.app ?? appOf(options.agent) });
        const isHostCall = isHostTool(tool, served.tools, options);
        // A host that has not served yet has policy.yaml alone.
        const isYamlAlone = isHostCall && (hasHostFlag(options) || hostApps(command).length === 0);
        const yaml = yamlPolicy(options) ?? (isYamlAlone ? hostFiles(options) : undefined);
        if (yaml) {
          const { explainFor } = await import("../../runtime/host/config/policy-actions.js");
          explainFor(command, yaml, tool, text, options.client);
          return;
        }
        if (isHostCall) served = await servedBy(command, { ...options, app: HOST_APP });
        const { tools } = served;
        const set = load(command, served);
        const args = served.app === HOST_APP ? hostArguments(tool, text) : jsonArguments(text);
        const asked = requestFor(served, tool, args, options);
        const { request, past } = await afterRecorded(served, set, asked);
        const explanation = withProblems(tools, request, set.explain(request), await schemaProblems(tools, request));
        const { serverRequest: asks } = request;
        const isSilent = explanation.decision.effect === "deny" && explanation.decision.rules.length === 0;
        const add = asks && isSilent ? permitForServer(request.app, asks.server, request.action) : undefined;
        const data = { ...explanation, ...(past.length > 0 ? { past } : {}), ...(add ? { rule_to_add: add } : {}) };
        const more = [...past.map(pastLine), ...(add === undefined ? [] : [`  to permit it, add: ${add}`])];
        out.data(data, () => [explained(explanation), ...more].join("\n"));
        const { effect } = explanation.decision;
        process.exitCode = effect === "permit" ? EXIT.ok : effect === "deny" ? EXIT.deny : EXIT.challenge;
      },
    );

  common(policy.command("test <file...>"))
    .description("run policy test cases")
    .action(async (files: string[], options: ServedOptions, command: Command) => {
      const out = outFor(command);
      const served = await servedBy(command, options);
      const { tools } = served;
      const set = load(command, served);
      const results: CaseResult[] = [];
      for (const file of files) {
        const cases = await parseCases(file, readText(file));
        const problems = new Map<PolicyCase, readonly Problem[]>();
        for (const each of cases) problems.set(each, await schemaProblems(tools, each.request));
        results.push(
          ...runCases(set, cases, (each, explanation) =>
            withProblems(tools, each.request, explanation, problems.get(each) ?? []),
          ),
        );
      }
      const failed = results.filter((result) => !result.ok);
      out.data({ passed: results.length - failed.length, failed: failed.length, results }, () =>
        [
          ...failed.map(({ case: each, message }) => `${paint.red("✗")} ${each.file}:${each.line} ${message}`),
          `${results.length - failed.length} passed, ${failed.length} failed`,
        ].join("\n"),
      );
      if (failed.length > 0) process.exitCode = EXIT.error;
    });

  common(policy.command("diff <old> <new>"))
    .description("list the rules and the decisions that differ between two policies")
    .option("--cases <file...>", "files with cases to decide")
    .option("--recorded", "decide the calls in the ledgers")
    .action(
      async (
        before: string,
        after: string,
        options: ServedOptions & { cases?: string[]; recorded?: boolean },
        command: Command,
      ) => {
        const out = outFor(command);
        const served = await servedBy(command, options);
        const old = await served.loadFiles([before]);
        const now = await served.loadFiles([after]);
        const requests: PolicyRequest[] = [];
        for (const file of options.cases ?? []) {
          for (const each of await parseCases(file, readText(file))) requests.push(each.request);
        }
        if (options.recorded) for await (const { request } of recorded(served)) requests.push(request);
        const diff = diffPolicies(old, now, requests);
        out.data(diff, () =>
          [
            ...diff.removed.map((rule) => paint.red(`- ${rule.id} (${rule.file}:${rule.line})`)),
            ...diff.added.map((rule) => paint.green(`+ ${rule.id} (${rule.file}:${rule.line})`)),
            ...diff.changed.map((change) => paint.yellow(`~ ${change.id} (${change.after.file}:${change.after.line})`)),
            ...diff.decisions.map(({ request, before: was, after: is }) => changeLine(request, was.effect, is.effect)),
            `${diff.decisions.length} of ${diff.compared} decisions differ`,
          ].join("\n"),
        );
      },
    );

  common(policy.command("suggest"))
    .description("write the narrowest policy that permits the recorded calls")
    .option("--only-denied", "only calls that were not permitted")
    .action(async (options: ServedOptions & { onlyDenied?: boolean }, command: Command) => {
      const out = outFor(command);
      const served = await servedBy(command, options);
      // The record does not name the approvers; the rules in force do.
      const inForce = loadedOrNothing(served);
      const calls: ObservedCall[] = [];
      for await (const { request, effect, rules, hasArguments } of asAsked(recorded(served))) {
        if (options.onlyDenied && effect === "permit") continue;
        const { app, agent, action, resource, arguments: args } = request;
        const approvers = effect === "challenge" ? inForce?.decide(request).approvers : undefined;
        calls.push({
          app,
          agent,
          action,
          resource,
          effect,
          rules,
          ...(approvers ? { approvers } : {}),
          ...(hasArguments ? { arguments: args } : {}),
        });
      }
      const text = suggestPolicy(calls, served.tools);
      out.data({ calls: calls.length, policy: text }, () => text);
      if (calls.length === 0)
        out.note("no recorded calls: run `portcullis serve --observe --keep-arguments` for a while");
    });

  addHostPolicyCommands(policy);
}

/** policy.yaml is the host's; everything else is Cedar. */
function yamlPolicy({ policy = [], ...options }: ServedOptions & HostFileOptions): HostFiles | undefined {
  const named = options.config ?? policy.find((path) => /\.ya?ml$/.test(path));
  return named === undefined ? undefined : hostFiles({ ...options, config: named });
}

/** A host tool by its name: no policy was named, and no served tool has that name. */
function isHostTool(tool: string, served: readonly ToolSummary[], { policy }: ServedOptions): boolean {
  return HOST_TOOLS.has(tool) && policy === undefined && !served.some((each) => each.name === tool);
}

function hasHostFlag({ state, client }: HostFileOptions & ExplainOptions): boolean {
  return state !== undefined || client !== undefined;
}

function load(command: Command, served: Served): PolicySet {
  try {
    return served.load();
  } catch (error) {
    throw invalid(outFor(command), error);
  }
}

function loadedOrNothing(served: Served): PolicySet | undefined {
  try {
    return served.load();
  } catch {
    return undefined;
  }
}

async function checkPolicies(command: Command, options: ServedOptions): Promise<void> {
  const out = outFor(command);
  const apps = options.app === undefined ? await servedApps(command, options) : [options.app];
  const facts: { app: string; ok: true; hash: string; rules: number; warnings: PolicySet["warnings"] }[] = [];
  for (const app of apps) {
    const served = await servedBy(command, { ...options, app });
    const { hash, rules, warnings } = load(command, served);
    // Without tools every rule that names one would have a warning.
    const isUnserved = served.tools.length === 0;
    facts.push({ app, ok: true, hash, rules: rules.length, warnings: isUnserved ? [] : warnings });
    if (isUnserved) out.note(`the tools of ${app} are not known yet: check it again once \`portcullis serve\` has run`);
  }
  out.data(facts.length === 1 ? facts[0] : facts, () =>
    facts
      .flatMap(({ app, hash, rules, warnings }) => [
        ...warnings.map((warning) => paint.yellow(describeProblem(warning))),
        `${paint.green("ok")}: ${facts.length > 1 ? `${app}: ` : ""}${counted(rules, "rule")}, ${hash.slice(0, 12)}`,
      ])
      .join("\n"),
  );
}

/** The application part of `app/agent`. */
function appOf(agent: string | undefined): string | undefined {
  const slash = agent?.indexOf("/") ?? -1;
  return slash < 1 ? undefined : agent?.slice(0, slash);
}

function invalid(out: Out, error: unknown): unknown {
  if (!(error instanceof PolicyInvalid)) return error;
  if (out.json) out.data({ ok: false, problems: error.problems }, () => "");
  return new CliError(
    `the policy has ${counted(error.problems.length, "problem")}`,
    EXIT.invalidPolicy,
    error.problems.map(describeProblem).join("\n"),
  );
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
}

function requestFor(
  { app, tools }: Served,
  name: string,
  args: JsonObject,
  { agent = `${app}/local`, user, group: groups, forwarded, server, during }: ExplainOptions,
): PolicyRequest {
  const slash = agent.indexOf("/");
  if (slash < 1 || slash === agent.length - 1)
    throw new CliError(`invalid agent \`${agent}\`: expected app/agent`, EXIT.usage);
  const tool = tools.find((each) => each.name === name);
  const isMethod = Object.hasOwn(METHODS, name);
  if (!tool && !isMethod) {
    throw new CliError(
      `unknown tool \`${name}\` in application \`${app}\``,
      EXIT.usage,
      tools.length === 0
        ? "its tools are not known yet: start the gateway, or name a file with an answer of tools/list (--tools FILE)"
        : `known: ${tools.map((each) => each.name).join(", ")}`,
    );
  }
  const caller = { app: agent.slice(0, slash), agent: agent.slice(slash + 1), scope: [], user, groups };
  const sent = { arguments: args, forwarded: jsonArguments(forwarded) };
  const rest = { ...sent, flow: NO_FLOW, transport: "http", now: Date.now() };
  const asks = SERVER_REQUESTS.find((method) => method === name);
  if (asks) {
    if (!server) throw new CliError(`\`${name}\` is a request of a server: name it with --server`, EXIT.usage);
    return { ...serverRequest({ ...caller, server, method: asks, tool: during }), ...rest };
  }
  return {
    ...caller,
    action: name,
    resource: tool
      ? { type: "Tool", id: name, server: tool.server, tags: tool.tags, readOnly: tool.readOnly }
      : { type: "Method", id: name },
    ...rest,
  };
}

function explained({ decision, rules, refusedBy, policy, problems }: CheckedTools): string {
  const lines = [`${effectWord(decision.effect)}${decision.reason === "" ? "" : `: ${decision.reason}`}`];
  if (refusedBy) lines.push(`  refused by the ${refusedBy}; policy alone says ${effectWord(policy.effect)}`);
  for (const { path, message, expected } of problems) {
    lines.push(
      paint.red(`  ${path === "" ? "the arguments" : path}: ${message}${expected ? ` (right: ${expected})` : ""}`),
    );
  }
  for (const error of decision.errors) lines.push(paint.red(`  error: ${error}`));
  for (const rule of rules) {
    const mark = rule.matched ? paint.bold("matched") : "no match";
    // A default, such as that of a host, stands in no line.
    const { part, line, text } = rule.decidedBy;
    lines.push(`  ${rule.effect} ${rule.id} (${rule.file}${rule.line > 0 ? `:${rule.line}` : ""}) ${mark}`);
    lines.push(`    ${part}${line > 0 ? ` at line ${line}` : ""}: ${text}`);
    for (const { expression, value, problem } of rule.values) {
      lines.push(`      ${expression}${value === undefined ? `: ${problem}` : ` = ${value}`}`);
    }
    if (rule.error !== undefined) lines.push(paint.red(`    ${rule.error}`));
  }
  if (rules.length === 0) lines.push("  no matching rule");
  return lines.join("\n");
}

export function changeLine(request: PolicyRequest, before: string, after: string): string {
  const who = `${request.app}/${request.agent}`;
  const how =
    before === after
      ? `${effectWord(after)} with other approvers or obligations`
      : `${effectWord(before)} → ${effectWord(after)}`;
  return `${how}  ${who} ${request.action} ${JSON.stringify(request.arguments)}`;
}
