// An application while it is in use: what it has, the gate in front of it, and the endpoint that its callers reach.
// Nothing in here knows of any other application.

import {
  createGate,
  type Gate,
  type Guardrail,
  type Limit,
  type PendingPolicy,
  type PolicySet,
  RecordedPolicy,
} from "../policy/index.js";
import { Fault } from "../mcp/index.js";
import type { Application, ApplicationDocument, ServerEntry } from "../storage/index.js";
import type { Tool, ToolDefinition } from "../mcp/server/index.js";
import { callInside, askClient, Lists, Refusals, relayedBy, type Gateway } from "../pipeline/index.js";
import { Endpoint } from "./endpoint.js";
import { toolSummaries } from "./gateway.js";
import { AppCatalogue } from "./relay/catalogue.js";
import { remote } from "./relay/remote.js";
import { SuspendedCalls } from "./relay/suspended-calls.js";
import { remoteSessions } from "./remote-sessions.js";
import { applicationGuardrails } from "./application-guardrails.js";
import { matcher } from "./patterns.js";
import { type UpstreamHandleServices, UpstreamHandle } from "./upstream-handle.js";
import type { CoreTools, ApplicationServices, InProcessApplication } from "./application-types.js";

/** How long the first caller waits for servers of which nothing is known yet. */
const FIRST_LOOK_MS = 20_000;
const POLICY_PAUSE_MS = 20;

export class ServedApplication {
  readonly id: string;
  readonly endpoint: Endpoint;
  lastUsed = performance.now();
  readonly #services: ApplicationServices;
  readonly #inProcess: InProcessApplication | undefined;
  /** Calls that wait for their clients. */
  readonly suspended: SuspendedCalls;
  readonly #links = new Map<string, UpstreamHandle>();
  readonly #followed = new Map<string, { count: number; stop: Promise<() => Promise<void>> }>();
  readonly #stops: (() => void)[] = [];
  #application: Application;
  #catalogue: AppCatalogue;
  #gate: Gate;
  #core: CoreTools;
  #guardrails: readonly Guardrail[] = [];
  #policyTimer: NodeJS.Timeout | undefined;
  #policyLoading: Promise<void> = Promise.resolve();
  #refusal: string | undefined;
  readonly #policy: RecordedPolicy;
  #lastInForce: string | undefined;
  #closed = false;

  private constructor(application: Application, services: ApplicationServices, core: CoreTools) {
    this.id = application.id;
    this.#application = application;
    this.#services = services;
    this.#core = core;
    this.#inProcess = services.inProcess?.(application.id);
    this.suspended = new SuspendedCalls(services.limits.askTimeoutMs);
    this.#catalogue = this.#newCatalogue(core.tools);
    this.#gate = this.#newGate(undefined);
    this.#policy = this.#recordedPolicy();
    const { mcpPath, sessions, post } = services;
    const others = post && remoteSessions(post, application.id);
    this.endpoint = new Endpoint(this.#gateway(), mcpPath, sessions?.(application.id), others);
    this.#stops.push(services.policies.onChange(() => this.#policyLater()));
  }

  static async open(application: Application, services: ApplicationServices): Promise<ServedApplication> {
    const core = await services.coreTools(application);
    const servedApplication = new ServedApplication(application, services, core);
    await servedApplication.#loadGuardrails();
    await servedApplication.#connect(application.document);
    await servedApplication.loadPolicy();
    return servedApplication;
  }

  get application(): Application {
    return this.#application;
  }

  get links(): ReadonlyMap<string, UpstreamHandle> {
    return this.#links;
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

  get gate(): Gate {
    return this.#gate;
  }

  /** Why its rules are not in force as they are written; undefined when they are. */
  get refusal(): string | undefined {
    return this.#refusal;
  }

  /** A change of its policy that is not recorded yet. */
  get pendingPolicy(): PendingPolicy | undefined {
    return this.#policy.pending;
  }

  get isIdle(): boolean {
    return this.endpoint.openSessions === 0;
  }

  /** The document was changed: what is the same goes on, what is not is made anew. */
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
    } else if (!same(before.limits, document.limits)) this.#gate = this.#newGate(this.#gate.policy);
    this.#catalogue.setShortNames(document.names === "short");
    if (!same(before.guardrails, document.guardrails)) await this.#loadGuardrails();
    await this.#connect(document);
    await this.loadPolicy();
  }

  /** A secret was changed: servers that were given it are connected anew. */
  async secretChanged(name: string): Promise<void> {
    const reference = `\${secret:${name}}`;
    const users = [...this.#links.values()].filter(({ entry }) => JSON.stringify(entry).includes(reference));
    for (const { server } of users) await this.#disconnect(server);
    await this.#connect(this.#application.document);
  }

  /** Somebody logged in or out at a server: it is connected anew, or that user's connection is. */
  async tokenRemoved(server: string, user: string): Promise<void> {
    const link = this.#links.get(server);
    if (user !== "") return link?.forget(user);
    await this.#disconnect(server);
    await this.#connect(this.#application.document);
  }

  /** Changes may have been missed: what is kept in memory of the store is compared with it. */
  async resync(): Promise<void> {
    for (const link of this.#links.values()) {
      await link.forgetAll();
      void link.reread();
    }
    await this.endpoint.resync();
  }

  /** An operator accepted a difference, here or elsewhere. */
  pinChanged(server: string): void {
    void this.#links.get(server)?.reread();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#policyTimer);
    this.#policy.close();
    for (const stop of this.#stops) stop();
    this.#catalogue.close();
    this.endpoint.close();
    this.endpoint.disconnect();
    this.suspended.endAll();
    await Promise.all([...this.#links.values()].map((link) => link.close()));
    await this.#core.close();
  }

  // ---- what it has --------------------------------------------------------------------------------------------

  #newCatalogue(tools: readonly Tool[]): AppCatalogue {
    const { info } = this.#services;
    const isShort = this.#application.document.names === "short";
    const catalogue = new AppCatalogue(info, tools, isShort, this.#inProcess);
    catalogue.follow = (uri) => this.#follow(uri);
    catalogue.onChange((change) => {
      if (change.kind === "tools") this.#policyLater();
    });
    return catalogue;
  }

  async #connect({ servers = {} }: ApplicationDocument): Promise<void> {
    const wanted = Object.entries(servers).filter(([, entry]) => entry.disabled !== true);
    // A server that a key registered changes no name of the operator's, and never has bare names.
    const ofOperator = wanted.filter(([, entry]) => entry.registeredBy === undefined);
    const isOnly = ofOperator.length === 1 && Object.keys(this.#application.document.routes ?? {}).length === 0;
    const isAloneWith = (entry: ServerEntry): boolean => isOnly && entry.registeredBy === undefined;
    for (const [server, link] of this.#links) {
      const entry = servers[server];
      const stays = entry && entry.disabled !== true && same(entry, link.entry) && isAloneWith(entry) === link.isAlone;
      if (!stays) await this.#disconnect(server);
    }
    const fresh = wanted.filter(([server]) => !this.#links.has(server));
    const opening = fresh.map(([server, entry]) => this.#open(server, entry, isAloneWith(entry)).open());
    // Routes and terms may have changed for those that stay.
    for (const [, link] of this.#links) if (!fresh.some(([server]) => server === link.server)) void link.reread();
    await Promise.race([
      Promise.allSettled(opening),
      new Promise((resolve) => setTimeout(resolve, FIRST_LOOK_MS).unref()),
    ]);
  }

  #open(server: string, entry: ServerEntry, isAlone: boolean): UpstreamHandle {
    const link = new UpstreamHandle(server, entry, isAlone, this.suspended, this.#linkServices());
    this.#links.set(server, link);
    return link;
  }

  async #disconnect(server: string): Promise<void> {
    const link = this.#links.get(server);
    this.#links.delete(server);
    this.#catalogue.remove(server);
    await link?.close();
  }

  #linkServices(): UpstreamHandleServices {
    const { telemetry, pins, post } = this.#services;
    return {
      budget: this.#services.retained.ofApp(this.id),
      remote: post && remote(post, this.id),
      connect: (server, entry, user) => this.#services.connect(this.#application, server, entry, user),
      accept: (server, entry, offered) => pins.accept(this.id, server, entry.pin ?? "first", offered),
      remembered: (server, entry) => pins.remembered(this.id, server, entry.pin ?? "first"),
      offered: (link, catalogue) =>
        this.#catalogue.put(link, catalogue, this.#terms(link), () => this.#links.get(link.server) === link),
      changed: (link, change) => {
        if (typeof change !== "object") return;
        this.#catalogue.announce({ kind: "resource", uri: link.namespace.uri(change.resource) });
      },
      failed: (link, error) => {
        const { server } = link;
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
      noGuardrail: matcher(entry.noGuardrail ?? []),
      readOnly: matcher(entry.readOnly ?? []),
      routes,
    };
  }

  /** Several callers may follow one resource; the server is asked once. */
  #follow(uri: string): () => void {
    const { server } = this.#inProcess ?? {};
    const owner = this.#catalogue.ownerOf(uri);
    if (!owner && server?.follow) return server.follow(uri);
    const link = owner && this.#links.get(owner.link.server);
    if (!owner || !link) return () => {};
    let followed = this.#followed.get(uri);
    if (!followed) {
      const stop = link.watch(owner.raw).catch(() => async () => {});
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

  #newGate(policy: PolicySet | undefined): Gate {
    const { approvals, observe, sharedLimits, voices } = this.#services;
    const { checks = [], limits = [] } = this.#inProcess ?? {};
    return createGate({
      ...(policy ? { policy } : {}),
      approvals,
      observe,
      voices: [...this.#core.voices, ...checks, ...(voices?.(this.id) ?? [])],
      limits: [...limits, ...limitsOf(this.#application.document)],
      approvalLimits: this.#application.document.limits?.approvals ?? {},
      ...(sharedLimits ? { shared: sharedLimits } : {}),
      guardrails: [...this.#guardrails, ...(this.#inProcess?.guardrails ?? [])],
    });
  }

  #policyLater(): void {
    if (this.#closed || this.#policyTimer !== undefined) return;
    this.#policyTimer = setTimeout(() => {
      this.#policyTimer = undefined;
      void this.loadPolicy();
    }, POLICY_PAUSE_MS);
  }

  #recordedPolicy(): RecordedPolicy {
    const { ledger, telemetry } = this.#services;
    return new RecordedPolicy({
      apply: (policy) => {
        this.#gate.swap(policy);
        if (this.#closed || this.#policy.pending) return;
        const before = this.#lastInForce;
        this.#lastInForce = policy.hash;
        // Lists that were read in between lack what the policy did not know yet.
        if (before === undefined || before === policy.hash) return;
        this.#catalogue.announce({ kind: "tools" });
        this.#services.telemetry.log.notice("policy in force", { app: this.id, policy: policy.hash });
      },
      record: async ({ from, to, interim }) => {
        const files = Object.keys({ ...this.#inProcess?.policies, ...this.#application.document.policies });
        const checks = Object.fromEntries((to.checks ?? []).map(({ file, hash }) => [file, hash]));
        const detail = { app: this.id, files, interim, ...(to.checks ? { checks } : {}) };
        await ledger?.append({ kind: "policy", old: from, new: to.hash, detail });
        telemetry.metrics.policyReloads.inc();
        for (const { file, line, message } of to.warnings) {
          telemetry.log.debug("a rule of the policy", { app: this.id, file, line, warning: message });
        }
      },
      onPending: ({ to, problem }) =>
        telemetry.log.error("policy change not recorded: the stricter of old and new applies until it is", {
          app: this.id,
          policy: to,
          problem,
        }),
    });
  }

  /** One after the other: each is loaded for the tools there are when its turn comes. */
  loadPolicy(): Promise<void> {
    this.#policyLoading = this.#policyLoading.then(() => this.#loadPolicyNow());
    return this.#policyLoading;
  }

  /** A set that cannot be loaded changes nothing; where there was none, everything stays denied. */
  async #loadPolicyNow(): Promise<void> {
    const { policies, telemetry } = this.#services;
    try {
      const own = { ...this.#inProcess?.policies, ...this.#application.document.policies };
      const set = await policies.load(own, toolSummaries(this.#catalogue, this.#catalogue.readOnlyTools));
      this.#refusal = undefined;
      if (!this.#closed) this.#services.onTools?.(this.id, this.#catalogue, this.#catalogue.readOnlyTools);
      if (!this.#closed) await this.#policy.put(set);
    } catch (error) {
      this.#refusal = (error as Error).message;
      telemetry.metrics.policyRefusals.inc();
      telemetry.log.error("the policy of an application is refused, what was in force stays", {
        app: this.id,
        kept: this.#policy.recorded,
        problem: (error as Error).message,
      });
    }
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
      identify: () => {
        throw new Fault("AuthenticationError", "nobody is known here");
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
      seal: services.seal,
      lists: new Lists(this.#catalogue),
      refusals: new Refusals({
        perMinute: services.limits.refusalsPerMinute,
        ledger: services.ledger,
        telemetry: services.telemetry,
      }),
      callTool: (outer, tool, args) => callInside(gateway, outer, tool, args),
      askClient: (request) => askClient(gateway, request),
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
