// Notifies another system of an approval request. The message is signed, names the call and the page to answer it, and has
// none of its arguments: approvers read those on the page.

import { createHmac, randomUUID } from "node:crypto";
import type { Approvals, Challenge } from "../policy/index.js";
import type { Telemetry } from "../telemetry/index.js";

export interface WebhookOptions {
  readonly url: string;
  /** Shared with the receiver, which checks `Portcullis-Signature` with it. */
  readonly secret: string;
  readonly approvals: Pick<Approvals, "onOpen">;
  readonly telemetry: Pick<Telemetry, "log">;
  readonly approvalUrl?: ((challenge: string) => string | undefined) | undefined;
  /** The one way out to the network. */
  readonly fetch: typeof globalThis.fetch;
  readonly retryMs?: readonly number[];
}

export interface Webhook {
  close(): void;
}

const MAX_WAITING = 1_000;
const TIMEOUT_MS = 10_000;
const DEFAULT_RETRY_MS = [1_000, 5_000, 30_000];

export function startWebhook(options: WebhookOptions): Webhook {
  const retryMs = options.retryMs ?? DEFAULT_RETRY_MS;
  const { log } = options.telemetry;
  const ending = new AbortController();
  let waiting = 0;
  const deliver = async (challenge: Challenge): Promise<void> => {
    const body = JSON.stringify(messageOf(challenge, options.approvalUrl?.(challenge.id)));
    for (let attempt = 0; !ending.signal.aborted; attempt++) {
      try {
        return await post(options, body, ending.signal);
      } catch (error) {
        const pause = retryMs[attempt];
        const facts = { challenge: challenge.id, problem: (error as Error).message };
        if (pause === undefined) return log.error("a webhook could not be delivered", facts);
        log.warning("a webhook is tried again", facts);
        await new Promise((resolve) => setTimeout(resolve, pause).unref());
      }
    }
  };
  const stop = options.approvals.onOpen((challenge) => {
    if (waiting >= MAX_WAITING)
      return log.error("too many webhooks wait; one is left out", { challenge: challenge.id });
    waiting++;
    void deliver(challenge).finally(() => {
      waiting--;
    });
  });
  return {
    close: () => {
      stop();
      ending.abort();
    },
  };
}

function messageOf(challenge: Challenge, url: string | undefined): object {
  const { id, app, agent, tool, reason, approvers, argumentsId, expiresAt } = challenge;
  return {
    type: "challenge.opened",
    delivery: randomUUID(),
    challenge: id,
    app,
    agent,
    tool,
    reason,
    approvers,
    arguments_id: argumentsId,
    approval_url: url,
    expires_at: new Date(expiresAt).toISOString(),
  };
}

/** `t=<seconds>,v1=<hex>`: HMAC-SHA256 over `<seconds>.<body>`, so that an old message cannot be sent again as new. */
function webhookSignature(secret: string, body: string, seconds: number): string {
  return `t=${seconds},v1=${createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex")}`;
}

async function post(options: WebhookOptions, body: string, ended: AbortSignal): Promise<void> {
  const response = await options.fetch(options.url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "portcullis-signature": webhookSignature(options.secret, body, Math.floor(Date.now() / 1_000)),
    },
    body,
    redirect: "error",
    signal: AbortSignal.any([ended, AbortSignal.timeout(TIMEOUT_MS)]),
  });
  await response.body?.cancel();
  if (!response.ok) throw new Error(`the receiver answered ${response.status}`);
}
