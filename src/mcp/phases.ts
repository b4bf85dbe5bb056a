// The phases of a handshake connection (L7): what may be asked depends on how far the two sides have come.
// 2026-07-28 has no phases: what a request carries takes their place.

import { Fault } from "./errors.js";

export type Phase = "new" | "initializing" | "active" | "closed";

/** Undefined when `method` may be asked now. */
export function phaseFault(phase: Phase, method: string): Fault | undefined {
  switch (phase) {
    case "active":
      return method === "initialize" ? wrong(method, "the handshake is already done") : undefined;
    case "new":
      return method === "initialize" || method === "ping"
        ? undefined
        : wrong(method, "send `initialize` first, or speak 2026-07-28 with its `_meta` fields");
    case "initializing":
      return method === "ping" ? undefined : wrong(method, "send `notifications/initialized` first");
    case "closed":
      return wrong(method, "the connection is closed; open a new one");
  }
}

function wrong(method: string, remedy: string): Fault {
  return new Fault("WrongPhase", `\`${method}\` is not allowed now: ${remedy}`, {
    rule: "phase",
    suggestions: [remedy],
  });
}
