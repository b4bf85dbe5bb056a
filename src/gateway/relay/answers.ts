// What a downstream server answered, in the form in which it goes on: results, errors, and requests in place of a
// result. A server never speaks for this gateway, and what it asks of a person is decided, in whichever form it asks.

import { Fault, isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { InputRequest } from "../../mcp/server/index.js";
import type { QuestionMethod, UpstreamAnswer } from "../../upstream/index.js";
import { isOwnMeta, type RunContext, RawResult } from "../../pipeline/index.js";
import { renameContents, renameUris } from "./names.js";
import type { RelayUpstream } from "./relay.js";

const MAX_INPUT_REQUESTS = 64;
const QUESTIONS: ReadonlySet<string> = new Set<QuestionMethod>([
  "sampling/createMessage",
  "elicitation/create",
  "roots/list",
]);

export interface ServerRequests {
  readonly requests: Readonly<Record<string, InputRequest>>;
  readonly state: JsonValue | undefined;
  readonly rest: JsonObject;
}

/** A result of 2026-07-28 that asks instead of answering. */
export function questionsIn(answer: UpstreamAnswer): ServerRequests | undefined {
  if (answer.kind !== "result" || answer.value.resultType !== "input_required") return undefined;
  const { inputRequests, requestState, ...rest } = answer.value;
  if (!isJsonObject(inputRequests)) throw new Fault("ToolExecution", "the server asked without saying what");
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
    if (!isJsonObject(request) || !QUESTIONS.has(String(request.method))) {
      throw new Fault("ToolExecution", `the server asked for something it may not ask for (\`${key.slice(0, 64)}\`)`);
    }
  }
  return {
    requests: inputRequests as unknown as ServerRequests["requests"],
    state: requestState,
    rest: withoutOwnMeta(rest),
  };
}

/** `portcullis/*` in `_meta` is what this gateway itself says, such as that a call waits for approval and where. */
export function withoutOwnMeta<T extends object>(value: T): T {
  const { _meta } = value as { _meta?: JsonValue };
  if (!isJsonObject(_meta) || !Object.keys(_meta).some(isOwnMeta)) return value;
  return { ...value, _meta: Object.fromEntries(Object.entries(_meta).filter(([key]) => !isOwnMeta(key))) };
}

export function passedOn(
  link: RelayUpstream,
  method: string,
  answer: UpstreamAnswer & { kind: "result" },
): JsonObject | RawResult {
  const { text } = answer;
  const value = withoutOwnMeta(answer.value);
  if (method === "tools/call" && !Array.isArray(value.content) && value.structuredContent === undefined) {
    throw new Fault("ToolExecution", `server \`${link.server}\` answered without content`);
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

/** What 2026-07-28 says when a client would have to be asked and cannot be. */
const MISSING_CAPABILITY = -32021;
/** What 2025-11-25 says when a person has to open a page first: an elicitation in the form of an error. */
const URL_ELICITATION_REQUIRED = -32042;

export async function refusedBy(
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

/** The pages that a server's error asks a person to open: each is a request to the client like any other. */
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

/** Fields of error data with which this gateway says what it decided. A server's own stand under `downstream`. */
const OWN_FIELDS = new Set(["rule", "field", "challenge", "approval_url", "denied_by_person", "required_scope"]);

function withoutOwnFields(data: JsonValue | undefined): JsonValue | undefined {
  if (!isJsonObject(data)) return data;
  const isOwn = (key: string): boolean => OWN_FIELDS.has(key) || isOwnMeta(key);
  const entries = Object.entries(data);
  const claimed = entries.filter(([key]) => isOwn(key));
  if (claimed.length === 0) return data;
  return { downstream: Object.fromEntries(claimed), ...Object.fromEntries(entries.filter(([key]) => !isOwn(key))) };
}
