// What is refused before it is a call has a trace id as well, so that whoever asks about it can be told what was wrong.

import type { Fault } from "../mcp/index.js";
import { traceIdFrom } from "../telemetry/index.js";
import type { Peer } from "../mcp/transports/index.js";
import type { Gateway } from "../pipeline/index.js";

/** Strangers can send nonsense without end; so many lines a second say enough of it. */
const MAX_LINES = 20;
let second = 0;
let lines = 0;

export function refusedTrace({ telemetry }: Pick<Gateway, "telemetry">, peer: Peer, fault: Fault): string {
  const traceId = traceIdFrom(peer.headers?.traceparent);
  const now = Math.floor(performance.now() / 1_000);
  if (now !== second) {
    second = now;
    lines = 0;
  }
  if (lines++ < MAX_LINES) {
    const { transport, address } = peer;
    telemetry.log.info("a message was refused", { transport, from: address, problem: fault.message }, traceId);
  }
  return traceId;
}
