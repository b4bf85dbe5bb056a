// A call of a tool by its name, without MCP: `POST /tools/{name}` and `Server.invoke`.

import type { Principal } from "../policy/index.js";
import { type JsonObject, LEGACY, type Revision } from "../mcp/index.js";
import type { CallSpan } from "../telemetry/index.js";
import { SILENT, type Answer, call, type Cancel, type Gateway, type RawResult } from "../pipeline/index.js";

/** The revision whose result form such callers receive. */
export const PLAIN_REVISION = LEGACY[0] as Revision;

export interface NamedCall {
  readonly principal: Principal;
  readonly name: string;
  readonly args: JsonObject;
  readonly transport: string;
  readonly cancel: Cancel;
  readonly span: CallSpan;
  readonly render: (result: JsonObject | RawResult) => string;
}

export function startNamedCall(
  gateway: Gateway,
  { principal, name, transport }: Pick<NamedCall, "principal" | "name" | "transport">,
  traceparent?: string,
): CallSpan {
  return gateway.telemetry.startCall({
    method: "tools/call",
    tool: name,
    app: principal.app,
    agent: principal.agent,
    transport,
    revision: PLAIN_REVISION.name,
    traceparent,
  });
}

export function callNamed(gateway: Gateway, named: NamedCall): Promise<Answer> {
  const { principal, name, args, transport, cancel, span, render } = named;
  return call(gateway, {
    principal,
    method: "tools/call",
    params: { name, arguments: args },
    requestId: undefined,
    revision: PLAIN_REVISION,
    transport,
    conversation: SILENT,
    cancel,
    render,
    span,
    depth: 0,
  });
}
