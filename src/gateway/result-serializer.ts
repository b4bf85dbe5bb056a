// How an answer is worded for a revision: what is added to a result, and where a failure belongs.

import {
  ERROR_META,
  ERRORS,
  errorData,
  type Fault,
  GATEWAY_ORIGIN,
  isJsonObject,
  type JsonObject,
  META,
  type RequestId,
  type Revision,
  wireError,
} from "../mcp/index.js";
import type { Implementation } from "../mcp/server/index.js";
import { LIST_METHODS, RawResult, type Route } from "../pipeline/index.js";
import { resultJson } from "./result-json.js";

/** How long a client of 2026-07-28 may keep a list that was filtered for it. */
const LIST_TTL_MS = 5_000;

export class ResultSerializer {
  readonly #serverInfo: Implementation;
  readonly #plain: string;
  readonly #list: string;
  readonly #read: string;

  constructor(serverInfo: Implementation) {
    this.#serverInfo = serverInfo;
    const tail = `"resultType":"complete","_meta":${JSON.stringify({ [META.serverInfo]: serverInfo })}`;
    this.#plain = tail;
    this.#list = `"ttlMs":${LIST_TTL_MS},"cacheScope":"private",${tail}`;
    this.#read = `"ttlMs":0,"cacheScope":"private",${tail}`;
  }

  /** The result object as text. */
  result(result: JsonObject | RawResult, revision: Revision, method: string): string {
    const raw = result instanceof RawResult;
    // A downstream server's result that is dressed already goes on as it is, unless this revision knows no dress.
    if (raw && result.value && dressedAlready(result.value)) {
      if (!revision.resultType) return this.result(result.value, revision, method);
      if (result.value.resultType !== undefined) return `{${result.inside}}`;
      return this.result(result.value, revision, method);
    }
    if (!raw && !revision.resultType) return resultJson(withoutComplete(result));
    const inside = raw ? result.inside : this.#inside(result, method);
    if (!revision.resultType || (!raw && dressedAlready(result))) return `{${inside}}`;
    const tail = LIST_METHODS.has(method)
      ? this.#list
      : method === "resources/read" || method === "server/discover"
        ? this.#read
        : this.#plain;
    return inside === "" ? `{${tail}}` : `{${inside},${tail}}`;
  }

  #inside(result: JsonObject, method: string): string {
    if (!dressedAlready(result)) return resultJson(result).slice(1, -1);
    const meta = isJsonObject(result._meta) ? result._meta : {};
    const merged = {
      ...(method === "resources/read" ? { ttlMs: 0, cacheScope: "private" } : {}),
      resultType: "complete",
      ...result,
      _meta: { [META.serverInfo]: this.#serverInfo, ...meta },
    };
    return JSON.stringify(merged).slice(1, -1);
  }
}

/** Earlier revisions know no result types; `complete` goes without saying there. */
function withoutComplete(result: JsonObject): JsonObject {
  if (result.resultType !== "complete") return result;
  const { resultType: _dropped, ...rest } = result;
  return rest;
}

/** A result that brings `_meta` or `resultType` of its own is merged instead of spliced. */
function dressedAlready(result: JsonObject): boolean {
  return result._meta !== undefined || result.resultType !== undefined;
}

/** A failure that a model can act on is a result of the tool; every other one is a protocol error. */
export function belongsInResult(fault: Fault, method: string): boolean {
  return method === "tools/call" && ERRORS[fault.type].forModel;
}

export function failedResult(fault: Fault, traceId: string, route: Route | undefined, revision: Revision): JsonObject {
  const data = errorData(fault, traceId) as unknown as JsonObject;
  const entry = ERRORS[fault.type];
  const lines = [`${entry.message}: ${fault.message}`, ...(fault.detail.suggestions ?? [])];
  const text = fault.type === "ToolExecution" ? fault.message : lines.join("\n");
  const content = [{ type: "text", text }];
  // Clients of earlier revisions check structured content against the tool's schema even when it failed, and then throw
  // the whole answer away, or know none: there the object is a text of its own for models, and in `_meta` for programs.
  const isChecked = route?.hasOutputSchema === true && revision.era === "legacy";
  if (revision.structuredContent && !isChecked) {
    return { content, isError: true, structuredContent: data, _meta: GATEWAY_ORIGIN };
  }
  return {
    content: [...content, { type: "text", text: JSON.stringify(data) }],
    isError: true,
    _meta: { ...GATEWAY_ORIGIN, [ERROR_META]: data },
  };
}

export function successText(id: RequestId, resultText: string): string {
  return `{"jsonrpc":"2.0","id":${typeof id === "number" ? id : JSON.stringify(id)},"result":${resultText}}`;
}

export function errorText(id: RequestId | null, fault: Fault, revision: Revision, traceId: string): string {
  return JSON.stringify({ jsonrpc: "2.0", id, error: wireError(fault, revision.era, traceId) });
}

/** When a caller that is over a limit may try again. */
export function retryHeader(fault: Fault): Record<string, string> | undefined {
  const waitMs = fault.detail.extra?.retry_after_ms;
  if (typeof waitMs === "number") return { "retry-after": String(Math.max(1, Math.ceil(waitMs / 1_000))) };
  return fault.type === "TooMany" ? { "retry-after": "1" } : undefined;
}

/** What a client needs to do about it: get a credential, or one with more scope. */
export function authenticateHeader(fault: Fault): Record<string, string> | undefined {
  const { authenticate } = fault.detail;
  if (authenticate !== undefined) return { "www-authenticate": authenticate };
  return fault.type === "AuthenticationError" ? { "www-authenticate": "Bearer" } : undefined;
}
