// An application while it is in use: what it has, the gate in front of it, and the endpoint that its callers reach.
// INVARIANT: nothing in this file refers to another application.

import { Fault } from "../mcp/index.js";
import type { Tool, ToolDefinition } from "../mcp/server/index.js";
import { callInside, Refusals, relayedBy, routeFor, sendClientRequest } from "../pipeline/index.js";
import {
  CallHistory,
  createGate,
  type FlowLabels,
  flowRules,
  type Gate,
  type Guardrail,
  InformationFlow,
  type Limit,
  type PendingPolicy,
  type PolicySet,
} from "../policy/index.js";
import type { Application, ApplicationDocument, ServerEntry } from "../storage/index.js";
import type { ApplicationServices, CoreTools, Gateway, InProcessApplication } from "./application-types.js";
import { Endpoint } from "./endpoint.js";
import { recordedCalls } from "./history.js";
import { Lists } from "./lists.js";
import { ApplicationPolicy, applicationGuardrails } from "./policies.js";
import { AppCatalogue } from "./relay/catalogue.js";
import { remoteCalls } from "./relay/remote.js";
import { SuspendedCalls } from "./relay/suspended-calls.js";
import { remoteSessions } from "./remote-sessions.js";
import { meantCall } from "./search.js";
import { matcher, UpstreamHandle, type UpstreamHandleServices } from "./upstream-handle.js";

/** How long the first caller waits for servers of which nothing is known yet. */
const FIRST_READ_MS = 20_000;

export class ServedApplication {
  readonly id: string;
  readonly endpoint: Endpoint;
  lastUsed = performance.now();
  readonly #services: ApplicationServices;
  readonly #inProcess: InProcessApplication | undefined;
  /** Calls that wait for their clients. */
  readonly suspended: SuspendedCalls;
  readonly #upstreams = new Map<string, UpstreamHandle>();
  readonly #followed = new Map<string, { count: number; stop: Promise<() => Promise<void>> }>();
  readonly #stops: (() => void)[] = [];
  #application: Application;
  #catalogue: AppCatalogue;
  #gate: Gate;
  #core: CoreTools;
  #guardrails: readonly Guardrail[] = [];
  readonly #history: CallHistory;
  readonly #policy: ApplicationPolicy;

  private constructor(application: Application, services: ApplicationServices, core: CoreTools) {
    this.id = application.id;
    this.#application = application;
    this.#services = services;
    this.#core = core;
    this.#inProcess = services.inProcess?.(application.id);
    this.suspended = new SuspendedCalls(services.limits.askTimeoutMs);
    this.#catalogue = this.#newCatalogue(core.tools);
    this.#history = this.#newHistory();
    this.#gate = this.#newGate(undefined);
    this.#policy = new ApplicationPolicy(this.id, services, this.#catalogue, {
      texts: () => ({
        ...this.#inProcess?.policies,
        ...flowRules(this.#flowLabels),
        ...this.#application.document.policies,
      }),
      gate: () => this.#gate,
    });
    const { mcpPath, sessions, bus } = services;
    const others = bus && remoteSessions(bus, application.id);
    this.endpoint = new Endpoint(this.#gateway(), mcpPath, sessions?.(application.id), others);
    this.#stops.push(services.policies.onChange(() => this.#policy.loadLater()));
  }

  static async open(application: Application, services: ApplicationServices): Promise<ServedApplication> {
    const core = await services.coreTools(application);
    const servedApplication = new ServedApplication(application, services, core);
    await servedApplication.#loadGuardrails();
    await services.flowMemory?.ready();
    await servedApplication.#connect(application.document);
    await servedApplication.loadPolicy();
    await servedApplication.#history.ready();
    return servedApplication;
  }

  get application(): Application {
    return this.#application;
  }

  get upstreams(): ReadonlyMap<string, UpstreamHandle> {
    return this.#upstreams;
  }

  /** How many tools of a server callers may see. */
  toolsOf(server: string): number {
    let count = 0;
    for (const tool of this.#catalogue.tools.values()) if (relayedBy(tool)?.server === server) count++;
    return count;
  }

  /** Every tool that callers may be permitted, with its server where it is not one of the gateway's own. */
  get registeredTools(): { readonly definition: ToolDefinition; readonly server: string | undefined }[] {
    return [...this.#catalogue.tools.values()].map((tool) => ({
      definition: tool.definition,
      server: relayedBy(tool)?.server,
    }));
  }

  /** What a server offers and callers do not see, with the reason. */
  get left(): AppCatalogue["left"] {
    return this.#catalogue.left;
  }

  /** Loads the policy as it is now. */
  loadPolicy(): Promise<void> {
    return this.#policy.load();
  }

  get gate(): Gate {
    return this.#gate;
  }

  /** Why its rules are not in force as they are written; undefined when they are. */
  get refusal(): string | undefined {
    return this.#policy.refusal;
  }

  /** A change of its policy that is not recorded yet. */
  get pendingPolicy(): PendingPolicy | undefined {
    return this.#policy.pending;
  }

  get isIdle(): boolean {
    return this.endpoint.openSessions === 0;
  }

  /** The document was changed: unchanged parts continue, changed parts are recreated. */
  async update(application: Application): Promise<void> {
    const before = this.#application.document;
    this.#application = application;
    const { document } = application;
    // By content, not by revision: a store that was restored from a backup has older revisions, and they count.
    if (same(before, document)) return;
    if (!same(coreOf(before), coreOf(document))) {
      const core = await this.#services.coreTools(application);
      const old = this.#core;
      this.#core = core;
      this.#gate = this.#newGate(this.#gate.policy);
      this.#catalogue.setLocal(core.tools);
      void old.close();
    } else if (!same(before.limits, document.limits) || !same(before.flow, document.flow))
      this.#gate = this.#newGate(this.#gate.policy);
    this.#catalogue.setNames(document.names);
    if (!same(before.guardrails, document.guardrails)) await this.#loadGuardrails();
    await this.#connect(document);
    await this.loadPolicy();
  }

  /** A secret was changed: servers that use it are reconnected. */
  async secretChanged(name: string): Promise<void> {
    const reference = `\${secret:${name}}`;
    const users = [...this.#upstreams.values()].filter(({ entry }) => JSON.stringify(entry).includes(reference));
    for (const { server } of users) await this.#disconnect(server);
    await this.#connect(this.#application.document);
  }

  /** A login at a server was changed or removed: the server is reconnected, or that user's connection is. */
  async tokenRemoved(server: string, user: string): Promise<void> {
    const handle = this.#upstreams.get(server);
    if (user !== "") return handle?.forget(user);
    await this.#disconnect(server);
    await this.#connect(this.#application.document);
  }

  /** Changes may have been missed: what is kept in memory of the store is compared with it. */
  async resync(): Promise<void> {
    for (const handle of this.#upstreams.values()) {
      await handle.forgetAll();
      void handle.reread();
    }
    await this.endpoint.handshakes.resync();
  }

  /** An operator accepted a changed definition, at this replica or another. */
  pinChanged(server: string): void {
    void this.#upstreams.get(server)?.reread();
  }

  async close(): Promise<void> {
    this.#policy.close();
    for (const stop of this.#stops) stop();
    this.#catalogue.close();
    this.endpoint.close();
    this.endpoint.gateway.lists.end();
    this.endpoint.disconnect();
    this.suspended.endAll();
    await Promise.all([...this.#upstreams.values()].map((handle) => handle.close()));
    await this.#core.close();
  }

  // ---- what it has --------------------------------------------------------------------------------------------

  #newCatalogue(tools: readonly Tool[]): AppCatalogue {
    const { info } = this.#services;
    const catalogue = new AppCatalogue(info, tools, this.#application.document.names, this.#inProcess);
    catalogue.follow = (uri) => this.#follow(uri);
    catalogue.onChange((change) => {
      if (change.kind === "tools") this.#policy.loadLater();
    });
    return catalogue;
  }

  async #connect({ servers = {} }: ApplicationDocument): Promise<void> {
    const wanted = Object.entries(servers).filter(([, entry]) => entry.disabled !== true);
    // A server that a key registered changes no name of the operator's, and never has bare names.
    const ofOperator = wanted.filter(([, entry]) => entry.registeredBy === undefined);
    const isOnly = ofOperator.length === 1 && Object.keys(this.#application.document.routes ?? {}).length === 0;
    const isAloneWith = (entry: ServerEntry): boolean => isOnly && entry.registeredBy === undefined;
    for (const [server, handle] of this.#upstreams) {
      const entry = servers[server];
      const stays =
        entry && entry.disabled !== true && same(entry, handle.entry) && isAloneWith(entry) === handle.isAlone;
      if (!stays) await this.#disconnect(server);
    }
    const fresh = wanted.filter(([server]) => !this.#upstreams.has(server));
    const opening = fresh.map(([server, entry]) => this.#open(server, entry, isAloneWith(entry)).open());
    // Routes and terms may have changed for those that stay.
    for (const [, handle] of this.#upstreams)
      if (!fresh.some(([server]) => server === handle.server)) void handle.reread();
    await Promise.race([
      Promise.allSettled(opening),
      new Promise((resolve) => setTimeout(resolve, FIRST_READ_MS).unref()),
    ]);
  }

  #open(server: string, entry: ServerEntry, isAlone: boolean): UpstreamHandle {
    const handle = new UpstreamHandle(server, entry, isAlone, this.suspended, this.#handleServices());
    this.#upstreams.set(server, handle);
    return handle;
  }

  async #disconnect(server: string): Promise<void> {
    const handle = this.#upstreams.get(server);
    this.#upstreams.delete(server);
    this.#catalogue.remove(server);
    await handle?.close();
  }

  #handleServices(): UpstreamHandleServices {
    const { telemetry, pins, bus } = this.#services;
    return {
      budget: this.#services.retained.ofApp(this.id),
      remote: bus && remoteCalls(bus, this.id),
      connect: (server, entry, user) => this.#services.connect(this.#application, server, entry, user),
      accept: (server, entry, offered) => pins.accept(this.id, server, entry.pin ?? "first", offered),
      remembered: (server, entry) => pins.remembered(this.id, server, entry.pin ?? "first"),
      offered: (handle, catalogue) =>
        this.#catalogue.put(
          handle,
          catalogue,
          this.#terms(handle),
          () => this.#upstreams.get(handle.server) === handle,
        ),
      changed: (handle, change) => {
        if (typeof change !== "object") return;
        this.#catalogue.announce({ kind: "resource", uri: handle.namespace.uri(change.resource) });
      },
      failed: (handle, error) => {
        const { server } = handle;
        telemetry.log.warning("a server cannot be reached", {
          app: this.id,
          server,
          problem: (error instanceof Fault ? error.detail.operator : undefined) ?? error.message,
        });
      },
    };
  }

  #terms({ server, entry }: UpstreamHandle): Parameters<AppCatalogue["put"]>[2] {
    const routes = Object.entries(this.#application.document.routes ?? {})
      .filter(([, route]) => route.server === server)
      .map(([prefix, { strip = true }]) => ({ prefix, strip }));
    return {
      timeoutMs: entry.timeoutMs,
      validationTimeoutMs: this.#services.limits.validationTimeoutMs,
      noGuardrail: matcher(entry.noGuardrail ?? []),
      readOnly: matcher(entry.readOnly ?? []),
      routes,
    };
  }

  /** Several callers may follow one resource; the server gets one subscription. */
  #follow(uri: string): () => void {
    const { server } = this.#inProcess ?? {};
    const owner = this.#catalogue.ownerOf(uri);
    if (!owner && server?.follow) return server.follow(uri);
    const handle = owner && this.#upstreams.get(owner.link.server);
    if (!owner || !handle) return () => {};
    let followed = this.#followed.get(uri);
    if (!followed) {
      const stop = handle.watch(owner.raw).catch(() => async () => {});
      followed = { count: 0, stop };
      this.#followed.set(uri, followed);
    }
    followed.count++;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      followed.count--;
      if (followed.count > 0) return;
      this.#followed.delete(uri);
      void followed.stop.then((stop) => stop()).catch(() => {});
    };
  }

  /** The operator's labels, or those of the module's author. */
  get #flowLabels(): FlowLabels | undefined {
    return this.#application.document.flow ?? this.#inProcess?.flow;
  }

  /** INVARIANT: before the first call, since a guardrail that is not there yet blocks nothing. */
  async #loadGuardrails(): Promise<void> {
    const { guardrailModule } = this.#services;
    const entries = this.#application.document.guardrails ?? [];
    if (entries.length === 0 && this.#guardrails.length === 0) return;
    this.#guardrails = await applicationGuardrails(entries, {
      ...(guardrailModule ? { load: guardrailModule } : {}),
      call: (tool, input, agent) =>
        this.endpoint.invoke(tool, input, { principal: { app: this.id, agent, scope: [], via: "guardrail" } }),
      onProblem: (module, problem) =>
        this.#services.telemetry.log.error("guardrail module cannot be loaded, calls that it covers are blocked", {
          app: this.id,
          module,
          problem,
        }),
    });
    this.#gate = this.#newGate(this.#gate.policy);
  }

  // ---- the gate -----------------------------------------------------------------------------------------------

  /** Past calls are read from the ledger; with other processes beside this one, no ledger has all of them. */
  #newHistory(): CallHistory {
    const { ledger, bus, telemetry } = this.#services;
    return new CallHistory({
      ...(ledger ? { read: (wanted) => recordedCalls(ledger.dir, this.id, wanted) } : {}),
      isShared: bus !== undefined,
      onProblem: (problem) =>
        telemetry.log.error("calls under rules over history are denied", { app: this.id, problem }),
    });
  }

  #newGate(policy: PolicySet | undefined): Gate {
    const { approvals, halts, observe, sharedLimits } = this.#services;
    const { checks = [], limits = [] } = this.#inProcess ?? {};
    return createGate({
      ...(policy ? { policy } : {}),
      approvals,
      history: this.#history,
      observe,
      ...(this.#flowLabels ? { flow: new InformationFlow(this.#flowLabels, this.#services.flowMemory) } : {}),
      ...(halts ? { halts } : {}),
      checks: [...this.#core.checks, ...checks, ...(this.#services.checks?.(this.id) ?? [])],
      limits: [...limits, ...limitsOf(this.#application.document)],
      approvalLimits: this.#application.document.limits?.approvals ?? {},
      ...(sharedLimits ? { shared: sharedLimits } : {}),
      guardrails: [...this.#guardrails, ...(this.#inProcess?.guardrails ?? [])],
    });
  }

  #gateway(): Gateway {
    const servedApplication = this;
    const services = this.#services;
    const gateway: Gateway = {
      server: this.#catalogue,
      get gate() {
        return servedApplication.#gate;
      },
      ledger: services.ledger,
      recordDenials: true,
      identify: () => {
        throw new Fault("AuthenticationError", "authentication required");
      },
      telemetry: services.telemetry,
      limits: services.limits,
      retained: services.retained,
      calls: services.calls,
      plainMethods: this.#inProcess?.plainMethods ?? new Set(),
      readOnlyTools: this.#catalogue.readOnlyTools,
      unguardedTools: new Set(),
      keepArguments: services.keepArguments,
      approvalUrl: services.approvalUrl,
      approvalAddresses: services.approvalAddresses,
      onDenied: this.#inProcess?.onDenied,
      stateCipher: services.stateCipher,
      lists: new Lists(this.#catalogue, services.retained.ofApp(this.id)),
      refusals: new Refusals({
        perMinute: services.limits.refusalsPerMinute,
        ledger: services.ledger,
        telemetry: services.telemetry,
      }),
      resolveRoute: (principal, method, params) => {
        const isSearched = method === "tools/call" && this.#catalogue.isSearched();
        return routeFor(gateway, principal, method, isSearched ? meantCall(params) : params);
      },
      callTool: (outer, tool, args) => callInside(gateway, outer, tool, args),
      sendClientRequest: (request) => sendClientRequest(gateway, request),
    };
    return gateway;
  }
}

/** The parts of the document that core tools are made of. */
function coreOf({ config, permissions, llm, linux, filesystem }: ApplicationDocument): object {
  return { config, permissions, llm, linux, filesystem };
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function limitsOf({ limits = {} }: ApplicationDocument): Limit[] {
  const { costs } = limits;
  return (["app", "agent", "tool"] as const).flatMap((per): Limit[] => {
    const rate = limits[per];
    return rate ? [{ per, ...rate, ...(costs ? { costs } : {}) } as Limit] : [];
  });
}
