// Approval requests as the operator sees and answers them. An answer is on record before it takes effect.

import type { Ledger } from "../ledger/index.js";
import { Fault } from "../mcp/index.js";
import { ApprovalRefused, type Approver, type Challenge, type ChallengeSummary, type Gate } from "../policy/index.js";
import { visible } from "../telemetry/index.js";
import type { AdminCaller } from "./caller.js";
import type { ApprovalRow } from "./operations.js";

export const MAX_REASON_CHARS = 2_000;

/** Everything that came from the caller is shown with its unseen characters as escapes. */
export function listed(challenge: ChallengeSummary, by: AdminCaller): ApprovalRow {
  const preview = visible(challenge.argumentsPreview);
  return {
    id: challenge.id,
    state: challenge.state,
    app: visible(challenge.app),
    agent: visible(challenge.agent),
    holder: challenge.holder === undefined ? undefined : visible(challenge.holder),
    method: visible(challenge.method),
    tool: visible(challenge.tool),
    binding: visible(challenge.binding),
    intent_id: challenge.intentId,
    arguments_id: challenge.argumentsId,
    arguments_preview: challenge.argumentsPreview.length < challenge.argumentsChars ? `${preview}…` : preview,
    arguments_chars: challenge.argumentsChars,
    // Requests opened before this field was kept had nothing to show here.
    forwarded_chars: challenge.forwardedChars ?? 2,
    rules: challenge.rules,
    approvers: challenge.approvers,
    reason: visible(challenge.reason),
    policy_hash: challenge.policyHash,
    created_at: new Date(challenge.createdAt).toISOString(),
    expires_at: new Date(challenge.expiresAt).toISOString(),
    decided_by: challenge.decidedBy,
    deny_reason: challenge.denyReason === undefined ? undefined : visible(challenge.denyReason),
    user: challenge.user === undefined ? undefined : visible(challenge.user),
    answerable: challenge.state === "pending" && mayAnswer(challenge, by),
  };
}

/** With the full canonical arguments and everything that travels beside them: what is approved is what was seen. */
export function shown(challenge: Challenge, by: AdminCaller): ApprovalRow & { arguments: string; forwarded: string } {
  const { argumentsText, forwardedText = "{}" } = challenge;
  return { ...listed(challenge, by), arguments: visible(argumentsText), forwarded: visible(forwardedText) };
}

function mayAnswer(challenge: ChallengeSummary, by: AdminCaller): boolean {
  const { app, agent, holder = agent } = challenge;
  const isOwn = by.caller === `${app}/${agent}` || by.caller === `${app}/${holder}`;
  return by.roles.some((role) => role === "approver" || role === "operator") && !isOwn && isForGroupOf(challenge, by);
}

export type ApprovalAnswer = "approved" | "denied";

/** The challenge is not open for this answer; HTTP has a status of its own for that. */
export class NotAnswerable extends Fault {}

export class Answering {
  readonly #approvals: Gate["approvals"];
  readonly #ledger: Pick<Ledger, "append"> | undefined;
  /** Answers under way: two approvers cannot both have their answer recorded. */
  readonly #busy = new Set<string>();

  constructor(approvals: Gate["approvals"], ledger: Pick<Ledger, "append"> | undefined) {
    this.#approvals = approvals;
    this.#ledger = ledger;
  }

  async answer(
    id: string,
    answer: ApprovalAnswer,
    reason: string,
    traceId: string,
    by: Approver,
    /** What was shown to the approver; a request with another intent is not answered. */
    intentId?: string,
  ): Promise<Challenge> {
    const challenge = await this.find(id, by);
    if (intentId !== undefined && intentId !== challenge.intentId) {
      throw new NotAnswerable("InvalidRequest", `challenge ${id} is not the one that was shown; look at it again`);
    }
    this.#checkAnswerable(challenge, by);
    this.#busy.add(id);
    try {
      await this.#record(challenge, answer, reason, traceId, by);
      return await (answer === "approved" ? this.#approvals.approve(id, by) : this.#approvals.deny(id, by, reason));
    } catch (error) {
      if (!(error instanceof ApprovalRefused)) throw error;
      await this.#withdraw(challenge, answer, error.message, traceId, by);
      throw new NotAnswerable("InvalidRequest", error.message);
    } finally {
      this.#busy.delete(id);
    }
  }

  /** What waits in other applications does not exist for an approver of one. */
  async find(id: string, by: Approver): Promise<Challenge> {
    const challenge = await this.#approvals.get(id);
    if (!challenge || !isOf(challenge, by)) {
      const suggestions = ["portcullis approvals ls lists those that wait"];
      throw new Fault("ResourceNotFound", `there is no approval request ${id}`, { suggestions });
    }
    return challenge;
  }

  async show(id: string, by: AdminCaller): Promise<Challenge> {
    const challenge = await this.find(id, by);
    if (isApproverOnly(by)) checkGroup(challenge, by);
    return challenge;
  }

  async list(by: AdminCaller, state?: string, app?: string): Promise<ChallengeSummary[]> {
    const all = await this.#approvals.list({ app: by.app ?? app, state });
    return isApproverOnly(by) ? all.filter((challenge) => isForGroupOf(challenge, by)) : all;
  }

  /** Checked before the record is written; the approvals themselves check again. */
  #checkAnswerable(challenge: Challenge, by: Approver): void {
    const { id, state } = challenge;
    if (this.#busy.has(id))
      throw new NotAnswerable("InvalidRequest", `approval request ${id} is being answered right now`);
    if (state !== "pending") throw new NotAnswerable("InvalidRequest", `approval request ${id} is already ${state}`);
    checkGroup(challenge, by);
  }

  /** Written before it takes effect: no record, no approval. */
  async #record(
    challenge: Challenge,
    answer: ApprovalAnswer,
    reason: string,
    traceId: string,
    by: Approver,
  ): Promise<void> {
    await this.#append(
      {
        kind: "approval",
        challenge: challenge.id,
        approver: by.name,
        verdict: answer,
        reason,
        args_cid: challenge.argumentsId,
        rules: challenge.rules.map((rule) => rule.id),
        policy: challenge.policyHash,
        detail: { trace: traceId, actor: `${challenge.app}/${challenge.agent}`, tool: challenge.tool },
      },
      "the answer did not take effect",
    );
  }

  /** The challenge expired between the record and the answer: the record must not stand alone. */
  async #withdraw(
    challenge: Challenge,
    answer: ApprovalAnswer,
    reason: string,
    traceId: string,
    by: Approver,
  ): Promise<void> {
    const detail = { challenge: challenge.id, verdict: answer, reason, trace: traceId };
    await this.#append(
      { kind: "admin", actor: by.name, action: "approval.void", detail },
      "the answer had no effect, and that could not be recorded",
    );
  }

  async #append(entry: Parameters<Ledger["append"]>[0], consequence: string): Promise<void> {
    try {
      if (!this.#ledger) throw new Error("no ledger is configured");
      await this.#ledger.append(entry);
    } catch (error) {
      throw new Fault("AuditFailure", `${consequence}: ${(error as Error).message}`, {
        cause: error,
        suggestions: ["Make the ledger writable, then answer again"],
      });
    }
  }
}

/** The requests of other groups are nothing that an approver has to know. */
function isApproverOnly({ roles }: AdminCaller): boolean {
  return roles.every((role) => role === "approver");
}

function isOf(challenge: Challenge, { app }: Approver): boolean {
  return app === undefined || app === challenge.app;
}

function isForGroupOf({ approvers }: ChallengeSummary, { groups }: Approver): boolean {
  return approvers.length === 0 || approvers.some((group) => groups.includes(group));
}

function checkGroup(challenge: Challenge, by: Approver): void {
  if (isForGroupOf(challenge, by)) return;
  throw new Fault("AuthorizationError", `challenge ${challenge.id} is for ${challenge.approvers.join(", ")}`, {
    rule: "admin.approvers",
    suggestions: [`This credential answers for ${by.groups.join(", ") || "no group"}`],
  });
}
