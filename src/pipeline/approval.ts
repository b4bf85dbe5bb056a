// A call that needs an approval. A client that can open a page gets its URL; every other one may wait for a while, and
// then gets the answer that nothing ran and that the same call can be repeated.

import { GATEWAY_ORIGIN, isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import type { Challenge, Decision } from "../policy/index.js";
import { bindingOf } from "./encrypted-state.js";
import type { InputRound } from "./execute.js";
import type { CallRequest, Pipeline, Route } from "./types.js";

/** A caller that waits for less time than the gateway puts the milliseconds into `_meta`. */
const WAIT_META = "portcullis/challengeWaitMs";
const ANSWER_KEY = "portcullis_approval";
const PROGRESS_EVERY_MS = 5_000;

/** What our own elicitation adds to the encrypted state, around the state that was there. */
interface AskedState {
  readonly portcullisChallenge: string;
  readonly inner?: JsonValue;
}

/** Our own elicitation is not part of the call: its answer is removed before the call is decided. */
export function withoutApproval(round: InputRound): InputRound & { readonly asked: string | undefined } {
  const { state } = round;
  if (!isAsked(state)) return { ...round, asked: undefined };
  const { [ANSWER_KEY]: _ours, ...responses } = round.responses;
  return { ...round, responses, state: state.inner, asked: state.portcullisChallenge };
}

function isAsked(state: JsonValue | undefined): state is JsonValue & AskedState {
  return isJsonObject(state) && typeof state.portcullisChallenge === "string";
}

type ApprovalOutcome =
  /** An approver answered: the call is decided once more. */
  | { readonly kind: "answered" }
  /** The client is asked by ending the exchange. */
  | { readonly kind: "asked"; readonly result: JsonObject }
  | { readonly kind: "pending" };

export async function awaitApproval(
  pipeline: Pipeline,
  request: CallRequest,
  route: Route,
  round: InputRound & { readonly asked: string | undefined },
  decision: Decision,
): Promise<ApprovalOutcome> {
  const { challenge } = decision;
  if (!challenge) return { kind: "pending" };
  const url = pipeline.approvalUrl?.(challenge.id);
  const canOpen = url !== undefined && opensUrls(request.conversation.clientCapabilities);
  if (canOpen && !request.conversation.request && round.asked !== challenge.id) {
    return { kind: "asked", result: inputRequired(pipeline, request, route, round, challenge, url) };
  }
  if (canOpen && request.conversation.request && !(await openedByClient(request, challenge, url))) {
    return { kind: "pending" };
  }
  return (await answeredInTime(pipeline, request, challenge, canOpen)) ? { kind: "answered" } : { kind: "pending" };
}

function opensUrls(capabilities: JsonObject): boolean {
  return isJsonObject(capabilities.elicitation) && capabilities.elicitation.url !== undefined;
}

function elicitation(challenge: Challenge, url: string): JsonObject {
  const message = `${challenge.reason || "This call needs an approval."} Open the page to approve or deny it.`;
  return { mode: "url", elicitationId: challenge.id, url, message, _meta: GATEWAY_ORIGIN };
}

function inputRequired(
  pipeline: Pipeline,
  request: CallRequest,
  route: Route,
  round: InputRound,
  challenge: Challenge,
  url: string,
): JsonObject {
  const bind = bindingOf(request.principal, request.method, route.name, route.arguments);
  const state: AskedState = {
    portcullisChallenge: challenge.id,
    ...(round.state === undefined ? {} : { inner: round.state }),
  };
  return {
    resultType: "input_required",
    inputRequests: { [ANSWER_KEY]: { method: "elicitation/create", params: elicitation(challenge, url) } },
    requestState: pipeline.stateCipher.encrypt(
      bind,
      { responses: round.responses, state: state as unknown as JsonValue },
      round.use,
    ),
  };
}

/** An opened page is not an answer: only the answer given on the page counts. */
async function openedByClient(request: CallRequest, challenge: Challenge, url: string): Promise<boolean> {
  const { conversation, cancel } = request;
  try {
    const answer = await conversation.request?.("elicitation/create", elicitation(challenge, url), cancel);
    return answer?.action === "accept";
  } catch {
    return false;
  }
}

async function answeredInTime(
  pipeline: Pipeline,
  request: CallRequest,
  challenge: Challenge,
  isOpened: boolean,
): Promise<boolean> {
  const waitMs = isOpened ? Math.max(pipeline.limits.challengeWaitMs, 1) : waitOf(pipeline, request);
  if (waitMs <= 0) return false;
  const { conversation, cancel } = request;
  conversation.notify("notifications/message", {
    level: "notice",
    data: `${challenge.reason} Waiting for approval of ${challenge.id}.`,
  });
  const meta = request.params._meta;
  const progressToken = isJsonObject(meta) ? meta.progressToken : undefined;
  const until = performance.now() + waitMs;
  for (let steps = 1; performance.now() < until; steps++) {
    const left = Math.max(1, Math.min(PROGRESS_EVERY_MS, until - performance.now()));
    const settled = await pipeline.gate.approvals.settled(challenge.id, left, cancel.signal);
    if (settled === "approved" || settled === "denied") return true;
    if (settled !== "pending" || cancel.fault) return false;
    if (progressToken !== undefined) {
      const message = `waiting for approval of ${challenge.id}`;
      conversation.notify("notifications/progress", { progressToken, progress: steps, message });
    }
  }
  return false;
}

function waitOf(pipeline: Pipeline, { params }: CallRequest): number {
  const asked = isJsonObject(params._meta) ? params._meta[WAIT_META] : undefined;
  const { challengeWaitMs } = pipeline.limits;
  return typeof asked === "number" && asked >= 0 ? Math.min(asked, challengeWaitMs) : challengeWaitMs;
}
