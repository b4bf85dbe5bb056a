// A rule on Cedar's own evaluator: for what the compiler does not cover. Parsed policies live in Cedar's memory under
// a name and are never freed, so the names are few and are used again.

import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";
import type { DetailedError, PolicyJson, SchemaJson } from "@cedar-policy/cedar-wasm/nodejs";
import type { JsonObject } from "../../mcp/index.js";
import { conditionOf } from "../history/source.js";
import { encodeRecord, type Frame, TOOL_GROUP } from "./frame.js";
import { unquote } from "./language/scan.js";
import { readsOf } from "./names.js";
import type { Draft } from "./source.js";
import { DateTime, Decimal, Duration, IpAddress } from "./value/extensions.js";
import { CedarRecord, CedarSet, Entity, EvaluationError, Unencodable, type Value } from "./value/value.js";

type Cedar = typeof import("@cedar-policy/cedar-wasm/nodejs");
export type CedarSchema = SchemaJson<string>;
export type { DetailedError, PolicyJson };

/**
 * Cedar reads policies at the start and at changes: a few calls of code that is large. To optimize that code costs five
 * times what the calls themselves cost, so it is compiled by the baseline compiler only. V8 compiles a function at its
 * first call, so the flags hold during each call, and other WebAssembly (the HTTP parser) is compiled as usual.
 * The names of flags belong to a version of V8; an unknown one is reported on stderr, so other versions keep theirs.
 */
const hasFlags = process.versions.v8.startsWith("11.3.");
const BASELINE = "--no-wasm-tier-up --no-wasm-dynamic-tiering";
const OPTIMIZED = "--wasm-tier-up --wasm-dynamic-tiering";
// V8 11.3 aborted test processes after many calls of Cedar: "unreachable code" in
// `Deoptimizer::DoComputeBuiltinContinuation`, where calls of WebAssembly that are inlined into JavaScript are continued.
if (hasFlags) setFlagsFromString("--no-turbo-inline-js-wasm-calls");

const require = createRequire(import.meta.url);
let instance: Cedar | undefined;
let generation = 0;

export class CedarTrapped extends Error {
  constructor() {
    super("Cedar ran out of stack; the policy is nested too deeply");
    this.name = "CedarTrapped";
  }
}

/** Counts the instances so far: what was prepared in an older one is gone. */
export function cedarGeneration(): number {
  return generation;
}

export function withCedar<T>(use: (cedar: Cedar) => T): T {
  if (hasFlags) setFlagsFromString(BASELINE);
  try {
    instance ??= load();
    return use(instance);
  } catch (error) {
    // A trap, or JavaScript's own stack running out below it.
    if (!(error instanceof Error) || (error.name !== "RuntimeError" && error.name !== "RangeError")) throw error;
    instance = undefined;
    throw new CedarTrapped();
  } finally {
    if (hasFlags) setFlagsFromString(OPTIMIZED);
  }
}

function load(): Cedar {
  const path = require.resolve("@cedar-policy/cedar-wasm/nodejs");
  delete require.cache[path];
  generation++;
  return require(path) as Cedar;
}

type CedarJson = Record<string, never>;

/** How many rules stay parsed in Cedar's memory at once. */
const SLOTS = 64;
const slots: { draft: Draft; generation: number }[] = [];
let nextSlot = 0;

export function evaluateByCedar(draft: Draft, frame: Frame): boolean {
  const context = contextFor(draft, frame);
  const answer = withCedar((cedar) => {
    const preparsedPolicySetId = prepare(cedar, draft);
    return cedar.statefulIsAuthorized({
      ...requestFor(frame, actionsNamedIn(draft.text)),
      context: context as CedarJson,
      preparsedPolicySetId,
    });
  });
  if (answer.type === "failure") throw new EvaluationError(answer.errors.map((error) => error.message).join("; "));
  const [error] = answer.response.diagnostics.errors;
  if (error) throw new EvaluationError(error.error.message);
  return answer.response.diagnostics.reason.length > 0;
}

function prepare(cedar: Parameters<Parameters<typeof withCedar>[0]>[0], draft: Draft): string {
  const generation = cedarGeneration();
  let slot = slots.findIndex((each) => each.draft === draft && each.generation === generation);
  if (slot === -1) {
    slot = nextSlot;
    nextSlot = (nextSlot + 1) % SLOTS;
    const parsed = cedar.preparsePolicySet(`rule-${slot}`, { staticPolicies: { rule: draft.text } });
    if (parsed.type === "failure") throw new EvaluationError("Cedar no longer reads the rule");
    slots[slot] = { draft, generation };
  }
  return `rule-${slot}`;
}

/** In the text rather than the tree, because a rule that runs here may have none. */
function actionsNamedIn(text: string): string[] {
  return [...text.matchAll(/\bAction\s*::\s*("(?:\\.|[^"\\])*")/g)].map(([, id = '""']) => unquote(id));
}

/** Entities and names, as Cedar's JSON form has them. `actions` are those besides the one that is asked for. */
export function requestFor(
  frame: Frame,
  actions: readonly string[],
): {
  principal: Uid;
  action: Uid;
  resource: Uid;
  entities: never[];
} {
  const { app, agent, scope, user, groups, resource } = frame.input;
  const parents: Uid[] = [];
  const attrs: Record<string, unknown> = {};
  if (resource.type === "Agent") {
    const [owner = "", ...rest] = resource.id.split("/");
    parents.push({ type: "App", id: owner });
    Object.assign(
      attrs,
      callerAttributes({ ...resource, app: owner, agent: rest.join("/"), scope: resource.scope ?? [] }),
    );
  } else if (resource.type !== "Method" && resource.server !== undefined) {
    parents.push({ type: "Server", id: resource.server });
    attrs.server = resource.server;
  }
  if (resource.type === "Tool") {
    parents.push(...(resource.tags ?? []).map((id) => ({ type: "Tag", id })));
    attrs.name = resource.id;
    attrs.tags = resource.tags ?? [];
    attrs.readOnly = resource.readOnly ?? false;
  }
  const tools = [...new Set([frame.action.id, ...actions])].filter(frame.isTool);
  const entities = [
    {
      uid: uid(frame.principal),
      attrs: callerAttributes({ app, agent, scope, user, groups }),
      parents: [{ type: "App", id: app }],
    },
    { uid: uid(frame.resource), attrs, parents },
    ...tools.map((id) => ({
      uid: { type: "Action", id },
      attrs: {},
      parents: [{ type: "Action", id: TOOL_GROUP }],
    })),
  ];
  return {
    principal: uid(frame.principal),
    action: uid(frame.action),
    resource: uid(frame.resource),
    entities: entities as unknown as never[],
  };
}

function callerAttributes({ app, agent, scope, user, groups = [] }: Caller): Readonly<Record<string, unknown>> {
  return { app, agent, scope, groups, ...(user === undefined ? {} : { user }) };
}

type Caller = Pick<Frame["input"], "app" | "agent" | "scope" | "user" | "groups">;

interface Uid {
  readonly type: string;
  readonly id: string;
}

function uid(entity: Entity): Uid {
  return { type: entity.type, id: entity.id };
}

/** Cedar refuses a whole request for one value it has no form for, so only what the rule may read is shown to it. */
function contextFor(draft: Draft, frame: Frame): unknown {
  const { arguments: args, forwarded = {}, flow = {}, transport, now, serverRequest } = frame.input;
  const mayRead = readable(draft);
  const shown = (record: CedarRecord): unknown =>
    toCedarJson(
      new CedarRecord(new Map([...record.attrs].filter(([name]) => mayRead === undefined || mayRead.has(name)))),
    );
  return {
    arguments: shown(encodeRecord(args, frame.info.shape, "")),
    forwarded: shown(encodeRecord(forwarded, undefined, "")),
    flow: shown(encodeRecord(flow, undefined, "")),
    approved: frame.approved,
    transport,
    ...(now === undefined ? {} : { now: toCedarJson(frame.now) }),
    ...Object.fromEntries(draft.conditions.map(({ attribute }) => [attribute, conditionAt(frame, attribute)])),
    ...(serverRequest ? { tool: serverRequest.tool } : {}),
  };
}

function conditionAt(frame: Frame, attribute: string): boolean {
  return frame.condition(conditionOf(attribute) ?? -1);
}

/** Top-level arguments and forwarded fields a rule may read; undefined means that it could be any. */
function readable(draft: Draft): Set<string> | undefined {
  if (!draft.tree) return undefined;
  const reads = readsOf(draft.tree);
  return reads.whole ? undefined : new Set(reads.parts.map((read) => read.path[0] ?? ""));
}

/** Throws for a value without a Cedar form. */
export function toCedarJson(value: Value): unknown {
  if (typeof value === "bigint") throw new EvaluationError("an integer past 2^53 has no JSON form");
  if (typeof value !== "object") return value;
  if (value instanceof Unencodable) throw new EvaluationError(value.why);
  if (value instanceof CedarSet) return value.items.map(toCedarJson);
  if (value instanceof CedarRecord) {
    const record: JsonObject = Object.create(null);
    for (const [name, attr] of value.attrs) record[name] = toCedarJson(attr) as never;
    return record;
  }
  if (value instanceof Entity) return { __entity: uid(value) };
  if (value instanceof Decimal) return extension("decimal", value.toString());
  if (value instanceof IpAddress) return extension("ip", value.toString());
  if (value instanceof Duration) return extension("duration", `${value.ms}ms`);
  return {
    __extn: {
      fn: "offset",
      args: [extension("datetime", "1970-01-01"), extension("duration", `${(value as DateTime).ms}ms`)],
    },
  };
}

function extension(fn: string, arg: string): unknown {
  return { __extn: { fn, arg } };
}
