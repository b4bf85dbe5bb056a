// A server's request to the client of a call in flight: sampling, elicitation, roots. It passes through `call` like
// everything else, with the server as the principal, and what reaches the client names the server it is from.

import { isIP } from "node:net";
import { Fault, isJsonObject, type JsonObject, ORIGIN_META } from "../mcp/index.js";
import type { InputRequest, Problem, Validation } from "../mcp/server/index.js";
import {
  applyObligations,
  intentArguments,
  type PermitGrant,
  type Principal,
  permitForServer,
  serverAgent,
} from "../policy/index.js";
import { callWithin } from "./call.js";
import { Cancel } from "./cancel.js";
import { isOwnMeta } from "./route.js";
import { type CallRequest, type Pipeline, type Route, SILENT } from "./types.js";

export interface ClientRequest {
  /** The call in flight that the request belongs to, and what was granted to it. */
  readonly outer: CallRequest;
  readonly grant: PermitGrant;
  readonly method: InputRequest["method"];
  readonly params: JsonObject;
  /** An in-process server is the operator's own code: see `permittedUnlessForbidden`. */
  readonly isInProcess: boolean;
  /** Ends the request when it ends; the call in flight unless given. */
  readonly parent?: Cancel | undefined;
  /** Sends the request to the client, once that is permitted and on record. */
  deliver(params: JsonObject, cancel: Cancel): Promise<JsonObject>;
}

export async function sendClientRequest(pipeline: Pipeline, request: ClientRequest): Promise<JsonObject> {
  const { outer, grant, method, isInProcess } = request;
  const { app } = grant.principal;
  const { server } = grant.target;
  const principal: Principal = {
    app,
    agent: serverAgent(server),
    scope: [],
    via: "server",
    ...(isInProcess ? {} : { limits: { perMinute: pipeline.limits.serverRequestsPerMinute } }),
  };
  const cancel = new Cancel();
  const answer = await callWithin(pipeline, outer, request.parent ?? outer.cancel, "", {
    principal,
    method,
    // What the server sent is the route's arguments: none of it is read as parameters of a call.
    params: {},
    route: routeOf(pipeline, request, cancel),
    requestId: undefined,
    conversation: SILENT,
    cancel,
    depth: outer.depth,
  });
  if (answer.ok) return answer.result as JsonObject;
  if (answer.fault.type === "PolicyDeny") reportDenied(pipeline, app, server, method, answer.fault);
  throw answer.fault;
}

const TIMEOUT_MARGIN_MS = 5_000;

function routeOf(pipeline: Pipeline, request: ClientRequest, cancel: Cancel): Route {
  const { grant, method, params, isInProcess } = request;
  const { principal, target } = grant;
  return {
    type: "Agent",
    name: `${principal.app}/${principal.agent}`,
    action: method,
    binding: target.binding,
    server: target.server,
    definitionHash: target.definitionHash,
    tags: [],
    readOnly: false,
    noGuardrailRequired: true,
    builtin: false,
    serverRequest: {
      tool: target.name,
      scope: principal.scope,
      user: principal.user,
      groups: principal.groups,
      permittedUnlessForbidden: isInProcess,
    },
    arguments: params,
    // The session applies the exact timeout; this one ends a delivery that has none.
    timeoutMs: pipeline.limits.askTimeoutMs + TIMEOUT_MARGIN_MS,
    hasOutputSchema: false,
    validate: () => checked(pipeline, method, params),
    validateOutput: () => ({ ok: true }),
    run: (context) => {
      const decided = applyObligations(grant.obligations, intentArguments(context.grant.intent));
      return request.deliver(marked(method, decided, target.server, isInProcess), cancel);
    },
  };
}

/** A server can imitate neither another origin nor the gateway: its name stands in front of the text of an elicitation. */
function marked(method: string, params: JsonObject, server: string, isInProcess: boolean): JsonObject {
  const given = isJsonObject(params._meta) ? params._meta : {};
  const meta = Object.fromEntries(Object.entries(given).filter(([key]) => !isOwnMeta(key)));
  const out: JsonObject = { ...params, _meta: { ...meta, [ORIGIN_META]: serverAgent(server) } };
  if (method !== "elicitation/create" || isInProcess) return out;
  const message = typeof params.message === "string" ? params.message : "";
  return { ...out, message: `Request from server "${server}": ${message}` };
}

function checked(pipeline: Pipeline, method: string, params: JsonObject): Validation {
  const problem =
    sizeProblem(pipeline, params) ?? (method === "elicitation/create" ? urlProblem(pipeline, params) : undefined);
  return problem ? { ok: false, problems: [problem] } : { ok: true };
}

function sizeProblem({ limits }: Pipeline, params: JsonObject): Problem | undefined {
  const bytes = Buffer.byteLength(JSON.stringify(params));
  if (bytes <= limits.maxClientRequestBytes) return undefined;
  const expected = `at most ${limits.maxClientRequestBytes} bytes (maxClientRequestBytes)`;
  return { path: "", message: `the request has ${bytes} bytes`, expected };
}

/** A page that a server asks users to open must not be the one where calls are approved. */
function urlProblem(pipeline: Pipeline, { mode, url }: JsonObject): Problem | undefined {
  if (mode !== "url" && url === undefined) return undefined;
  const target = typeof url === "string" && URL.canParse(url) ? new URL(url) : undefined;
  if (!target || (target.protocol !== "https:" && target.protocol !== "http:")) {
    return { path: "url", message: "must be an http or https URL", expected: "a page of the server" };
  }
  const named = pipeline.approvalUrl?.("x");
  const own = [...(pipeline.approvalAddresses?.() ?? []), ...(named === undefined ? [] : [named])];
  if (!own.some((address) => isSameAddress(target, new URL(address)))) return undefined;
  return {
    path: "url",
    message: "must not point to the address where calls are approved",
    expected: "a page of the server",
  };
}

/**
 * Any name may resolve to an address, so for an address without a name of its own the port decides. The two ports that
 * are not written count as one: a page at `http:` commonly redirects to the same at `https:`.
 */
function isSameAddress(target: URL, own: URL): boolean {
  const port = portOf(own);
  const isWebPort = WEB_PORTS.has(port);
  if (portOf(target) !== port && !(isWebPort && WEB_PORTS.has(portOf(target)))) return false;
  if (hostOf(target) === hostOf(own)) return true;
  const isAddress = isIP(hostOf(own)) !== 0 || hostOf(own) === "localhost";
  return isAddress && (!isWebPort || isIP(hostOf(target)) !== 0 || hostOf(target).endsWith("localhost"));
}

const WEB_PORTS: ReadonlySet<string> = new Set(["80", "443"]);

function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$|\.+$/g, "");
}

function portOf({ port, protocol }: URL): string {
  return port === "" ? (protocol === "https:" ? "443" : "80") : port;
}

/** Denied requests of one server and method are logged once in this time. */
const REPORT_EVERY_MS = 60_000;
const MAX_REPORTED = 1_000;
const reportedAt = new Map<string, number>();

function reportDenied(pipeline: Pipeline, app: string, server: string, method: string, fault: Fault): void {
  const key = JSON.stringify([app, server, method]);
  const now = performance.now();
  if (now - (reportedAt.get(key) ?? Number.NEGATIVE_INFINITY) < REPORT_EVERY_MS) return;
  if (reportedAt.size >= MAX_REPORTED) reportedAt.clear();
  reportedAt.set(key, now);
  pipeline.telemetry.log.warning("a server's request to a client was denied", {
    app,
    server,
    method,
    reason: fault.message,
    rule: fault.detail.rule ?? "",
    ruleToAdd: permitForServer(app, server, method),
  });
}
