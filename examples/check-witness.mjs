#!/usr/bin/env node
// Checks the answer of `portcullis lattice check` without the analyzer: every way it shows must exist in the workflow,
// every delegation on it must let the capability and the arguments through, and the end must really be forbidden.
//   node examples/check-witness.mjs workflow.yaml report.json
// Imports nothing of Portcullis: only a YAML parser and a JSON Schema validator.
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { parse } from "yaml";

const compiled = new Map();

/** Whether a schema accepts a value, in the dialect that the schema declares. */
function accepts(schema, value) {
  const key = JSON.stringify(schema);
  if (!compiled.has(key)) {
    const Dialect = String(schema.$schema).includes("draft-07") ? Ajv : Ajv2020;
    const ajv = new Dialect({ strict: false, logger: false, ownProperties: true });
    (addFormats.default ?? addFormats)(ajv);
    compiled.set(key, ajv.compile(schema));
  }
  return compiled.get(key)(value) === true;
}

/** `server.tool` → input schema, from tools written inline or from manifests. */
function capabilities(workflow, readManifest) {
  const found = new Map();
  for (const [server, { tools, manifest }] of Object.entries(workflow.servers ?? {})) {
    // A manifest is an answer of tools/list, bare or with the JSON-RPC message around it.
    const listed = tools === undefined ? readManifest(manifest) : { tools };
    for (const tool of listed.tools ?? listed.result.tools) {
      found.set(`${server}.${tool.name}`, tool.inputSchema ?? { type: "object" });
    }
  }
  return found;
}

function matches(workflow, pattern, name) {
  if (Object.hasOwn(workflow.labels ?? {}, pattern))
    return workflow.labels[pattern].some((p) => matches(workflow, p, name));
  if (pattern === name) return true;
  const parts = pattern.split("*").map((part) => part.replaceAll(/[$()+.?[\\\]^{|}]/g, "\\$&"));
  return parts.length > 1 && new RegExp(`^${parts.join(".*")}$`, "s").test(name);
}

/** The schemas that a list of patterns, or a mapping from patterns to schemas, has for one capability; all of them hold. */
function entriesFor(workflow, list, name) {
  const entries = Array.isArray(list) ? list.map((pattern) => [pattern, true]) : Object.entries(list);
  return entries.filter(([pattern]) => matches(workflow, pattern, name)).map(([, schema]) => schema);
}

function holds(workflow, agent, capability) {
  const { servers = [], tools } = workflow.agents[agent] ?? {};
  const offered = servers.some((server) => capability.startsWith(`${server}.`));
  return offered && (tools === undefined || entriesFor(workflow, tools, capability).length > 0);
}

function isRoot(workflow, agent) {
  const delegated = (workflow.delegations ?? []).some(({ to }) => to === agent);
  return workflow.agents[agent]?.root ?? !delegated;
}

/** The agents of a way must be joined by the delegations it names. */
function connected(workflow, { agents, delegations }, say) {
  if (agents.length !== delegations.length + 1) say("the way has gaps");
  for (const [i, number] of delegations.entries()) {
    const step = workflow.delegations?.[number];
    if (step?.from !== agents[i] || step?.to !== agents[i + 1])
      say(`delegation ${number} does not lead from ${agents[i]} to ${agents[i + 1]}`);
  }
}

/** A capability with one argument starts at a root and passes every agent and delegation up to the holder. */
function granted(workflow, schemas, grant, say) {
  const { capability, agents, delegations, argument, isProved } = grant;
  if (!isProved) return; // An undecided question is taken as a violation; it shows no argument to check.
  connected(workflow, grant, say);
  if (!isRoot(workflow, agents[0])) say(`${agents[0]} has no authority of its own`);
  for (const agent of agents) if (!holds(workflow, agent, capability)) say(`${agent} is not offered ${capability}`);
  const schema = schemas.get(capability);
  if (schema === undefined || !accepts(schema, argument?.value))
    say(`${capability} does not take ${JSON.stringify(argument?.value)}`);
  for (const number of delegations) {
    const { tools, arguments: narrowed = {} } = workflow.delegations[number] ?? {};
    if (tools !== undefined && entriesFor(workflow, tools, capability).length === 0)
      say(`delegation ${number} does not pass ${capability}`);
    if (!entriesFor(workflow, narrowed, capability).every((schema) => accepts(schema, argument?.value)))
      say(`delegation ${number} does not pass these arguments`);
  }
}

/** All that is wrong with a report, as sentences; an empty list when every witness holds. */
export function checkReport(workflow, report, readManifest = () => ({ tools: [] })) {
  const wrong = [];
  const schemas = capabilities(workflow, readManifest);
  for (const [i, violation] of report.violations.entries()) {
    const say = (text) => wrong.push(`violation ${i} (${violation.kind}, ${violation.agent}): ${text}`);
    if (violation.kind === "allow") {
      const { grant } = violation;
      granted(workflow, schemas, grant, say);
      if (grant.agents.at(-1) !== violation.agent) say("the path ends at another node");
      const allow = workflow.agents[violation.agent]?.allow;
      const allowed = allow === undefined ? [true] : entriesFor(workflow, allow, grant.capability);
      const permits = (schema) => schema === true || (grant.isProved && accepts(schema, grant.argument.value));
      if (allowed.length > 0 && allowed.every(permits)) say("the allow list permits it");
      continue;
    }
    const rule = (workflow.rules ?? []).find(({ name }, n) => (name ?? `rule ${n + 1}`) === violation.rule);
    if (rule === undefined) say(`there is no rule ${violation.rule}`);
    if (rule?.except?.includes(violation.agent) || rule?.agents?.includes(violation.agent) === false)
      say("the rule is not about this agent");
    for (const [t, term] of (rule?.never ?? []).entries()) {
      const evidence = violation.terms[t];
      connected(workflow, evidence, say);
      granted(workflow, schemas, evidence.grant, say);
      if (evidence.agents[0] !== violation.agent) say("the way does not start at the agent");
      if (evidence.agents.at(-1) !== evidence.grant.agents.at(-1)) say("the holder shown is not the one reached");
      if (rule["through-others"] === false && evidence.agents.length > 1)
        say("the rule is about what the agent itself holds");
      if (!matches(workflow, term, evidence.grant.capability)) say(`${evidence.grant.capability} is not ${term}`);
    }
  }
  return wrong;
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [file, reportFile] = process.argv.slice(2);
  if (reportFile === undefined) throw new Error("usage: check-witness.mjs <workflow file> <report.json>");
  const workflow = parse(readFileSync(file, "utf8"));
  const report = JSON.parse(readFileSync(reportFile, "utf8"));
  const wrong = checkReport(workflow, report, (path) => parse(readFileSync(resolve(dirname(file), path), "utf8")));
  for (const line of wrong) console.error(line);
  console.log(`${report.violations.length} witnesses checked, ${wrong.length} problems`);
  process.exitCode = wrong.length === 0 ? 0 : 1;
}
