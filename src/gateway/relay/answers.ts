// The answers of an upstream server as callers get them: results, errors, and requests in place of a result. A server
// cannot imitate this gateway, and its requests to the client are decided in whichever form they come.

import { Fault, isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { InputRequest } from "../../mcp/server/index.js";
import { isOwnMeta, RawResult, type RunContext } from "../../pipeline/index.js";
import type { QuestionMethod, UpstreamAnswer } from "../../upstream/index.js";
import { renameContents, renameUris } from "./names.js";
import type { RelayUpstream } from "./relay.js";

const MAX_INPUT_REQUESTS = 64;
const REQUEST_METHODS: ReadonlySet<string> = new Set<QuestionMethod>([
  "sampling/createMessage",
  "elicitation/create",
  "roots/list",
]);

interface ServerRequests {
  readonly requests: Readonly<Record<string, InputRequest>>;
  readonly state: JsonValue | undefined;
  readonly rest: JsonObject;
}

/** The requests in a result of 2026-07-28 that is not complete. */
export function inputRequestsIn(answer: UpstreamAnswer): ServerRequests | undefined {
  if (answer.kind !== "result" || answer.value.resultType !== "input_required") return undefined;
  const { inputRequests, requestState, ...rest } = answer.value;
  if (!isJsonObject(inputRequests))
    throw new Fault("ToolExecution", "the server sent `input_required` without `inputRequests`");
  const entries = Object.entries(inputRequests);
  if (entries.length > MAX_INPUT_REQUESTS) {
    throw new Fault("ToolExecution", `the server sent more than ${MAX_INPUT_REQUESTS} input requests at once`);
  }
  for (const [key, request] of entries) {
    if (isOwnMeta(key)) {
      throw new Fault("ToolExecution", `the server used a key of the gateway's own (\`${key.slice(0, 64)}\`)`);
    }
    if (isJsonObject(request) && request.params !== undefined && !isJsonObject(request.params)) {
      throw new Fault("ToolExecution", `the parameters of \`${key.slice(0, 64)}\` are not an object`);
    }
    if (!isJsonObject(request) || !REQUEST_METHODS.has(String(request.method))) {
      throw new Fault("ToolExecution", `the server sent a request that servers may not send (\`${key.slice(0, 64)}\`)`);
    }
  }
  return {
    requests: inputRequests as unknown as ServerRequests["requests"],
    state: requestState,
    rest: withoutOwnMeta(rest),
  };
}

/** `portcullis/*` in `_meta` is set by this gateway only, such as the approval page of a call that waits. */
export function withoutOwnMeta<T extends object>(value: T): T {
  const { _meta } = value as { _meta?: JsonValue };
  if (!isJsonObject(_meta) || !Object.keys(_meta).some(isOwnMeta)) return value;
  return { ...value, _meta: Object.fromEntries(Object.entries(_meta).filter(([key]) => !isOwnMeta(key))) };
}

export function forwardedResult(
  link: RelayUpstream,
  method: string,
  answer: UpstreamAnswer & { kind: "result" },
): JsonObject | RawResult {
  const { text } = answer;
  const value = withoutOwnMeta(answer.value);
  if (method === "tools/call" && !Array.isArray(value.content) && value.structuredContent === undefined) {
    throw new Fault("ToolExecution", `server \`${link.server}\` returned a result without content`);
  }
  if (link.namespace.scheme !== "") {
    if (method === "resources/read") return renameContents(value, link.namespace);
    // Most results link to nothing; only those that might are looked through. An escape may spell any word.
    if (text.includes('"resource') || text.includes("\\u")) return renameUris(value, link.namespace);
  }
  if (value !== answer.value) return value;
  const trimmed = text.trim();
  return new RawResult(trimmed.slice(1, -1).trim(), value);
}

/** The error of 2026-07-28 for a client that lacks a capability. */
const MISSING_CAPABILITY = -32021;
/** The error of 2025-11-25 for a page that a user has to open first: an elicitation in the form of an error. */
const URL_ELICITATION_REQUIRED = -32042;

export async function upstreamError(
  link: RelayUpstream,
  { error }: UpstreamAnswer & { kind: "error" },
  context: RunContext,
): Promise<Fault> {
  const { code, message } = error;
  if (code === MISSING_CAPABILITY) {
    const extra = isJsonObject(error.data) ? { requiredCapabilities: error.data.requiredCapabilities } : {};
    return new Fault("MissingCapability", message, { extra: { ...extra, server: link.server } });
  }
  const data =
    code === URL_ELICITATION_REQUIRED
      ? { elicitations: await permittedPages(context, error.data) }
      : withoutOwnFields(error.data);
  return new Fault("Downstream", message, { downstream: { code, message, data }, extra: { server: link.server } });
}

/** The pages that a server's error asks a user to open: each is a request to the client like any other. */
async function permittedPages(context: RunContext, data: JsonValue | undefined): Promise<JsonValue[]> {
  const pages = isJsonObject(data) ? data.elicitations : undefined;
  if (!Array.isArray(pages) || pages.length === 0 || pages.length > MAX_INPUT_REQUESTS || !pages.every(isJsonObject)) {
    const reason = `the server asked for pages to be opened, but did not send 1 to ${MAX_INPUT_REQUESTS} of them`;
    throw new Fault("ToolExecution", reason);
  }
  const requests = pages.map((page, i): [string, InputRequest] => [
    String(i),
    { method: "elicitation/create", params: { ...page, mode: "url" } },
  ]);
  const shown = await context.permitted(Object.fromEntries(requests), false);
  return Object.values(shown).map(({ params }) => params as JsonObject);
}

/** Fields of error data that this gateway sets for its decisions. Those of a server are moved under `downstream`. */
const OWN_FIELDS = new Set(["rule", "field", "challenge", "approval_url", "denied_by_person", "required_scope"]);

function withoutOwnFields(data: JsonValue | undefined): JsonValue | undefined {
  if (!isJsonObject(data)) return data;
  const isOwn = (key: string): boolean => OWN_FIELDS.has(key) || isOwnMeta(key);
  const entries = Object.entries(data);
  const claimed = entries.filter(([key]) => isOwn(key));
  if (claimed.length === 0) return data;
  return { downstream: Object.fromEntries(claimed), ...Object.fromEntries(entries.filter(([key]) => !isOwn(key))) };
}
