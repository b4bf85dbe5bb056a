// `execute` is the only function that reaches a tool. It takes a permit, spends it, and never routes again.

import { Fault, isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import { applyObligations, applyToFault, Permit, type PermitGrant } from "../policy/index.js";
import { InputRequired, type ProgressSender, RunContext } from "./call-context.js";
import { type Deadline, deadlines } from "./cancel.js";
import { bindingOf, type StateUse } from "./encrypted-state.js";
import { type CallRequest, type Pipeline, RawResult, type Route } from "./types.js";

const WITHHELD =
  "[the tool ran, but with what policy takes out of its answer the rest no longer fits its output schema, so the structured content is withheld]";

export interface InputRound {
  responses: Record<string, JsonObject>;
  state: JsonValue | undefined;
  /** Of the state, where the caller brought one. */
  use?: StateUse;
  /** The call was not started, so that its state can be used by another. */
  isRestored?: boolean;
}

export async function execute(
  pipeline: Pipeline,
  permit: Permit,
  request: CallRequest,
  round: InputRound,
  progress: ProgressSender,
): Promise<JsonObject | RawResult> {
  const grant = Permit.spend(permit);
  const route = grant.target as Route;
  const clock = new Clock(request, route);
  const context = new RunContext(pipeline, request, grant, round, clock, progress);
  try {
    const result = await untilStopped(request, () => {
      progress.started = true;
      return route.run(context);
    });
    if (result instanceof RawResult && (await mayPassAsIs(route, grant, result))) return result;
    const joined = joinParts(result instanceof RawResult ? (result.value as JsonObject) : result, context);
    if (route.hasOutputSchema && joined.isError !== true && isComplete(joined)) await checkOutput(route, joined);
    return grant.obligations.length === 0 ? joined : await redacted(route, grant, joined);
  } catch (error) {
    if (error instanceof InputRequired) return inputRequired(pipeline, grant, route, round, error);
    throw applyToFault(grant.obligations, error instanceof Fault ? error : toolFailed(error));
  } finally {
    clock.pause();
    context.kill();
  }
}

/** The work or its cancellation, whichever comes first; what a stopped call still returns is dropped. */
function untilStopped(request: CallRequest, run: () => ReturnType<Route["run"]>): Promise<JsonObject | RawResult> {
  return new Promise((resolve, reject) => {
    request.cancel.onAbort(reject);
    if (request.cancel.fault) return;
    const running = run();
    if (running instanceof Promise) running.then(resolve, reject);
    else resolve(running);
  });
}

/** The bytes of an upstream server are forwarded as they are when nothing has to be redacted; our own lists always are. */
async function mayPassAsIs(route: Route, grant: PermitGrant, result: RawResult): Promise<boolean> {
  if (!result.value) return true;
  if (grant.obligations.length > 0) return false;
  if (route.hasOutputSchema && result.value.isError !== true && isComplete(result.value)) {
    await checkOutput(route, result.value);
  }
  return true;
}

/** `input_required` has no structured content to check. */
function isComplete(result: JsonObject): boolean {
  return result.resultType === undefined || result.resultType === "complete";
}

function joinParts(result: JsonObject, context: RunContext): JsonObject {
  if (context.written.length === 0) return result;
  const content = [...context.written, ...(Array.isArray(result.content) ? result.content : [])];
  const joined = { ...result, content: content as JsonValue };
  if (!context.truncated) return joined;
  const meta = isJsonObject(result._meta) ? result._meta : {};
  return { ...joined, _meta: { ...meta, "portcullis/truncated": true, "portcullis/warning": "OUTPUT_TRUNCATED" } };
}

async function checkOutput(route: Route, result: JsonObject): Promise<void> {
  const checked = await route.validateOutput(result.structuredContent);
  if (checked.ok) return;
  const first = checked.problems[0];
  throw new Fault(
    "OutputInvalid",
    `the result of \`${route.name}\` does not match its own output schema: ${first?.message ?? ""}`,
    {
      field: first?.path,
    },
  );
}

/**
 * The result after redaction. A client validates structured content against the tool's schema; content that no longer
 * matches is left out, and the result says so: the client would otherwise reject all of it.
 */
async function redacted(route: Route, grant: PermitGrant, result: JsonObject): Promise<JsonObject> {
  const shown = applyObligations(grant.obligations, result);
  if (!route.hasOutputSchema || shown.isError === true || !isComplete(result)) return shown;
  if (await fits(route, shown.structuredContent)) return shown;
  const { structuredContent: _withheld, ...rest } = shown;
  const content = Array.isArray(shown.content) ? shown.content : [];
  return { ...rest, content: [...content, { type: "text", text: WITHHELD }], isError: true };
}

async function fits(route: Route, value: JsonValue | undefined): Promise<boolean> {
  try {
    return (await route.validateOutput(value)).ok;
  } catch {
    return false;
  }
}

function inputRequired(
  pipeline: Pipeline,
  grant: PermitGrant,
  route: Route,
  round: InputRound,
  asked: InputRequired,
): JsonObject {
  const bind = bindingOf(grant.principal, grant.method, route.name, route.arguments);
  const kept = asked.relayed
    ? { responses: {}, state: asked.state }
    : { responses: round.responses, state: asked.state ?? round.state };
  // No redaction applies to the encrypted state or to the origin of requests. The requests themselves were redacted before.
  const shown = applyObligations(grant.obligations, { ...asked.relayed, resultType: "input_required" });
  return {
    ...shown,
    inputRequests: asked.requests as unknown as JsonObject,
    requestState: pipeline.stateCipher.encrypt(bind, kept),
  };
}

function toolFailed(error: unknown): Fault {
  const message = error instanceof Error ? error.message : String(error);
  const documentation = documentationOf(error);
  return new Fault("ToolExecution", message === "" ? "the tool failed without a message" : message, {
    cause: error,
    ...(documentation === undefined ? {} : { extra: { documentation_url: documentation } }),
  });
}

const MAX_URL_CHARS = 2_048;

/** The `documentationUrl` that a tool's author set on an error, where it is an HTTP URL. */
function documentationOf(error: unknown): string | undefined {
  const url = (error as { documentationUrl?: unknown } | null | undefined)?.documentationUrl;
  if (typeof url !== "string" || url.length > MAX_URL_CHARS || !URL.canParse(url)) return undefined;
  return /^https?:$/.test(new URL(url).protocol) ? url : undefined;
}

/** The clock of a tool. It stops while the call waits for an answer from the client. */
class Clock {
  readonly #request: CallRequest;
  readonly #route: Route;
  #leftMs: number;
  #since = 0;
  #deadline: Deadline | undefined;

  constructor(request: CallRequest, route: Route) {
    this.#request = request;
    this.#route = route;
    this.#leftMs = route.timeoutMs;
    this.resume();
  }

  resume(): void {
    if (this.#deadline) return;
    this.#since = performance.now();
    this.#deadline = deadlines.add(this.#leftMs, () => this.#expire());
  }

  pause(): void {
    if (!this.#deadline) return;
    this.#deadline.cancel();
    this.#deadline = undefined;
    this.#leftMs = Math.max(0, this.#leftMs - (performance.now() - this.#since));
  }

  #expire(): void {
    const { name, timeoutMs } = this.#route;
    this.#request.cancel.abort(
      new Fault("ToolTimeout", `\`${name}\` did not finish within ${timeoutMs} ms and was stopped`, {
        extra: { tool_name: name, timeout_ms: timeoutMs, timedOut: true },
        suggestions: ["Ask for less at once", "Raise the tool's timeout", "Check the server behind the tool"],
      }),
    );
  }
}
