// The admin port: metrics and health for machines, approval requests for the operator. It does not serve MCP, and agents
// do not have its credential.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import type { Ledger } from "../ledger/index.js";
import { asFault, Fault, isLoopbackHost, type JsonObject } from "../mcp/index.js";
import { type Approver, type Challenge, type Gate, noPolicy } from "../policy/index.js";
import { PROMETHEUS_CONTENT_TYPE, renderPrometheus, type Telemetry, traceIdFrom } from "../telemetry/index.js";
import {
  checkMayUse,
  type FoundOperation,
  findOperation,
  type OperationExchange,
  type OperationHandlers,
  readInput,
  recordWrite,
  shownTo,
} from "./api.js";
import { Answering, type ApprovalAnswer, listed, MAX_REASON_CHARS, NotAnswerable, shown } from "./approvals.js";
import { type AdminCaller, isOperator, mayUse, seesArguments } from "./caller.js";
import { ConsoleFiles } from "./console.js";
import { AdminEvents } from "./events.js";
import { ANSWER_HEADERS, boundConnections, sendFault, sendJson, sendText } from "./exchange.js";
import { bearerOf, Guard } from "./guard.js";
import { type HaltControl, halt, haltRow, resume } from "./halts.js";
import { openApiDocument } from "./openapi.js";
import type { ApprovalDetail, SessionFacts } from "./operations.js";
import { FollowedToken } from "./operator-token.js";
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
import { type OperationName, ROUTES, type Role } from "./routes.js";
import { BrowserSessions, type NonceUse, type SessionStore } from "./sessions.js";
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
  approverFor?: (token: string) => AdminCredential | undefined | Promise<AdminCredential | undefined>;
  /** Registrations of applications, for keys with `admin.read` and `admin.write`. */
  registrations?: RegistrationRoutes | undefined;
  /** What is halted; without it the port has no emergency stop. */
  halts?: HaltControl | undefined;
  /** Where used sign-in codes are kept; without it there are no sign-in links. */
  nonces?: NonceUse;
  /** Where sessions of browsers are kept; without it there are none. */
  sessions?: SessionStore | undefined;
  /** Whether a key that a session was opened with may still be used. */
  isKeyActive?: (id: string) => Promise<boolean>;
  /** Operations of the table besides those of this port itself. */
  operations?: OperationHandlers | undefined;
  /** What an approver needs to know of a request besides the request itself. */
  approvalDetail?: ((challenge: Challenge, by: AdminCaller) => Promise<Partial<ApprovalDetail>>) | undefined;
  /** Gets the events that browsers follow, and what ends its work. */
  startEvents?: ((events: AdminEvents) => () => void) | undefined;
  version?: string;
  kind?: SessionFacts["kind"];
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

/** Whose key this is; an approver's unless it has other roles. */
export type AdminCredential = Approver & { readonly roles?: readonly Role[]; readonly key?: string };

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
  /** A link to the console that signs in once; undefined where browsers cannot sign in. */
  signInLink(ttlMs: number): string | undefined;
  /** What this process alone reports. */
  report(part: ReportPart): ProcessReport;
  close(graceMs?: number): Promise<void>;
}

/** How long a grant lasts that is proposed. */
const GRANT_MS = 15 * 60_000;
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
  const { nonces, sessions: store, isKeyActive = async () => true } = options;
  const port = (): number => (server.address() as AddressInfo).port;
  const sessions = nonces && store && new BrowserSessions({ token, nonces, store, port, isKeyActive });
  const admin = new Admin(options, guard, limits, boundConnections(server, limits.maxConnections), sessions);
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
  const shownHost = host.includes(":") ? `[${host}]` : host;
  return {
    url: `http://${shownHost}:${port()}`,
    port: port(),
    signInLink: (ttlMs) => sessions && `http://${shownHost}:${port()}/console/#${sessions.issue(ttlMs).code}`,
    report: (part) => admin.report(part),
    close: (graceMs = 1_000) => {
      admin.close();
      return close(server, graceMs);
    },
  };
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly by: AdminCaller;
}

interface Route {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly isOpen?: true;
  /** Shows nothing by itself, so a link on a page of another origin may lead to it. */
  readonly isPage?: true;
  run(exchange: Exchange): void | Promise<void>;
}

const PAGE = /^\/(?:approvals|approve\/[A-Za-z0-9_-]{1,64})$/;

class Admin {
  readonly #options: AdminOptions;
  readonly #guard: Guard;
  readonly #limits: AdminLimits;
  readonly #answering: Answering;
  readonly #operator: AdminCaller;
  readonly #sessions: BrowserSessions | undefined;
  readonly #events: AdminEvents;
  readonly #console = new ConsoleFiles();
  readonly #endEvents: () => void;
  readonly #processMetrics = new SharedText(() => this.#metricsText(true));
  /** Called for each request whose credential was accepted. */
  readonly #authenticated: (request: IncomingMessage, response: ServerResponse) => void;
  readonly #routes: Readonly<Record<string, Route | undefined>> = {
    "/": page(() => "/console/"),
    "/metrics": { method: "GET", isOpen: true, run: (exchange) => this.#metrics(exchange) },
    "/healthz": { method: "GET", isOpen: true, run: (exchange) => this.#alive(exchange) },
    "/livez": { method: "GET", isOpen: true, run: (exchange) => this.#alive(exchange) },
    "/readyz": { method: "GET", isOpen: true, run: (exchange) => this.#ready(exchange) },
    "/startupz": { method: "GET", isOpen: true, run: (exchange) => this.#started(exchange) },
    "/v1/policy": { method: "GET", run: (exchange) => this.#policy(exchange) },
    page: page((path) => `/console/approvals${path.startsWith("/approve/") ? path.slice("/approve".length) : ""}`),
  };
  readonly #handlers: OperationHandlers;

  constructor(
    options: AdminOptions,
    guard: Guard,
    limits: AdminLimits,
    authenticated: ReturnType<typeof boundConnections>,
    sessions: BrowserSessions | undefined,
  ) {
    this.#sessions = sessions;
    this.#authenticated = authenticated;
    this.#options = options;
    this.#guard = guard;
    this.#limits = limits;
    const { name = "operator", groups = ["operators"] } = options.approver ?? {};
    this.#operator = { name, groups, roles: ["operator"] };
    this.#answering = new Answering(options.gate.approvals, options.ledger);
    this.#handlers = { ...this.#ownHandlers(), ...options.operations };
    const isValid = async (by: AdminCaller): Promise<boolean> => sessions?.isValid(by) ?? true;
    this.#events = new AdminEvents(options.version ?? "", isValid);
    this.#endEvents = options.startEvents?.(this.#events) ?? (() => {});
  }

  close(): void {
    this.#endEvents();
    this.#events.close();
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const traceId = traceIdFrom(request.headers.traceparent);
    const { method, url = "" } = request;
    try {
      const path = url.split("?", 1)[0] as string;
      const isConsole = path === "/console" || path.startsWith("/console/");
      const route = this.#route(path, method);
      this.#guard.checkSource(request, (isConsole || route?.isPage) ?? false);
      if (isConsole && method === "GET" && this.#console.send(path, response)) return;
      const operation = route ? undefined : findOperation(method, path, (name) => this.#isServed(name));
      if (!route && !operation) throw new Fault("ResourceNotFound", "the admin port has nothing at this path");
      const allowed = operation ? ("allowed" in operation ? operation.allowed : [method]) : [route?.method];
      if (!allowed.includes(method as never) || (operation && "allowed" in operation)) {
        response.setHeader("allow", allowed.join(", "));
        return sendFault(response, new Fault("InvalidRequest", `use ${allowed.join(" or ")} here`), traceId, 405);
      }
      if (operation && !("allowed" in operation)) return await this.#operate(operation, request, response, traceId);
      if (!route) return;
      const by = route.isOpen ? this.#operator : await this.#credentialOf(request);
      if (!route.isOpen) this.#authenticated(request, response);
      await route.run({ request, response, traceId, by });
    } catch (error) {
      this.#fail(request, response, asFault(error), traceId);
    }
  }

  #isServed(name: OperationName): boolean {
    return name === "signIn" || name === "followEvents" || this.#handlers[name] !== undefined;
  }

  async #operate(
    found: FoundOperation,
    request: IncomingMessage,
    response: ServerResponse,
    traceId: string,
  ): Promise<void> {
    const { name } = found;
    if (name === "signIn") return this.#signIn(found, request, response);
    const by = await this.#callerOf(request);
    this.#authenticated(request, response);
    checkMayUse(by, name);
    const input = await readInput(found, request, by);
    if (name === "followEvents") return this.#follow(by, request, response, input as { last?: string });
    const exchange: OperationExchange = { by, actor: `admin:${by.name}`, traceId };
    await recordWrite(this.#options.ledger, name, input as JsonObject, exchange);
    const run = this.#handlers[name] as (input: unknown, exchange: OperationExchange) => Promise<object> | object;
    const result = await run(input, exchange);
    if (name === "signOut" && this.#sessions) response.setHeader("set-cookie", this.#sessions.clearCookie);
    sendJson(response, 200, shownTo(by, name, result));
  }

  async #follow(
    by: AdminCaller,
    request: IncomingMessage,
    response: ServerResponse,
    { last }: { last?: string },
  ): Promise<void> {
    const header = request.headers["last-event-id"];
    const from = typeof header === "string" ? header : (last ?? "");
    if (await this.#events.follow(by, response, ANSWER_HEADERS, from)) return;
    throw new Fault("Unavailable", "too many browsers follow events; close some");
  }

  /** The credential of a request, or the session of a signed-in browser. */
  async #callerOf(request: IncomingMessage): Promise<AdminCaller> {
    if (request.headers.authorization === undefined) {
      const caller = await this.#sessions?.find(request);
      if (caller) return caller;
    }
    return this.#credentialOf(request);
  }

  /** The operator's own token, or a key that may use the admin port. */
  async #credentialOf(request: IncomingMessage): Promise<AdminCaller> {
    const caller = await this.#ofKey(bearerOf(request));
    if (caller) return caller;
    this.#guard.checkCredential(request);
    return this.#operator;
  }

  async #ofKey(token: string): Promise<AdminCaller | undefined> {
    const found = await this.#options.approverFor?.(token);
    return found && { ...found, roles: found.roles ?? ["approver"] };
  }

  async #signIn(found: FoundOperation, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sessions = this.#sessions;
    if (!sessions) throw new Fault("ResourceNotFound", "this admin port has no sign-in");
    const { code, credential } = (await readInput(found, request, this.#operator)) as {
      code?: string;
      credential?: string;
    };
    let caller: AdminCaller | undefined;
    if (code !== undefined) {
      if (await sessions.redeem(code)) caller = this.#operator;
      else {
        throw this.#guard.failure("the sign-in link is wrong, expired or used", "Run `portcullis console` again");
      }
    } else {
      caller = await this.#ofKey(credential ?? "");
      if (!caller) {
        this.#guard.checkToken(credential ?? "");
        caller = this.#operator;
      }
    }
    const signedIn = await sessions.open(caller);
    this.#options.telemetry.log.notice("a browser signed in at the admin port", { by: caller.name });
    response.setHeader("set-cookie", signedIn.setCookie);
    sendJson(response, 200, { page_key: signedIn.pageKey, session: this.#facts(signedIn.caller) });
  }

  #facts(by: AdminCaller): SessionFacts {
    const { version = "", kind = "gateway" } = this.#options;
    const isUsable = (name: OperationName): boolean => this.#isServed(name) && mayUse(by, ROUTES[name]);
    return {
      name: by.name,
      roles: by.roles,
      groups: by.groups,
      sees_arguments: seesArguments(by),
      version,
      kind,
      operations: (Object.keys(ROUTES) as OperationName[]).filter(isUsable),
      ...(by.app === undefined ? {} : { app: by.app }),
      ...(by.session && this.#sessions
        ? { expires_at: new Date(by.session.until).toISOString(), idle_ms: this.#sessions.idleMs }
        : {}),
    };
  }

  /** The operations of this port itself. */
  #ownHandlers(): OperationHandlers {
    const { halts, version = "" } = this.#options;
    return {
      getSession: (_input, { by }) => this.#facts(by),
      getOpenApi: () => openApiDocument(version),
      ...(this.#sessions
        ? {
            signOut: async ({ everywhere = false }, { by }) => ({
              ended: (await this.#sessions?.end(by, everywhere)) ?? 0,
            }),
            createSignInLink: () => {
              const { code, expiresAt } = (this.#sessions as BrowserSessions).issue();
              return { code, expires_at: new Date(expiresAt).toISOString() };
            },
          }
        : {}),
      listApprovals: async ({ state, app }, { by }) => ({
        approvals: (await this.#answering.list(by, state, app)).map((each) => listed(each, by)),
      }),
      getApproval: async ({ id }, { by }) => this.#detail(await this.#answering.show(id, by), by),
      approve: ({ id, reason, intent_id }, exchange) => this.#answer(id, "approved", reason, exchange, intent_id),
      deny: ({ id, reason }, exchange) => this.#answer(id, "denied", reason, exchange),
      approveThese: async ({ these, reason }, exchange) => {
        const results: { id: string; ok: boolean; problem?: string }[] = [];
        // One after the other: each answer is recorded before it takes effect.
        for (const { id, intent_id } of these) {
          try {
            await this.#answer(id, "approved", reason, exchange, intent_id);
            results.push({ id, ok: true });
          } catch (error) {
            results.push({ id, ok: false, problem: asFault(error).message });
          }
        }
        return { results };
      },
      ...(halts
        ? {
            listHalts: () => ({ halts: halts.list().map(haltRow) }),
            halt: (input, { actor }) => halt(halts, input, actor),
            resume: (input, { actor }) => resume(halts, input, actor),
          }
        : {}),
    };
  }

  async #detail(challenge: Challenge, by: AdminCaller): Promise<ApprovalDetail> {
    const more = await this.#options.approvalDetail?.(challenge, by);
    const { app, agent, tool, rules } = shown(challenge, by);
    const until = new Date(Date.now() + GRANT_MS).toISOString();
    return {
      ...shown(challenge, by),
      now: new Date().toISOString(),
      recent: [],
      grant: { app, agent, tool, rules: rules.map(({ id }) => id), fixed: {}, free: [], until },
      ...more,
    };
  }

  #route(path: string, method: string | undefined): Route | undefined {
    const registration = this.#registrationRoute(path, method);
    if (registration) return registration;
    const name = PAGE.test(path) ? "page" : path;
    return Object.hasOwn(this.#routes, name) ? this.#routes[name] : undefined;
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

  #checkOperator(by: AdminCaller): void {
    if (!isOperator(by)) throw new Fault("AuthorizationError", "this is for the operator's own credential");
  }

  async #answer(
    id: string,
    answer: ApprovalAnswer,
    reason: string | undefined,
    { by, traceId }: OperationExchange,
    intentId?: string,
  ) {
    const challenge = await this.#answering.answer(id, answer, reason ?? "", traceId, by, intentId);
    const { tool, app, agent, decidedBy } = challenge;
    this.#options.telemetry.metrics.approvalsAnswered.inc(answer);
    this.#options.telemetry.log.notice(
      `challenge ${answer}`,
      { challenge: id, tool, app, agent, by: decidedBy },
      traceId,
    );
    return shown(challenge, by);
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

/** Leads to the console: the fragment of a link, which holds its code, stays with the browser. */
function page(to: (path: string) => string): Route {
  return {
    method: "GET",
    isOpen: true,
    isPage: true,
    run: ({ request, response }) => {
      const location = to((request.url ?? "").split("?", 1)[0] as string);
      sendText(response, 302, "text/plain; charset=utf-8", location, { location });
    },
  };
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
