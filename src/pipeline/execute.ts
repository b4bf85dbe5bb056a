// The only function that reaches a tool. It takes a permit, spends it, and never routes again.

import { applyObligations, applyToFault, type PermitGrant, Permit } from "../policy/index.js";
import { Fault, isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import { type Deadline, deadlines } from "./deadlines.js";
import { InputRequired, type ProgressSender, RunContext } from "./call-context.js";
import { bindingOf, type StateUse } from "./encrypted-state.js";
import { type Gateway, type CallRequest, RawResult, type Route } from "./types.js";

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
  gateway: Gateway,
  permit: Permit,
  proposal: CallRequest,
  round: InputRound,
  progress: ProgressSender,
): Promise<JsonObject | RawResult> {
  const grant = Permit.spend(permit);
  const route = grant.target as Route;
  const clock = new Clock(proposal, route);
  const context = new RunContext(gateway, proposal, grant, round, clock, progress);
  try {
    const result = await untilStopped(proposal, () => {
      progress.started = true;
      return route.run(context);
    });
    if (result instanceof RawResult && (await mayPassAsIs(route, grant, result))) return result;
    const joined = joinParts(result instanceof RawResult ? (result.value as JsonObject) : result, context);
    if (route.hasOutputSchema && joined.isError !== true && isComplete(joined)) await checkOutput(route, joined);
    return grant.obligations.length === 0 ? joined : await concealed(route, grant, joined);
  } catch (error) {
    if (error instanceof InputRequired) return inputRequired(gateway, grant, route, round, error);
    throw applyToFault(grant.obligations, error instanceof Fault ? error : toolFailed(error));
  } finally {
    clock.pause();
    context.kill();
  }
}

/** The work against the clock: whichever ends first, and a stopped call never hears of the work again. */
function untilStopped(proposal: CallRequest, run: () => ReturnType<Route["run"]>): Promise<JsonObject | RawResult> {
  return new Promise((resolve, reject) => {
    proposal.cancel.onAbort(reject);
    if (proposal.cancel.fault) return;
    const running = run();
    if (running instanceof Promise) running.then(resolve, reject);
    else resolve(running);
  });
}

/** A downstream server's own bytes go on when nothing has to be taken out of them; our own lists always do. */
async function mayPassAsIs(route: Route, grant: PermitGrant, result: RawResult): Promise<boolean> {
  if (!result.value) return true;
  if (grant.obligations.length > 0) return false;
  if (route.hasOutputSchema && result.value.isError !== true && isComplete(result.value)) {
    await checkOutput(route, result.value);
  }
  return true;
}

/** A question in place of an answer has no structured content to check. */
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
  throw new Fault("OutputInvalid", `\`${route.name}\` answered against its own schema: ${first?.message ?? ""}`, {
    field: first?.path,
  });
}

/**
 * What policy lets out of the answer. A client holds structured content against the tool's schema; what no longer fits
 * it is left out, and the answer says so, rather than being refused for a reason that nobody would find.
 */
async function concealed(route: Route, grant: PermitGrant, result: JsonObject): Promise<JsonObject> {
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
  gateway: Gateway,
  grant: PermitGrant,
  route: Route,
  round: InputRound,
  asked: InputRequired,
): JsonObject {
  const bind = bindingOf(grant.principal, grant.method, route.name, route.arguments);
  const kept = asked.relayed
    ? { responses: {}, state: asked.state }
    : { responses: round.responses, state: asked.state ?? round.state };
  // What is sealed and where requests are from is ours: no redaction may touch it. The requests went through theirs.
  const shown = applyObligations(grant.obligations, { ...asked.relayed, resultType: "input_required" });
  return {
    ...shown,
    inputRequests: asked.requests as unknown as JsonObject,
    requestState: gateway.seal.close(bind, kept),
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

/** The page that the author of a tool names for an error: its `documentationUrl`, where that is a URL of the web. */
function documentationOf(error: unknown): string | undefined {
  const url = (error as { documentationUrl?: unknown } | null | undefined)?.documentationUrl;
  if (typeof url !== "string" || url.length > MAX_URL_CHARS || !URL.canParse(url)) return undefined;
  return /^https?:$/.test(new URL(url).protocol) ? url : undefined;
}

/** A tool's time. It stands still while the call waits for an answer from the client. */
class Clock {
  readonly #proposal: CallRequest;
  readonly #route: Route;
  #leftMs: number;
  #since = 0;
  #deadline: Deadline | undefined;

  constructor(proposal: CallRequest, route: Route) {
    this.#proposal = proposal;
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
    this.#proposal.cancel.abort(
      new Fault("ToolTimeout", `\`${name}\` did not finish within ${timeoutMs} ms and was stopped`, {
        extra: { tool_name: name, timeout_ms: timeoutMs, timedOut: true },
        suggestions: ["Ask for less at once", "Raise the tool's timeout", "Check the server behind the tool"],
      }),
    );
  }
}
