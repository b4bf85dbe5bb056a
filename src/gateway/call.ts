// One call, one way through: route, capability, validation, intent, decision, record, execution, record.
// Every door of the house ends here.

import { type Decision, deny, makeIntent, refuse, type Verdict } from "../gate/index.js";
import { asFault, Fault, type JsonObject } from "../protocol/index.js";
import type { ToolResult, Validation } from "../tool/index.js";
import { Cancel } from "./cancel.js";
import { hearFromPeople, withoutApproval } from "./challenge.js";
import { execute, type Round } from "./execute.js";
import { forwardedOf, openRound } from "./forward.js";
import { newCallId, type Prepared, recordDecision, recordFailure, recordOutcome, recordUnrouted } from "./record.js";
import { routeFor } from "./route.js";
import type { Gateway, Proposal, RawResult, Route } from "./types.js";

/** What the caller gets: a result, or a fault that the endpoint words for its revision and transport. */
export type Answer =
  | { ok: true; result: JsonObject | RawResult; text: string; route: Route }
  | { ok: false; fault: Fault; route: Route | undefined };

export async function call(gateway: Gateway, proposal: Proposal): Promise<Answer> {
  const started = performance.now();
  let prepared: Prepared;
  try {
    const preparing = prepare(gateway, proposal);
    prepared = preparing instanceof Promise ? await preparing : preparing;
  } catch (error) {
    return { ok: false, fault: await recordUnrouted(gateway, proposal, asFault(error), started), route: undefined };
  }
  const { route, round } = prepared;
  let decision: Decision;
  for (let attempt = 0; ; attempt++) {
    const pending = judge(gateway, proposal, prepared);
    decision = pending instanceof Promise ? await pending : pending;
    try {
      // Written before anything runs: no record, no effect.
      const written = recordDecision(gateway, proposal, prepared, decision);
      if (written) await written;
    } catch (error) {
      decision.release();
      return { ok: false, fault: recordFailure(gateway, proposal, decision, error, started), route };
    }
    if (decision.permit) break;
    if (attempt === 0) {
      const heard = await hearFromPeople(gateway, proposal, route, round, decision);
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
  try {
    const result = await execute(gateway, decision.permit, proposal, round);
    answer = { ok: true, result, text: rendered(gateway, proposal, route, result), route };
  } catch (error) {
    answer = { ok: false, fault: asFault(error), route };
  }
  decision.release(answer.ok ? answer.text.length : 0);
  return recordOutcome(gateway, proposal, prepared, decision, answer, started);
}

/** The answer as its revision words it; over the limit it is a failure, because half an answer is none. */
function rendered(gateway: Gateway, proposal: Proposal, route: Route, result: JsonObject | RawResult): string {
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
      extra: { tool_name: route.name, bytes, max_bytes: maxResultBytes },
    },
  );
}

function prepare(gateway: Gateway, proposal: Proposal): Prepared | Promise<Prepared> {
  const { principal, method, params } = proposal;
  const route = proposal.route ?? routeFor(gateway, principal, method, params);
  const opened = openRound(gateway, proposal, route);
  return opened instanceof Promise
    ? opened.then((round) => preparedFor(proposal, route, round))
    : preparedFor(proposal, route, opened);
}

function preparedFor({ principal, method, params }: Proposal, route: Route, opened: Round): Prepared {
  const round = withoutApproval(opened);
  const intent = makeIntent({
    principal,
    method,
    target: route,
    arguments: route.arguments,
    forwarded: forwardedOf(params, round),
  });
  return { callId: newCallId(), route, round, intent };
}

/** Validation speaks first, then the gate; both may answer at once or later. */
function judge(gateway: Gateway, proposal: Proposal, prepared: Prepared): Decision | Promise<Decision> {
  const { route, intent, round } = prepared;
  const gated = (validation: Validation): Decision | Promise<Decision> => {
    if (!validation.ok) return refuse(gateway.gate.policy, invalid(route, validation));
    const { principal, method, transport } = proposal;
    return gateway.gate.decide(
      { principal, method, target: route, arguments: route.arguments, transport },
      intent,
      round.responses,
    );
  };
  try {
    const checked = route.validate(route.arguments);
    if (!(checked instanceof Promise)) return gated(checked);
    return checked.then(gated).catch((error) => refuse(gateway.gate.policy, unvalidated(route, error)));
  } catch (error) {
    return refuse(gateway.gate.policy, unvalidated(route, error));
  }
}

function invalid(route: Route, validation: Validation & { ok: false }): Verdict {
  const first = validation.problems[0];
  const where = first?.path ? `\`${first.path}\` ` : "";
  return deny("ValidationError", "schema", `arguments of \`${route.name}\`: ${where}${first?.message ?? "invalid"}`, {
    field: first?.path ?? "",
    suggestions: validation.problems.flatMap((problem) => problem.suggestion ?? []),
    extra: { problems: validation.problems },
  });
}

function unvalidated(route: Route, error: unknown): Verdict {
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
  outer: Proposal,
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
  return answer.result as unknown as ToolResult;
}
