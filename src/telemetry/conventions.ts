// A call in the words of OpenTelemetry's semantic conventions for MCP and GenAI (status: development), plus our own
// `portcullis.*`. Source: github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md.

import { createHash } from "node:crypto";
import { hasTarget, metricFailureOf } from "./metrics.js";
import type { CallEnd, CallInfo } from "./types.js";

export const SCOPE_NAME = "portcullis";
export const DURATION_NAME = "mcp.server.operation.duration";

export type Attributes = Record<string, string | number>;

const MAX_ATTRIBUTE_CHARS = 256;

/** Unknown names may be anything, and a span's name should be one of few. */
const MADE_UP = new Set(["ToolNotFound", "PromptNotFound", "MethodNotFound", "InvalidRequest", "ParseError"]);

export function spanName(info: CallInfo, errorType?: string): string {
  const method = methodName(info, errorType);
  const named = info.tool !== "" && info.tool !== info.method && hasTarget(info.method);
  return named && !MADE_UP.has(errorType ?? "") ? `${method} ${clip(info.tool)}` : method;
}

function methodName(info: CallInfo, errorType: string | undefined): string {
  return errorType === "MethodNotFound" ? "unknown" : clip(info.method);
}

export function startAttributes(info: CallInfo): Attributes {
  const attributes: Attributes = {
    "mcp.method.name": clip(info.method),
    "mcp.protocol.version": clip(info.revision),
    "portcullis.app": clip(info.app),
    "portcullis.agent": clip(info.agent),
  };
  if (info.requestId !== undefined) attributes["jsonrpc.request.id"] = clip(String(info.requestId));
  if (info.sessionId !== undefined) attributes["mcp.session.id"] = sessionName(info.sessionId);
  return Object.assign(attributes, target(info), network(info.transport));
}

function target(info: CallInfo): Attributes {
  if (info.method === "prompts/get") return { "gen_ai.prompt.name": clip(info.tool) };
  const attributes: Attributes = {};
  if (info.tool !== "" && hasTarget(info.method)) attributes["gen_ai.tool.name"] = clip(info.tool);
  if (info.method === "tools/call") attributes["gen_ai.operation.name"] = "execute_tool";
  return attributes;
}

export function endAttributes(end: CallEnd): Attributes {
  const attributes: Attributes = {
    "portcullis.effect": end.effect,
    "portcullis.outcome": clip(end.outcome),
    "portcullis.policy": clip(end.policyHash),
  };
  if (end.rule !== undefined) attributes["portcullis.rule"] = clip(end.rule);
  if (end.serverTraceId !== undefined) attributes["portcullis.server_trace"] = end.serverTraceId;
  const failure = metricFailureOf(end);
  if (failure !== undefined) attributes["error.type"] = errorTypeName(failure);
  return attributes;
}

export function durationAttributes(info: CallInfo, end: CallEnd): Attributes {
  const attributes: Attributes = {
    "mcp.method.name": methodName(info, end.errorType),
    "mcp.protocol.version": clip(info.revision),
  };
  if (!MADE_UP.has(end.errorType ?? "")) Object.assign(attributes, target(info));
  const failure = metricFailureOf(end);
  if (failure !== undefined) attributes["error.type"] = errorTypeName(failure);
  return Object.assign(attributes, network(info.transport));
}

/** The convention's own word for a result with `isError`; otherwise the stable names of the error table. */
export function errorTypeName(errorType: string): string {
  return errorType === "ToolExecution" ? "tool_error" : clip(errorType);
}

/** A session id may be a credential for that session, so what is exported only identifies it. */
function sessionName(sessionId: string): string {
  return `sha256:${createHash("sha256").update(sessionId).digest("hex").slice(0, 16)}`;
}

function network(transport: string): Attributes {
  switch (transport) {
    case "stdio":
      return { "network.transport": "pipe" };
    case "http":
      return { "network.transport": "tcp", "network.protocol.name": "http" };
    case "websocket":
      return { "network.transport": "tcp", "network.protocol.name": "websocket" };
    case "tcp":
      return { "network.transport": "tcp" };
    default:
      return {};
  }
}

function clip(text: string): string {
  return text.length <= MAX_ATTRIBUTE_CHARS ? text : text.slice(0, MAX_ATTRIBUTE_CHARS);
}
