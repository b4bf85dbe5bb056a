// One call: route, intent, capability, validation, decision, record, execution, record. Every entry point ends here: MCP
// methods, plain methods, REST, nested calls, requests of servers, `callToolSecure`.

import { asFault, Charge, Fault, type JsonObject, parsedBytes, valuesOf } from "../mcp/index.js";
import type { ToolResult, Validation } from "../mcp/server/index.js";
import { type CheckResult, type Decision, deny, denyDecision, isFlowTarget, makeIntent } from "../policy/index.js";
import { awaitApproval, withoutApproval } from "./approval.js";
import { Cancel } from "./cancel.js";
import type { StateUse } from "./encrypted-state.js";
import { execute, type InputRound } from "./execute.js";
import {
  endUnseen,
  newCallId,
  type ResolvedCall,
  recordChallenge,
  recordDecision,
  recordFailure,
  recordOutcome,
  recordUnrouted,
} from "./record.js";
import { forwardedOf, openInputRound } from "./route.js";
import { type CallRequest, type Pipeline, RawResult, type Route } from "./types.js";

/** `Answer` is a result, or a fault that the endpoint formats for its revision and transport. */
export type Answer =
  | { ok: true; result: JsonObject | RawResult; text: string; route: Route }
  | {
      ok: false;
      fault: Fault;
      route: Route | undefined;
      /** Of a call that was not permitted. */
      decision?: Decision;
      /** What the call ended with, where that could not be recorded. */
      unrecorded?: Answer;
    };

/** `call` takes every request of the product from its route to its outcome. */
export async function call(pipeline: Pipeline, request: CallRequest): Promise<Answer> {
  const { principal } = request;
  const started = performance.now();
  const kept = withinBounds(pipeline, request);
  if (kept instanceof Fault) return { ok: false, fault: endUnseen(pipeline, request, kept, started), route: undefined };
  pipeline.calls.enter(principal);
  try {
    let resolved: ResolvedCall;
    try {
      const resolving = resolve(pipeline, request);
      resolved = resolving instanceof Promise ? await resolving : resolving;
    } catch (error) {
      const fault = await chargedFault(pipeline, request, asFault(error));
      return { ok: false, fault: await recordUnrouted(pipeline, request, fault, started), route: undefined };
    }
    const { route, round } = resolved;
    let decision: Decision;
    for (let attempt = 0; ; attempt++) {
      const deciding = evaluate(pipeline, request, resolved, attempt > 0);
      decision = deciding instanceof Promise ? await deciding : deciding;
      if (decision.permit && round.use) decision = await withState(pipeline, request, resolved, decision, round.use);
      try {
        // INVARIANT: the decision is durable before dispatch. No record, no effect.
        const written = recordDecision(pipeline, request, resolved, decision);
        if (written) await written;
      } catch (error) {
        decision.release();
        await restore(pipeline, resolved, decision);
        return { ok: false, fault: recordFailure(pipeline, request, decision, error, started), route };
      }
      if (decision.permit) break;
      const denied = await answerDenied(pipeline, request, resolved, decision, attempt);
      if (denied) return await recordOutcome(pipeline, request, resolved, decision, denied, started);
    }
    let answer: Answer;
    const progress = { started: false };
    try {
      const result = await execute(pipeline, decision.permit, request, round, progress);
      answer = { ok: true, result, text: render(pipeline, request, route, result), route };
    } catch (error) {
      answer = { ok: false, fault: asFault(error), route };
      reportForOperator(pipeline, request, route, answer.fault);
    }
    if (progress.started) observeFlow(pipeline, request, resolved, answer);
    else await restoreUnused(pipeline, request, resolved, decision);
    decision.release(answer.ok ? answer.text.length : 0);
    return await recordOutcome(pipeline, request, resolved, decision, answer, started);
  } finally {
    pipeline.calls.leave(principal);
    kept.set(0);
  }
}

/** Fewer values are part of what an exchange costs anyway. */
const FREE_VALUES = 256;

/** The charge for the parsed parameters, held until the call is answered; a fault when the call is not even decided. */
function withinBounds(pipeline: Pipeline, { principal, depth, params }: CallRequest): Charge | Fault {
  const refused = pipeline.refusals.exceeded(principal);
  if (refused) pipeline.telemetry.metrics.shed.inc("refusals");
  // A nested call belongs to one that is in flight: refusing it would waste what that one has done.
  const exceeded = refused ?? (depth > 0 ? undefined : pipeline.calls.refusal(principal));
  if (exceeded) return exceeded;
  const kept = new Charge(pipeline.retained.of(principal));
  const values = valuesOf(params);
  if (kept.set(values <= FREE_VALUES ? 0 : parsedBytes(0, values))) return kept;
  const reason = "the calls of this agent in flight hold too many values; wait for some of them to end";
  return new Fault("TooMany", reason, { extra: { retry_after_ms: 1_000 } });
}

/** The answer to a call that is not permitted; undefined when an approver answered, so that it is decided once more. */
async function answerDenied(
  pipeline: Pipeline,
  request: CallRequest,
  resolved: ResolvedCall,
  decision: Decision,
  attempt: number,
): Promise<Answer | undefined> {
  const { route, round } = resolved;
  pipeline.refusals.charge(request.principal, refusalCost(pipeline, resolved));
  if (attempt === 0) {
    const approval = await awaitApproval(pipeline, request, route, round, decision);
    if (approval.kind === "answered") return undefined;
    if (approval.kind === "asked") {
      return { ok: true, result: approval.result, text: request.render(approval.result), route };
    }
  }
  return { ok: false, fault: denialFault(pipeline, decision), route, decision };
}

/** INVARIANT: an approval and a state are spent by a call that was started, and by no other. */
async function restoreUnused(
  pipeline: Pipeline,
  request: CallRequest,
  resolved: ResolvedCall,
  decision: Decision,
): Promise<void> {
  await restore(pipeline, resolved, decision);
  // Not required for anything that follows: a ledger that takes no record fails the outcome as well.
  if (decision.restoreApproval)
    await recordChallenge(pipeline, request, resolved, decision, "restored")?.catch(() => {});
}

/** Uses the state of an earlier round together with the permit: of several permitted attempts, one has both. */
async function withState(
  pipeline: Pipeline,
  { principal }: CallRequest,
  { route }: ResolvedCall,
  decision: Decision,
  use: StateUse,
): Promise<Decision> {
  try {
    await pipeline.stateCipher.use(use);
    return decision;
  } catch (error) {
    const { type, message, detail } = asFault(error);
    decision.release();
    decision.past?.withdraw();
    await decision.restoreApproval?.();
    const denial = deny(type, "requestState", message, { field: detail.field ?? "requestState" });
    return pipeline.gate.chargeDenial({ principal, target: route }, denial);
  }
}

async function restore(pipeline: Pipeline, { round }: ResolvedCall, decision: Decision): Promise<void> {
  await decision.restoreApproval?.();
  if (!decision.permit || !round.use) return;
  await pipeline.stateCipher.restore(round.use);
  round.isRestored = true;
}

function reportForOperator(pipeline: Pipeline, { span }: CallRequest, { server, name }: Route, fault: Fault): void {
  const { operator: problem } = fault.detail;
  if (problem !== undefined) {
    pipeline.telemetry.log.warning("a call could not be carried out", { server, tool: name, problem }, span.traceId);
  }
}

/** A call that found no target counts for the caller's limits like any other denial. */
async function chargedFault(pipeline: Pipeline, { principal, method }: CallRequest, fault: Fault): Promise<Fault> {
  pipeline.refusals.charge(principal);
  const denial = deny(fault.type, "route", fault.message);
  const decision = await pipeline.gate.chargeDenial({ principal, target: { name: method } }, denial);
  return decision.result === denial ? fault : denialFault(pipeline, decision);
}

/** Where arguments are kept, a denial with many of them costs more. */
const CHARS_PER_REFUSAL = 4_096;

function refusalCost(pipeline: Pipeline, { intent }: ResolvedCall): number {
  return pipeline.keepArguments ? 1 + Math.floor(intent.argumentsText.length / CHARS_PER_REFUSAL) : 1;
}

/** INVARIANT: before the caller receives it, so that its next call is decided with it. */
function observeFlow(pipeline: Pipeline, request: CallRequest, { callId, route }: ResolvedCall, answer: Answer): void {
  const { flow } = pipeline.gate;
  if (!flow || !isFlowTarget(route)) return;
  const { principal, session } = request;
  const text = answer.ok ? answer.text : `${answer.fault.message} ${JSON.stringify(answer.fault.detail.extra ?? {})}`;
  flow.observe({ principal, session, target: route, arguments: route.arguments }, callId, text);
}

/** `render` formats the answer for its revision. Over the limit it is a failure: half of an answer is not one. */
function render(pipeline: Pipeline, request: CallRequest, route: Route, result: JsonObject | RawResult): string {
  const text = request.render(result);
  const { maxResultBytes } = pipeline.limits;
  // Three bytes are the most that one character of UTF-16 takes; only what is near the limit has to be counted.
  if (text.length * 3 <= maxResultBytes || route.builtin) return text;
  const bytes = Buffer.byteLength(text);
  if (bytes <= maxResultBytes) return text;
  // Not `TooLarge`, which says that nothing ran.
  throw new Fault(
    "ToolExecution",
    `\`${route.name}\` ran, but its answer has ${bytes} bytes, over the limit of ${maxResultBytes}: ask for less at once, or raise maxResultBytes`,
    {
      suggestions: ["Ask for less at once", "Raise maxResultBytes"],
      retryable: false,
      extra: { tool_name: route.name, bytes, max_bytes: maxResultBytes },
    },
  );
}

function resolve(pipeline: Pipeline, request: CallRequest): ResolvedCall | Promise<ResolvedCall> {
  const { principal, method, params } = request;
  const route = request.route ?? pipeline.resolveRoute(principal, method, params);
  const opened = openInputRound(pipeline, request, route);
  return opened instanceof Promise
    ? opened.then((round) => resolvedFor(pipeline, request, route, round))
    : resolvedFor(pipeline, request, route, opened);
}

function resolvedFor(pipeline: Pipeline, request: CallRequest, route: Route, opened: InputRound): ResolvedCall {
  const { principal, method, params } = request;
  const round = withoutApproval(opened);
  let { forwarded } = route;
  if (forwarded === undefined) {
    const { fields, dropped } = forwardedOf(params, round, route.forwards);
    if (dropped.length > 0) reportDropped(pipeline, request, route, dropped);
    forwarded = fields;
  }
  const intent = makeIntent({ principal, method, target: route, arguments: route.arguments, forwarded });
  return { callId: newCallId(), route, round, intent };
}

const MAX_NAMED_FIELDS = 16;

function reportDropped(pipeline: Pipeline, { span }: CallRequest, route: Route, dropped: readonly string[]): void {
  const { metrics, log } = pipeline.telemetry;
  metrics.droppedFields.add(dropped.length);
  const fields = dropped.slice(0, MAX_NAMED_FIELDS).map((name) => name.slice(0, 128));
  const remedy = "to send the fields, list them under `forward` of the server";
  log.debug(
    "fields not forwarded to the server",
    { server: route.server, tool: route.name, fields, remedy },
    span.traceId,
  );
}

/** Capability, validation, then the gate; the latter two answer at once where nothing has to be waited for. */
function evaluate(
  pipeline: Pipeline,
  request: CallRequest,
  resolved: ResolvedCall,
  waited: boolean,
): Decision | Promise<Decision> {
  const { route, intent } = resolved;
  const { tools } = request.principal;
  if (tools && route.type === "Tool" && !tools.has(route.name)) return beyondCapability(pipeline, request, route);
  const gated = (validation: Validation): Decision | Promise<Decision> => {
    const { principal, method, transport, session, span } = request;
    if (!validation.ok) return pipeline.gate.chargeDenial({ principal, target: route }, invalid(route, validation));
    return pipeline.gate.decide(
      { principal, method, target: route, arguments: route.arguments, transport, session, trace: span.traceId },
      intent,
      waited,
    );
  };
  try {
    const checked = route.validate(route.arguments);
    if (!(checked instanceof Promise)) return gated(checked);
    return checked.then(gated).catch((error) => denyDecision(pipeline.gate.policy, unvalidated(route, error)));
  } catch (error) {
    return denyDecision(pipeline.gate.policy, unvalidated(route, error));
  }
}

function beyondCapability(pipeline: Pipeline, { principal }: CallRequest, target: Route): Promise<Decision> {
  const reason = `\`${target.name}\` is not among the tools that ${principal.app}/${principal.agent} may reach`;
  return pipeline.gate.chargeDenial({ principal, target }, deny("AuthorizationError", "capability", reason));
}

function invalid(route: Route, validation: Validation & { ok: false }): CheckResult {
  const first = validation.problems[0];
  const where = first?.path ? `\`${first.path}\` ` : "";
  return deny(
    "ValidationError",
    "schema",
    `arguments of \`${subjectOf(route)}\`: ${where}${first?.message ?? "invalid"}`,
    {
      field: first?.path ?? "",
      suggestions: validation.problems.flatMap((problem) => problem.suggestion ?? []),
      extra: { problems: validation.problems },
    },
  );
}

function subjectOf(route: Route): string {
  return route.serverRequest ? route.action : route.name;
}

function unvalidated(route: Route, error: unknown): CheckResult {
  const reason = `arguments of \`${route.name}\` could not be validated: ${(error as Error)?.message ?? error}`;
  return deny("ValidationError", "schema", reason);
}

function denialFault(pipeline: Pipeline, decision: Decision): Fault {
  const { challenge, result } = decision;
  const url = challenge && pipeline.approvalUrl?.(challenge.id);
  const { type = "PolicyDeny", reason, rules, field, suggestions = [], extra } = result;
  return new Fault(type, reason, {
    rule: rules.map((rule) => rule.id).join(", "),
    field,
    suggestions: url === undefined ? suggestions : [...suggestions, `An approver approves it at ${url}`],
    extra: url === undefined ? extra : { ...extra, approval_url: url },
  });
}

/** A call that belongs to one in flight, and ends when `parent` ends. */
export async function callWithin(
  pipeline: Pipeline,
  outer: CallRequest,
  parent: Cancel,
  tool: string,
  part: Omit<CallRequest, "revision" | "transport" | "render" | "span">,
): Promise<Answer> {
  const { revision, transport, span } = outer;
  const { method, principal, cancel } = part;
  const { app, agent } = principal;
  const stop = (): void => cancel.abort(parent.fault as Fault);
  if (parent.fault) stop();
  else parent.signal.addEventListener("abort", stop, { once: true });
  const { traceparent } = span;
  const about = { method, tool, app, agent, transport, revision: revision.name, traceparent };
  try {
    const request = { ...part, revision, transport, render: JSON.stringify };
    return await call(pipeline, { ...request, span: pipeline.telemetry.startCall(about) });
  } finally {
    parent.signal.removeEventListener("abort", stop);
  }
}

/** A tool that calls a tool is a caller like any other: same principal, same gate, bounded depth. */
export async function callInside(
  pipeline: Pipeline,
  outer: CallRequest,
  name: string,
  args: JsonObject,
): Promise<ToolResult> {
  if (outer.depth >= pipeline.limits.maxCallDepth) {
    throw new Fault("TooMany", `nested call depth exceeds ${pipeline.limits.maxCallDepth}`);
  }
  const { principal, requestId, conversation, session } = outer;
  const answer = await callWithin(pipeline, outer, outer.cancel, name, {
    principal,
    method: "tools/call",
    params: { name, arguments: args },
    requestId,
    conversation,
    session,
    cancel: new Cancel(),
    depth: outer.depth + 1,
  });
  return toolResultOf(answer);
}

/** The result of a `tools/call`; throws the fault of one that failed. */
export function toolResultOf(answer: Answer): ToolResult {
  if (!answer.ok) throw answer.fault;
  const { result } = answer;
  return (result instanceof RawResult ? result.value : result) as unknown as ToolResult;
}
