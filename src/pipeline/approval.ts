// A challenged call and its caller. Whoever can open a page is shown where to approve it; everyone else may wait a
// while, and is then told that nothing ran and that the same call can be repeated.

import type { Challenge, Decision } from "../policy/index.js";
import { GATEWAY_ORIGIN, isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import type { InputRound } from "./execute.js";
import { bindingOf } from "./encrypted-state.js";
import type { Gateway, CallRequest, Route } from "./types.js";

/** A caller that wants to know at once, or sooner than the gateway would say, puts the milliseconds into `_meta`. */
export const WAIT_META = "portcullis/challengeWaitMs";
const ANSWER_KEY = "portcullis_approval";
const PROGRESS_EVERY_MS = 5_000;

/** What our own question leaves in the sealed state, around the state that was there. */
interface Asked {
  readonly portcullisChallenge: string;
  readonly inner?: JsonValue;
}

/** Our own question is no part of the call: its answer is taken out before the call is looked at. */
export function withoutApproval(round: InputRound): InputRound & { readonly asked: string | undefined } {
  const { state } = round;
  if (!isAsked(state)) return { ...round, asked: undefined };
  const { [ANSWER_KEY]: _ours, ...responses } = round.responses;
  return { ...round, responses, state: state.inner, asked: state.portcullisChallenge };
}

function isAsked(state: JsonValue | undefined): state is JsonValue & Asked {
  return isJsonObject(state) && typeof state.portcullisChallenge === "string";
}

export type ApprovalOutcome =
  /** A person answered: the call is judged once more. */
  | { readonly kind: "answered" }
  /** This client is asked by ending the exchange. */
  | { readonly kind: "asked"; readonly result: JsonObject }
  | { readonly kind: "pending" };

export async function awaitApproval(
  gateway: Gateway,
  proposal: CallRequest,
  route: Route,
  round: InputRound & { readonly asked: string | undefined },
  decision: Decision,
): Promise<ApprovalOutcome> {
  const { challenge } = decision;
  if (!challenge) return { kind: "pending" };
  const url = gateway.approvalUrl?.(challenge.id);
  const canOpen = url !== undefined && opensUrls(proposal.conversation.clientCapabilities);
  if (canOpen && !proposal.conversation.request && round.asked !== challenge.id) {
    return { kind: "asked", result: question(gateway, proposal, route, round, challenge, url) };
  }
  if (canOpen && proposal.conversation.request && !(await openedByClient(proposal, challenge, url))) {
    return { kind: "pending" };
  }
  return (await answeredInTime(gateway, proposal, challenge, canOpen)) ? { kind: "answered" } : { kind: "pending" };
}

function opensUrls(capabilities: JsonObject): boolean {
  return isJsonObject(capabilities.elicitation) && capabilities.elicitation.url !== undefined;
}

function elicitation(challenge: Challenge, url: string): JsonObject {
  const message = `${challenge.reason || "This call needs a person's approval."} Open the page to approve or deny it.`;
  return { mode: "url", elicitationId: challenge.id, url, message, _meta: GATEWAY_ORIGIN };
}

function question(
  gateway: Gateway,
  proposal: CallRequest,
  route: Route,
  round: InputRound,
  challenge: Challenge,
  url: string,
): JsonObject {
  const bind = bindingOf(proposal.principal, proposal.method, route.name, route.arguments);
  const state: Asked = {
    portcullisChallenge: challenge.id,
    ...(round.state === undefined ? {} : { inner: round.state }),
  };
  return {
    resultType: "input_required",
    inputRequests: { [ANSWER_KEY]: { method: "elicitation/create", params: elicitation(challenge, url) } },
    requestState: gateway.seal.close(
      bind,
      { responses: round.responses, state: state as unknown as JsonValue },
      round.use,
    ),
  };
}

/** That a client opened the page says nothing about the answer: it is the page that counts. */
async function openedByClient(proposal: CallRequest, challenge: Challenge, url: string): Promise<boolean> {
  const { conversation, cancel } = proposal;
  try {
    const answer = await conversation.request?.("elicitation/create", elicitation(challenge, url), cancel);
    return answer?.action === "accept";
  } catch {
    return false;
  }
}

async function answeredInTime(
  gateway: Gateway,
  proposal: CallRequest,
  challenge: Challenge,
  isOpened: boolean,
): Promise<boolean> {
  const waitMs = isOpened ? Math.max(gateway.limits.challengeWaitMs, 1) : waitOf(gateway, proposal);
  if (waitMs <= 0) return false;
  const { conversation, cancel } = proposal;
  conversation.notify("notifications/message", {
    level: "notice",
    data: `${challenge.reason} Waiting for approval of ${challenge.id}.`,
  });
  const meta = proposal.params._meta;
  const progressToken = isJsonObject(meta) ? meta.progressToken : undefined;
  const until = performance.now() + waitMs;
  for (let told = 1; performance.now() < until; told++) {
    const left = Math.max(1, Math.min(PROGRESS_EVERY_MS, until - performance.now()));
    const settled = await gateway.gate.approvals.settled(challenge.id, left, cancel.signal);
    if (settled === "approved" || settled === "denied") return true;
    if (settled !== "pending" || cancel.fault) return false;
    if (progressToken !== undefined) {
      const message = `waiting for approval of ${challenge.id}`;
      conversation.notify("notifications/progress", { progressToken, progress: told, message });
    }
  }
  return false;
}

function waitOf(gateway: Gateway, { params }: CallRequest): number {
  const asked = isJsonObject(params._meta) ? params._meta[WAIT_META] : undefined;
  const { challengeWaitMs } = gateway.limits;
  return typeof asked === "number" && asked >= 0 ? Math.min(asked, challengeWaitMs) : challengeWaitMs;
}
