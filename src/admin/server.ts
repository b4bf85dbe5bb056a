// The admin port: metrics and health for machines, approval requests for the operator. It does not serve MCP, and agents
// do not have its credential.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import type { Ledger } from "../ledger/index.js";
import { asFault, Fault, isLoopbackHost, type JsonObject } from "../mcp/index.js";
import { type Approver, type Gate, noPolicy } from "../policy/index.js";
import { PROMETHEUS_CONTENT_TYPE, renderPrometheus, type Telemetry, traceIdFrom, visible } from "../telemetry/index.js";
import { Answering, type ApprovalAnswer, listed, MAX_REASON_CHARS, NotAnswerable, shown } from "./approvals.js";
import { boundConnections, readJson, sendFault, sendJson, sendText } from "./exchange.js";
import { bearerOf, Guard, type NonceUse, SignIn } from "./guard.js";
import { type HaltControl, halt, haltRow, resume } from "./halts.js";
import { FollowedToken } from "./operator-token.js";
import { APPROVAL_PAGE, APPROVAL_SCRIPT, APPROVAL_STYLE, PAGE_HEADERS } from "./page.js";
import { type RegistrationRoutes, registrationRoute } from "./registrations.js";
import {
  type ComponentChecks,
  type ComponentState,
  evaluateReadiness,
  MAX_REFUSED,
  type ProcessReport,
  type RefusedApplication,
  type ReportPart,
  readinessFamilies,
} from "./reports.js";
import { SharedText } from "./shared-text.js";

export interface AdminOptions {
  /** Loopback unless said otherwise. */
  host?: string;
  /** 0 lets the system choose. */
  port?: number;
  telemetry: Telemetry;
  gate: Pick<Gate, "policy" | "approvals">;
  /** Without one nothing can be approved. */
  ledger?: Pick<Ledger, "append" | "status"> | undefined;
  /** Components that calls depend on besides `policy` and `ledger`, for `/readyz`. */
  components?: ComponentChecks;
  /** Whether everything that serves calls has been started, for `/startupz`. */
  isStarted?: () => boolean;
  /** Applications that are not served as they should be. The others are, so this one port stays ready. */
  refused?: () => readonly RefusedApplication[];
  /** Where the operator's credential is, or will be made. */
  tokenFile: string;
  /** Who the credential stands for. */
  approver?: { name?: string; groups?: readonly string[] };
  /** Whose key this is, where approvers have keys of their own. */
  approverFor?: (token: string) => Approver | undefined | Promise<Approver | undefined>;
  /** Registrations of applications, for keys with `admin.read` and `admin.write`. */
  registrations?: RegistrationRoutes | undefined;
  /** What is halted; without it the port has no emergency stop. */
  halts?: HaltControl | undefined;
  /** Where used sign-in codes are kept; without it there are no sign-in links. */
  nonces?: NonceUse;
  policyFiles?: () => readonly string[];
  /** How the servers behind the gateway are; for the operator alone. */
  servers?: () => readonly object[];
  /** Names that clients may use for this port besides the loopback names and the address itself. */
  allowedHosts?: readonly string[];
  limits?: Partial<AdminLimits>;
  /**
   * Where worker processes share this port: the report over all of them. Every worker listens, so the port answers while
   * any of them runs.
   */
  collect?: ((part: ReportPart) => Promise<ProcessReport>) | undefined;
}

export interface AdminLimits {
  maxBodyBytes: number;
  maxConnections: number;
  headersMs: number;
  requestMs: number;
  maxFailuresPerMinute: number;
}

const DEFAULT_ADMIN_LIMITS: AdminLimits = {
  maxBodyBytes: 16 * 1024,
  maxConnections: 128,
  headersMs: 5_000,
  requestMs: 10_000,
  maxFailuresPerMinute: 30,
};

export interface AdminListener {
  readonly url: string;
  readonly port: number;
  /** What this process alone reports. */
  report(part: ReportPart): ProcessReport;
  close(graceMs?: number): Promise<void>;
}

/** Beside the operator's token. */
const METRICS_TOKEN_FILE = "metrics.token";

export async function startAdmin(options: AdminOptions): Promise<AdminListener> {
  const host = options.host ?? "127.0.0.1";
  const limits = { ...DEFAULT_ADMIN_LIMITS, ...options.limits };
  const { maxFailuresPerMinute } = limits;
  const operatorToken = new FollowedToken(options.tokenFile);
  const metricsFileToken = new FollowedToken(join(dirname(options.tokenFile), METRICS_TOKEN_FILE));
  const token = (): string => operatorToken.value;
  const metricsToken = (): string => metricsFileToken.value;
  const allowedHosts = options.allowedHosts ?? [];
  const guard = new Guard({ listenHost: host, allowedHosts, token, metricsToken, maxFailuresPerMinute });
  const { ledger } = options;
  if (ledger) options.telemetry.metrics.watchLedger(() => ledger.status());
  const server = createServer({ maxHeaderSize: 8 * 1024 });
  const { nonces } = options;
  const signIn = nonces && new SignIn(token, nonces, () => (server.address() as AddressInfo).port);
  const admin = new Admin(options, guard, limits, boundConnections(server, limits.maxConnections), signIn);
  server.on("request", async (request, response) => {
    const { authorization, cookie } = request.headers;
    // A replaced token counts from the next request on. Probes without a credential do not wait for the disk.
    if (authorization !== undefined || cookie !== undefined || request.method !== "GET") {
      await Promise.all([operatorToken.look(), metricsFileToken.look()]);
    }
    await admin.handle(request, response);
  });
  server.headersTimeout = limits.headersMs;
  server.requestTimeout = limits.requestMs;
  server.keepAliveTimeout = 5_000;
  await listen(server, host, options.port ?? 0, options.collect !== undefined);
  if (!isLoopbackHost(host)) {
    options.telemetry.log.warning(
      "the admin port is open beyond this machine, and its credential travels unencrypted",
      {
        host,
      },
    );
  }
  const { port } = server.address() as AddressInfo;
  const shownHost = host.includes(":") ? `[${host}]` : host;
  return {
    url: `http://${shownHost}:${port}`,
    port,
    report: (part) => admin.report(part),
    close: (graceMs = 1_000) => close(server, graceMs),
  };
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly by: Approver;
}

interface Route {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly isOpen?: true;
  /** Shows nothing by itself, so a link on a page of another origin may lead to it. */
  readonly isPage?: true;
  run(exchange: Exchange): void | Promise<void>;
}

const PAGE = /^\/(?:approvals|approve\/[A-Za-z0-9_-]{1,64})$/;
const CHALLENGE = /^\/v1\/approvals\/([A-Za-z0-9_-]{1,64})(?:\/(approve|deny))?$/;

class Admin {
  readonly #options: AdminOptions;
  readonly #guard: Guard;
  readonly #limits: AdminLimits;
  readonly #answering: Answering;
  readonly #operator: Approver;
  readonly #signIn: SignIn | undefined;
  readonly #processMetrics = new SharedText(() => this.#metricsText(true));
  /** Called for each request whose credential was accepted. */
  readonly #authenticated: (request: IncomingMessage, response: ServerResponse) => void;
  readonly #routes: Readonly<Record<string, Route | undefined>> = {
    "/metrics": { method: "GET", isOpen: true, run: (exchange) => this.#metrics(exchange) },
    "/healthz": { method: "GET", isOpen: true, run: (exchange) => this.#alive(exchange) },
    "/livez": { method: "GET", isOpen: true, run: (exchange) => this.#alive(exchange) },
    "/readyz": { method: "GET", isOpen: true, run: (exchange) => this.#ready(exchange) },
    "/startupz": { method: "GET", isOpen: true, run: (exchange) => this.#started(exchange) },
    "/v1/policy": { method: "GET", run: (exchange) => this.#policy(exchange) },
    "/v1/servers": { method: "GET", run: (exchange) => this.#servers(exchange) },
    "/v1/sign-in-links": { method: "POST", run: (exchange) => this.#signInLink(exchange) },
    "/v1/sign-in": { method: "POST", isOpen: true, run: (exchange) => this.#redeem(exchange) },
    "/v1/approvals": { method: "GET", run: (exchange) => this.#list(exchange) },
    page: still("text/html; charset=utf-8", APPROVAL_PAGE),
    "/approve.js": still("text/javascript; charset=utf-8", APPROVAL_SCRIPT),
    "/approve.css": still("text/css; charset=utf-8", APPROVAL_STYLE),
  };

  constructor(
    options: AdminOptions,
    guard: Guard,
    limits: AdminLimits,
    authenticated: ReturnType<typeof boundConnections>,
    signIn: SignIn | undefined,
  ) {
    this.#signIn = signIn;
    this.#authenticated = authenticated;
    this.#options = options;
    this.#guard = guard;
    this.#limits = limits;
    const { name = "operator", groups = ["operators"] } = options.approver ?? {};
    this.#operator = { name, groups };
    this.#answering = new Answering(options.gate.approvals, options.ledger);
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const traceId = traceIdFrom(request.headers.traceparent);
    try {
      const route = this.#route(request.url ?? "", request.method);
      this.#guard.checkSource(request, route?.isPage);
      if (!route) throw new Fault("ResourceNotFound", "the admin port has nothing at this path");
      if (request.method !== route.method) {
        response.setHeader("allow", route.method);
        return sendFault(response, new Fault("InvalidRequest", `use ${route.method} here`), traceId, 405);
      }
      const by = route.isOpen ? this.#operator : await this.#credentialOf(request);
      if (!route.isOpen) this.#authenticated(request, response);
      await route.run({ request, response, traceId, by });
    } catch (error) {
      this.#fail(request, response, asFault(error), traceId);
    }
  }

  /** The operator's own token, the key of an approver, or the session of a signed-in browser. */
  async #credentialOf(request: IncomingMessage): Promise<Approver> {
    if (request.headers.authorization === undefined && this.#signIn?.accepts(request)) return this.#operator;
    const approver = await this.#options.approverFor?.(bearerOf(request));
    if (approver) return approver;
    this.#guard.checkCredential(request);
    return this.#operator;
  }

  #route(url: string, method: string | undefined): Route | undefined {
    const path = url.split("?", 1)[0] as string;
    const registration = this.#registrationRoute(path, method);
    if (registration) return registration;
    const { halts } = this.#options;
    if (path === "/v1/halts" && halts) return this.#haltRoute(halts, method);
    const name = PAGE.test(path) ? "page" : path;
    if (Object.hasOwn(this.#routes, name)) return this.#routes[name];
    const [, id, action] = CHALLENGE.exec(path) ?? [];
    if (id === undefined) return undefined;
    if (action === undefined) return { method: "GET", run: (exchange) => this.#show(id, exchange) };
    const answer = action === "approve" ? "approved" : "denied";
    return { method: "POST", run: (exchange) => this.#answer(id, answer, exchange) };
  }

  /** Checks its own credential: a key with `admin.read` or `admin.write`. */
  #registrationRoute(path: string, method: string | undefined): Route | undefined {
    const { registrations } = this.#options;
    const route = registrations && registrationRoute(path, method);
    if (!route) return undefined;
    const { maxBodyBytes } = this.#limits;
    return {
      method: route.method,
      isOpen: true,
      run: ({ request, response, traceId }) =>
        route.run(registrations, {
          request,
          response,
          traceId,
          maxBodyBytes,
          checkOperator: () => this.#guard.checkCredential(request),
          authenticated: () => this.#authenticated(request, response),
        }),
    };
  }

  #haltRoute(halts: HaltControl, method: string | undefined): Route {
    return {
      method: method === "POST" || method === "DELETE" ? method : "GET",
      run: async ({ request, response, by }) => {
        this.#checkOperator(by);
        const actor = `admin:${by.name}`;
        if (method === "GET") return sendJson(response, 200, { halts: halts.list().map(haltRow) });
        const query = Object.fromEntries(new URLSearchParams((request.url ?? "").split("?")[1] ?? ""));
        const done =
          method === "DELETE"
            ? await resume(halts, query, actor)
            : await halt(halts, await readJson(request, this.#limits.maxBodyBytes), actor);
        sendJson(response, 200, done);
      },
    };
  }

  report(part: ReportPart): ProcessReport {
    const { telemetry, isStarted, refused, servers } = this.#options;
    const components = Object.entries(this.#checks()).map(([name, check]) => [name, check()] as const);
    return {
      isAlive: true,
      isStarted: isStarted?.() ?? true,
      components: Object.fromEntries(components),
      refused: (refused?.() ?? []).slice(0, MAX_REFUSED),
      families: part === "metrics" ? telemetry.metrics.families() : [],
      servers: part === "servers" ? (servers?.() ?? []) : [],
    };
  }

  async #collect(part: ReportPart): Promise<ProcessReport> {
    return this.#options.collect ? this.#options.collect(part) : this.report(part);
  }

  /** Series of applications and tools need a credential; the process's own need none. */
  async #metrics({ request, response }: Exchange): Promise<void> {
    const isAnonymous = request.headers.authorization === undefined;
    if (!isAnonymous) this.#guard.checkMetricsCredential(request);
    const text = await (isAnonymous ? this.#processMetrics.get() : this.#metricsText(false));
    sendText(response, 200, PROMETHEUS_CONTENT_TYPE, text);
  }

  async #metricsText(processOnly: boolean): Promise<string> {
    const { families, components } = await this.#collect("metrics");
    return renderPrometheus([...families, ...readinessFamilies(components)], { processOnly });
  }

  /** Whether event loops run, whatever the components report: restarting the process mends none of them. */
  async #alive({ response }: Exchange): Promise<void> {
    const { isAlive } = await this.#collect("health");
    sendJson(response, isAlive ? 200 : 503, { status: isAlive ? "ok" : "failed" });
  }

  async #started({ response }: Exchange): Promise<void> {
    const { isStarted } = await this.#collect("health");
    sendJson(response, isStarted ? 200 : 503, { started: isStarted });
  }

  /** Without a credential the answer names neither components nor applications. */
  async #ready({ request, response }: Exchange): Promise<void> {
    const isAnonymous = request.headers.authorization === undefined;
    if (!isAnonymous) this.#guard.checkCredential(request);
    const { components, refused } = await this.#collect("health");
    const { isReady, report } = evaluateReadiness(components);
    const status = isReady ? 200 : 503;
    if (isAnonymous) return sendJson(response, status, { ready: isReady });
    const applications = refused.map(({ app, reason }) => ({ app, reason: reason.slice(0, MAX_REASON_CHARS) }));
    sendJson(response, status, { ...report, ...(applications.length === 0 ? {} : { applications }) });
  }

  #checks(): ComponentChecks {
    const { gate, ledger, components } = this.#options;
    const policy = (): ComponentState => {
      if (gate.policy.hash === noPolicy.hash) return { problem: "no policy is loaded" };
      return components?.policy?.() ?? {};
    };
    const ledgerState = (): ComponentState => {
      const { healthy, lastError } = (ledger as Pick<Ledger, "status">).status();
      const why = lastError?.message;
      if (!healthy) return { problem: `the ledger cannot be written${why === undefined ? "" : `: ${why}`}` };
      return { warning: why };
    };
    return { ...components, policy, ...(ledger ? { ledger: ledgerState } : {}) };
  }

  #policy({ response, by }: Exchange): void {
    this.#checkOperator(by);
    const { policy } = this.#options.gate;
    const files = this.#options.policyFiles?.() ?? [...new Set(policy.rules.map((rule) => rule.file))];
    sendJson(response, 200, { hash: policy.hash, files, rules: policy.rules.length, warnings: policy.warnings });
  }

  /** An approver's key is good for approvals, and for nothing else. */
  #checkOperator(by: Approver): void {
    if (by !== this.#operator) throw new Fault("AuthorizationError", "this is for the operator's own credential");
  }

  async #servers({ response, by }: Exchange): Promise<void> {
    this.#checkOperator(by);
    const { servers } = await this.#collect("servers");
    sendJson(response, 200, { servers: servers as unknown as JsonObject[] });
  }

  #signInLink({ response, by }: Exchange): void {
    this.#checkOperator(by);
    if (!this.#signIn) throw new Fault("ResourceNotFound", "this admin port has no sign-in links");
    const { code, expiresAt } = this.#signIn.issue();
    sendJson(response, 200, { code, expires_at: new Date(expiresAt).toISOString() });
  }

  async #redeem({ request, response }: Exchange): Promise<void> {
    const { code } = await readJson(request, this.#limits.maxBodyBytes);
    const signedIn = typeof code === "string" ? await this.#signIn?.redeem(code) : undefined;
    if (!signedIn) {
      throw this.#guard.failure("the sign-in link is wrong, expired or used", "Run `portcullis approvals open` again");
    }
    this.#options.telemetry.log.notice("a browser signed in at the admin port", { by: this.#operator.name });
    response.setHeader("set-cookie", signedIn.setCookie);
    sendJson(response, 200, { page_key: signedIn.pageKey });
  }

  async #list({ request, response, by }: Exchange): Promise<void> {
    const state = new URLSearchParams((request.url ?? "").split("?")[1] ?? "").get("state");
    const all = await this.#answering.list(by, state ?? undefined);
    sendJson(response, 200, { approvals: all.map(listed) });
  }

  async #show(id: string, { response, by }: Exchange): Promise<void> {
    sendJson(response, 200, shown(await this.#answering.show(id, by)));
  }

  async #answer(id: string, answer: ApprovalAnswer, { request, response, traceId, by }: Exchange): Promise<void> {
    const reason = readReason(await readJson(request, this.#limits.maxBodyBytes));
    const challenge = await this.#answering.answer(id, answer, reason, traceId, by);
    const { tool, app, agent, decidedBy } = challenge;
    this.#options.telemetry.metrics.approvalsAnswered.inc(answer);
    this.#options.telemetry.log.notice(
      `challenge ${answer}`,
      { challenge: id, tool, app, agent, by: decidedBy },
      traceId,
    );
    sendJson(response, 200, shown(challenge));
  }

  #fail(request: IncomingMessage, response: ServerResponse, fault: Fault, traceId: string): void {
    const { log, metrics } = this.#options.telemetry;
    if (fault.type === "AuthenticationError" || fault.type === "RateLimited") {
      metrics.unauthenticated.inc();
      // Past the limit a stranger writes nothing more to the log.
      if (fault.type === "AuthenticationError") {
        const from = request.socket.remoteAddress;
        log.notice("a request to the admin port had no valid credential", { from }, traceId);
      }
    } else if (fault.type === "InternalError" || fault.type === "AuditFailure") {
      if (fault.type === "AuditFailure") metrics.ledgerFailures.inc();
      log.error(`the admin port failed: ${fault.message}`, { error: fault.cause }, traceId);
    }
    if (response.headersSent || response.destroyed) return void response.destroy();
    if (fault instanceof NotAnswerable) return sendFault(response, fault, traceId, 409);
    sendFault(response, fault, traceId);
  }
}

/** The same for every caller: it shows nothing without a credential. */
function still(type: string, text: string): Route {
  return {
    method: "GET",
    isOpen: true,
    isPage: true,
    run: ({ response }) => sendText(response, 200, type, text, PAGE_HEADERS),
  };
}

function readReason(body: JsonObject): string {
  const unknown = Object.keys(body).find((key) => key !== "reason");
  if (unknown !== undefined) {
    throw new Fault("InvalidParams", `field \`${visible(unknown.slice(0, 64))}\` has no meaning here`, {
      field: "reason",
      suggestions: ['Send {"reason": "…"} or {}'],
    });
  }
  const reason = body.reason ?? "";
  if (typeof reason === "string" && reason.length <= MAX_REASON_CHARS) return reason;
  throw new Fault("InvalidParams", `\`reason\` must be a text of at most ${MAX_REASON_CHARS} characters`, {
    field: "reason",
  });
}

function listen(server: Server, host: string, port: number, isShared: boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => {
      reject(
        new Error(`the admin port cannot listen on ${host}:${port}: ${error.message}; choose another`, {
          cause: error,
        }),
      );
    });
    // Shared only between workers, each of which answers for all of them.
    server.listen({ port, host, exclusive: !isShared }, resolve);
  });
}

async function close(server: Server, graceMs: number): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeIdleConnections();
  const timer = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearTimeout(timer);
}
