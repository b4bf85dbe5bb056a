// One call, one way through: route, capability, validation, intent, decision, record, execution, record.
// Every door of the house ends here.

import { type Decision, deny, makeIntent, denyDecision, type CheckResult } from "../policy/index.js";
import { asFault, Charge, Fault, type JsonObject, parsedBytes, valuesOf } from "../mcp/index.js";
import type { ToolResult, Validation } from "../mcp/server/index.js";
import { Cancel } from "./cancel.js";
import { awaitApproval, withoutApproval } from "./approval.js";
import type { StateUse } from "./encrypted-state.js";
import { execute, type InputRound } from "./execute.js";
import { forwardedOf, openInputRound } from "./forward.js";
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
import { routeFor } from "./route.js";
import { type Gateway, type CallRequest, RawResult, type Route } from "./types.js";

/** What the caller gets: a result, or a fault that the endpoint words for its revision and transport. */
export type Answer =
  | { ok: true; result: JsonObject | RawResult; text: string; route: Route }
  | { ok: false; fault: Fault; route: Route | undefined };

export async function call(gateway: Gateway, proposal: CallRequest): Promise<Answer> {
  const { principal, depth } = proposal;
  const started = performance.now();
  // A nested call belongs to one that is in flight: refusing it would waste what that one has done.
  const refused = gateway.refusals.exceeded(principal);
  if (refused) gateway.telemetry.metrics.shed.inc("refusals");
  const exceeded = refused ?? (depth > 0 ? undefined : gateway.calls.refusal(principal));
  if (exceeded) return { ok: false, fault: endUnseen(gateway, proposal, exceeded, started), route: undefined };
  const kept = new Charge(gateway.retained.of(principal));
  if (!kept.set(keptBytes(proposal))) {
    return { ok: false, fault: endUnseen(gateway, proposal, tooMuchInFlight(), started), route: undefined };
  }
  gateway.calls.enter(principal);
  try {
    return await decideAndExecute(gateway, proposal, started);
  } finally {
    gateway.calls.leave(principal);
    kept.set(0);
  }
}

/** Fewer values are part of what an exchange costs anyway. */
const FREE_VALUES = 256;

/** What the parsed parameters cost until the call is answered; their text is charged where it arrived. */
function keptBytes({ params }: CallRequest): number {
  const values = valuesOf(params);
  return values <= FREE_VALUES ? 0 : parsedBytes(0, values);
}

function tooMuchInFlight(): Fault {
  const reason = "the calls of this agent in flight hold too many values; wait for some of them to end";
  return new Fault("TooMany", reason, { extra: { retry_after_ms: 1_000 } });
}

async function decideAndExecute(gateway: Gateway, proposal: CallRequest, started: number): Promise<Answer> {
  let prepared: ResolvedCall;
  try {
    const preparing = prepare(gateway, proposal);
    prepared = preparing instanceof Promise ? await preparing : preparing;
  } catch (error) {
    const fault = await chargedFault(gateway, proposal, asFault(error));
    return { ok: false, fault: await recordUnrouted(gateway, proposal, fault, started), route: undefined };
  }
  const { route, round } = prepared;
  let decision: Decision;
  for (let attempt = 0; ; attempt++) {
    const pending = judge(gateway, proposal, prepared, attempt > 0);
    decision = pending instanceof Promise ? await pending : pending;
    if (decision.permit && round.use) decision = await withState(gateway, proposal, prepared, decision, round.use);
    try {
      // Written before anything runs: no record, no effect.
      const written = recordDecision(gateway, proposal, prepared, decision);
      if (written) await written;
    } catch (error) {
      decision.release();
      await restore(gateway, prepared, decision);
      return { ok: false, fault: recordFailure(gateway, proposal, decision, error, started), route };
    }
    if (decision.permit) break;
    gateway.refusals.charge(proposal.principal, refusalCost(gateway, prepared));
    if (attempt === 0) {
      const heard = await awaitApproval(gateway, proposal, route, round, decision);
      if (heard.kind === "answered") continue;
      if (heard.kind === "asked") {
        const asked: Answer = { ok: true, result: heard.result, text: proposal.render(heard.result), route };
        return recordOutcome(gateway, proposal, prepared, decision, asked, started);
      }
    }
    return recordOutcome(
      gateway,
      proposal,
      prepared,
      decision,
      { ok: false, fault: refusal(gateway, decision), route },
      started,
    );
  }
  let answer: Answer;
  const progress = { started: false };
  try {
    const result = await execute(gateway, decision.permit, proposal, round, progress);
    answer = { ok: true, result, text: rendered(gateway, proposal, route, result), route };
  } catch (error) {
    answer = { ok: false, fault: asFault(error), route };
    reportForOperator(gateway, proposal, route, answer.fault);
  }
  // INVARIANT: an approval and a state are spent by a call that was started, and by no other.
  if (!progress.started) {
    await restore(gateway, prepared, decision);
    if (decision.restoreApproval) recordChallenge(gateway, proposal, prepared, decision, "restored");
  }
  decision.release(answer.ok ? answer.text.length : 0);
  return recordOutcome(gateway, proposal, prepared, decision, answer, started);
}

/** Uses the state of an earlier round together with the permit: of several permitted attempts, one has both. */
async function withState(
  gateway: Gateway,
  { principal }: CallRequest,
  { route }: ResolvedCall,
  decision: Decision,
  use: StateUse,
): Promise<Decision> {
  try {
    await gateway.seal.use(use);
    return decision;
  } catch (error) {
    const { type, message, detail } = asFault(error);
    decision.release();
    await decision.restoreApproval?.();
    const verdict = deny(type, "requestState", message, { field: detail.field ?? "requestState" });
    return gateway.gate.refuse({ principal, target: route }, verdict);
  }
}

async function restore(gateway: Gateway, { round }: ResolvedCall, decision: Decision): Promise<void> {
  await decision.restoreApproval?.();
  if (!decision.permit || !round.use) return;
  await gateway.seal.restore(round.use);
  round.isRestored = true;
}

function reportForOperator(gateway: Gateway, { span }: CallRequest, { server, name }: Route, fault: Fault): void {
  const { operator: problem } = fault.detail;
  if (problem !== undefined) {
    gateway.telemetry.log.warning("a call could not be carried out", { server, tool: name, problem }, span.traceId);
  }
}

/** A call that found no target counts for the caller's limits like any other refusal. */
async function chargedFault(gateway: Gateway, { principal, method }: CallRequest, fault: Fault): Promise<Fault> {
  gateway.refusals.charge(principal);
  const verdict = deny(fault.type, "route", fault.message);
  const decision = await gateway.gate.refuse({ principal, target: { name: method } }, verdict);
  return decision.verdict === verdict ? fault : refusal(gateway, decision);
}

/** Where arguments are kept, a refusal with many of them costs more. */
const CHARS_PER_REFUSAL = 4_096;

function refusalCost(gateway: Gateway, { intent }: ResolvedCall): number {
  return gateway.keepArguments ? 1 + Math.floor(intent.argumentsText.length / CHARS_PER_REFUSAL) : 1;
}

/** The answer as its revision words it; over the limit it is a failure, because half an answer is none. */
function rendered(gateway: Gateway, proposal: CallRequest, route: Route, result: JsonObject | RawResult): string {
  const text = proposal.render(result);
  const { maxResultBytes } = gateway.limits;
  // Three bytes are the most that one character of UTF-16 takes; only what is near the limit has to be counted.
  if (text.length * 3 <= maxResultBytes || route.builtin) return text;
  const bytes = Buffer.byteLength(text);
  if (bytes <= maxResultBytes) return text;
  // Not `TooLarge`, which promises that nothing ran; and in words, because a model reads them.
  const told = `its answer has ${bytes} bytes, over the limit of ${maxResultBytes}`;
  throw new Fault(
    "ToolExecution",
    `\`${route.name}\` ran, but ${told}: ask for less at once, or raise maxResultBytes`,
    {
      suggestions: ["Ask for less at once", "Raise maxResultBytes"],
      retryable: false,
      extra: { tool_name: route.name, bytes, max_bytes: maxResultBytes },
    },
  );
}

function prepare(gateway: Gateway, proposal: CallRequest): ResolvedCall | Promise<ResolvedCall> {
  const { principal, method, params } = proposal;
  const route = proposal.route ?? routeFor(gateway, principal, method, params);
  const opened = openInputRound(gateway, proposal, route);
  return opened instanceof Promise
    ? opened.then((round) => preparedFor(gateway, proposal, route, round))
    : preparedFor(gateway, proposal, route, opened);
}

function preparedFor(gateway: Gateway, proposal: CallRequest, route: Route, opened: InputRound): ResolvedCall {
  const { principal, method, params } = proposal;
  const round = withoutApproval(opened);
  const forwarded = forwardedOf(params, round, route.forwards);
  if (forwarded.dropped.length > 0) reportDropped(gateway, proposal, route, forwarded.dropped);
  const intent = makeIntent({
    principal,
    method,
    target: route,
    arguments: route.arguments,
    forwarded: forwarded.fields,
  });
  return { callId: newCallId(), route, round, intent };
}

const MAX_NAMED_FIELDS = 16;

function reportDropped(gateway: Gateway, { span }: CallRequest, route: Route, dropped: readonly string[]): void {
  const { metrics, log } = gateway.telemetry;
  metrics.droppedFields.add(dropped.length);
  const fields = dropped.slice(0, MAX_NAMED_FIELDS).map((name) => name.slice(0, 128));
  const remedy = "list the fields under `forward` of the server to let them travel";
  log.debug(
    "fields not forwarded to the server",
    { server: route.server, tool: route.name, fields, remedy },
    span.traceId,
  );
}

/** Validation speaks first, then the gate; both may answer at once or later. */
function judge(
  gateway: Gateway,
  proposal: CallRequest,
  prepared: ResolvedCall,
  waited: boolean,
): Decision | Promise<Decision> {
  const { route, intent } = prepared;
  const gated = (validation: Validation): Decision | Promise<Decision> => {
    const { principal, method, transport, span } = proposal;
    if (!validation.ok) return gateway.gate.refuse({ principal, target: route }, invalid(route, validation));
    return gateway.gate.decide(
      { principal, method, target: route, arguments: route.arguments, transport, trace: span.traceId },
      intent,
      waited,
    );
  };
  try {
    const checked = route.validate(route.arguments);
    if (!(checked instanceof Promise)) return gated(checked);
    return checked.then(gated).catch((error) => denyDecision(gateway.gate.policy, unvalidated(route, error)));
  } catch (error) {
    return denyDecision(gateway.gate.policy, unvalidated(route, error));
  }
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

function refusal(gateway: Gateway, decision: Decision): Fault {
  const { verdict, challenge } = decision;
  const url = challenge && gateway.approvalUrl?.(challenge.id);
  return new Fault(verdict.type ?? "PolicyDeny", verdict.reason, {
    rule: verdict.rules.map((rule) => rule.id).join(", "),
    field: verdict.field,
    suggestions:
      url === undefined ? verdict.suggestions : [...(verdict.suggestions ?? []), `A person approves it at ${url}`],
    extra: url === undefined ? verdict.extra : { ...verdict.extra, approval_url: url },
  });
}

/** A tool that calls a tool is a caller like any other: same principal, same gate, bounded depth. */
export async function callInside(
  gateway: Gateway,
  outer: CallRequest,
  name: string,
  args: JsonObject,
): Promise<ToolResult> {
  if (outer.depth >= gateway.limits.maxCallDepth) {
    throw new Fault("TooMany", `tools call tools more than ${gateway.limits.maxCallDepth} deep`);
  }
  const cancel = new Cancel();
  const { principal, revision, transport, conversation, span } = outer;
  const stop = (): void => cancel.abort(outer.cancel.fault as Fault);
  outer.cancel.signal.addEventListener("abort", stop, { once: true });
  const answer = await call(gateway, {
    principal,
    method: "tools/call",
    params: { name, arguments: args },
    requestId: outer.requestId,
    revision,
    transport,
    conversation,
    cancel,
    render: JSON.stringify,
    span: gateway.telemetry.startCall({
      method: "tools/call",
      tool: name,
      app: principal.app,
      agent: principal.agent,
      transport,
      revision: revision.name,
      traceparent: span.traceparent,
    }),
    depth: outer.depth + 1,
  });
  outer.cancel.signal.removeEventListener("abort", stop);
  if (!answer.ok) throw answer.fault;
  const { result } = answer;
  return (result instanceof RawResult ? result.value : result) as unknown as ToolResult;
}
