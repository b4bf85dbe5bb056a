// The resources of a listen stream. Following one is a call of its own, as `resources/subscribe` is in the older
// revisions: decided and recorded for each, and what was not permitted is not part of what the stream is granted.

import type { Principal } from "../policy/index.js";
import { asFault, type JsonObject, MODERN, type RequestId } from "../mcp/index.js";
import { call, type Cancel, type Conversation, type Gateway } from "../pipeline/index.js";

export interface Following {
  readonly principal: Principal;
  readonly requestId: RequestId;
  readonly transport: string;
  readonly conversation: Conversation;
  readonly cancel: Cancel;
}

const METHOD = "resources/subscribe";

/** Those of the uris that this caller may follow, in their order. */
export async function mayFollow(gateway: Gateway, who: Following, uris: readonly string[]): Promise<string[]> {
  const granted = await Promise.all(uris.map((uri) => isGranted(gateway, who, { uri })));
  return uris.filter((_, i) => granted[i]);
}

async function isGranted(gateway: Gateway, who: Following, params: JsonObject): Promise<boolean> {
  const { app, agent } = who.principal;
  const span = gateway.telemetry.startCall({
    method: METHOD,
    tool: "",
    app,
    agent,
    transport: who.transport,
    revision: MODERN.name,
  });
  try {
    const proposal = { ...who, method: METHOD, params, revision: MODERN, render: JSON.stringify, span, depth: 0 };
    return (await call(gateway, proposal)).ok;
  } catch (error) {
    gateway.telemetry.log.error("a subscription failed unexpectedly", { error: asFault(error).message }, span.traceId);
    return false;
  }
}
