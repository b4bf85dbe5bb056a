// The applications that are in use in this process. One is opened by its first caller, follows every change of its
// document, and is closed when it was unused for a while.

import { isStoreOutage } from "../mcp/index.js";
import type { PendingPolicy } from "../policy/index.js";
import type { Application, Storage, StoreChange } from "../storage/index.js";
import { ServedApplication } from "./application.js";
import type { ApplicationServices } from "./application-types.js";
import { answerRemote } from "./relay/remote.js";
import { answerSessions } from "./remote-sessions.js";

export interface ApplicationsOptions {
  readonly storage: Pick<Storage, "applications" | "feed" | "origin" | "secrets">;
  readonly services: ApplicationServices;
  /** An unused application is closed after this long; its servers with it. */
  readonly idleMs?: number;
  readonly maxOpen?: number;
}

const DEFAULT_IDLE_MS = 30 * 60_000;
const DEFAULT_MAX_OPEN = 10_000;
const UNSTORED: Omit<Application, "id"> = { document: {}, revision: 0, createdAt: 0, updatedAt: 0 };

export class Applications {
  readonly #options: ApplicationsOptions;
  readonly #open = new Map<string, ServedApplication>();
  readonly #opening = new Map<string, Promise<ServedApplication | undefined>>();
  /** Why those that could not be opened could not, until they can. */
  readonly #failed = new Map<string, string>();
  /** When each secret of an open application was last changed, as far as it was read. */
  readonly #secrets = new Map<string, Map<string, number>>();
  /** Changes of one application are taken one after the other. */
  readonly #turns = new Map<string, Promise<void>>();
  readonly #sweeper: NodeJS.Timeout;
  #unwatch: (() => void) | undefined;
  #closed = false;

  private constructor(options: ApplicationsOptions) {
    this.#options = options;
    const idleMs = options.idleMs ?? DEFAULT_IDLE_MS;
    this.#sweeper = setInterval(() => this.#sweep(idleMs), Math.max(1_000, Math.min(60_000, idleMs / 4)));
    this.#sweeper.unref();
  }

  static async start(options: ApplicationsOptions): Promise<Applications> {
    const applications = new Applications(options);
    applications.#unwatch = await options.storage.feed.watch({
      change: (change) => applications.#changed(change),
      resync: () => applications.#resync(),
    });
    const { bus } = options.services;
    if (bus) {
      answerRemote(bus, (app) => applications.peek(app)?.suspended);
      answerSessions(bus, (app) => applications.peek(app)?.endpoint);
    }
    return applications;
  }

  /** The application when it is open. */
  peek(id: string): ServedApplication | undefined {
    const served = this.#open.get(id);
    if (served) served.lastUsed = performance.now();
    return served;
  }

  get open(): Iterable<ServedApplication> {
    return this.#open.values();
  }

  /** Applications that are not served as their documents say, and why; details of this machine are in its log only. */
  get refused(): { readonly app: string; readonly reason: string }[] {
    const byRules = [...this.#open.values()].flatMap(({ id, refusal }) =>
      refusal === undefined ? [] : [{ app: id, reason: `its rules are not valid: ${refusal}` }],
    );
    const pending = [...this.#open.values()].flatMap(({ id, pendingPolicy }) =>
      pendingPolicy ? [{ app: id, reason: notRecorded(pendingPolicy) }] : [],
    );
    const closed = [...this.#failed.keys()].map((app) => ({ app, reason: "it cannot be opened; the log says why" }));
    return [...byRules, ...pending, ...closed];
  }

  /** How many have a change of policy that is not recorded yet. */
  get pendingPolicies(): number {
    let count = 0;
    for (const { pendingPolicy } of this.#open.values()) if (pendingPolicy) count++;
    return count;
  }

  /** Undefined when there is no such application. */
  async get(id: string): Promise<ServedApplication | undefined> {
    const served = this.peek(id);
    if (served) return served;
    let opening = this.#opening.get(id);
    if (!opening) {
      opening = this.#begin(id)
        .catch((error: unknown) => this.#fails(id, error))
        .finally(() => this.#opening.delete(id));
      this.#opening.set(id, opening);
    }
    return opening;
  }

  /** Resolves when every open application decides by the policies as they are now. */
  async policiesLoaded(): Promise<void> {
    await Promise.all([...this.#open.values()].map((served) => served.loadPolicy()));
  }

  /** Ends the streams of every application that have no end of their own. */
  endStreams(): void {
    for (const served of this.#open.values()) served.endpoint.endStreams();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#sweeper);
    this.#unwatch?.();
    await Promise.allSettled(this.#opening.values());
    await Promise.allSettled([...this.#open.values()].map((served) => served.close()));
    this.#open.clear();
  }

  async #begin(id: string): Promise<ServedApplication | undefined> {
    const { services, maxOpen = DEFAULT_MAX_OPEN } = this.#options;
    const application = await this.#read(id);
    if (!application || this.#closed) return undefined;
    if (this.#open.size >= maxOpen) this.#closeOldest();
    await this.#readSecrets(id);
    const served = await ServedApplication.open(application, services);
    if (this.#closed) {
      await served.close();
      return undefined;
    }
    this.#open.set(id, served);
    this.#failed.delete(id);
    // Its document may have changed while it was being opened.
    this.#inTurn(id, () => this.#reread(id));
    return served;
  }

  /** Logged once, not for every caller that is denied access. */
  #fails(id: string, error: unknown): never {
    const { services, maxOpen = DEFAULT_MAX_OPEN } = this.#options;
    const problem = (error as Error)?.message ?? String(error);
    if (this.#failed.get(id) !== problem) {
      services.telemetry.log.error("an application cannot be opened", { app: id, problem });
      if (this.#failed.size >= maxOpen) this.#failed.delete(this.#failed.keys().next().value as string);
      this.#failed.set(id, problem);
    }
    throw error;
  }

  #changed(change: StoreChange): void {
    const { topic, app, name, action, origin } = change;
    // What kept it from being opened may be gone; the next caller finds out.
    if (topic === "application") this.#failed.delete(app);
    const served = this.#open.get(app);
    if (!served) return;
    switch (topic) {
      case "application":
        return this.#inTurn(app, () => this.#reread(app));
      case "secret":
        return this.#inTurn(app, async () => {
          await this.#readSecrets(app);
          await served.secretChanged(name);
        });
      case "pin":
        // Named `server kind name`; a change by the server itself has been announced already.
        if (action !== "changed") served.pinChanged(name.split(" ", 1)[0] as string);
        return;
      case "token": {
        // Named `server user`. A renewed token is not a change; a login and a logout are.
        const [server = "", user = ""] = name.split(/ (.*)/s, 2);
        if (action === "remove") this.#inTurn(app, () => served.tokenRemoved(server, user));
        return;
      }
      case "key":
        // What was opened with the permissions from before a change ends; its holder opens it again with those of now.
        if (action === "revoke" || action === "changed") served.endpoint.revoked(name);
        return;
      case "session":
        if (action === "remove") served.endpoint.handshakes.forget(name);
        else if (origin !== this.#options.storage.origin)
          this.#inTurn(app, () => served.endpoint.handshakes.refresh(name));
        return;
      default:
        return;
    }
  }

  /** Changes may have been missed, of any kind: everything that is kept of the store is read again. */
  #resync(): void {
    this.#failed.clear();
    for (const id of this.#open.keys()) {
      this.#inTurn(id, async () => {
        await this.#reread(id);
        const served = this.#open.get(id);
        if (!served) return;
        const before = this.#secrets.get(id) ?? new Map<string, number>();
        const now = await this.#readSecrets(id);
        for (const name of new Set([...before.keys(), ...now.keys()])) {
          if (before.get(name) !== now.get(name)) await served.secretChanged(name);
        }
        await served.resync();
      });
    }
  }

  /** An application with a server in this process exists also without a stored document. */
  async #read(id: string): Promise<Application | undefined> {
    const { storage, services } = this.#options;
    const stored = await storage.applications.get(id);
    return stored ?? (services.inProcess?.(id) ? { ...UNSTORED, id } : undefined);
  }

  async #readSecrets(id: string): Promise<Map<string, number>> {
    const { secrets } = this.#options.storage;
    const found = new Map<string, number>();
    let after: string | undefined;
    do {
      const page = await secrets.list(id, after === undefined ? {} : { after });
      for (const { name, updatedAt } of page.items) found.set(name, updatedAt);
      after = page.next;
    } while (after !== undefined);
    this.#secrets.set(id, found);
    return found;
  }

  async #reread(id: string): Promise<void> {
    const served = this.#open.get(id);
    if (!served) return;
    const application = await this.#read(id);
    if (application) return served.update(application);
    this.#open.delete(id);
    this.#secrets.delete(id);
    await served.close();
  }

  #inTurn(id: string, work: () => Promise<void>): void {
    const { log } = this.#options.services.telemetry;
    const before = this.#turns.get(id) ?? Promise.resolve();
    const mine = before.then(work).catch((error) => {
      log.error("a change of an application could not be applied", { app: id, problem: (error as Error).message });
      if (isStoreOutage(error)) this.#options.storage.feed.resync();
    });
    this.#turns.set(id, mine);
    void mine.then(() => {
      if (this.#turns.get(id) === mine) this.#turns.delete(id);
    });
  }

  #sweep(idleMs: number): void {
    const limit = performance.now() - idleMs;
    for (const [id, served] of this.#open) if (served.lastUsed < limit && served.isIdle) this.#closeOne(id, served);
  }

  #closeOldest(): void {
    let oldest: ServedApplication | undefined;
    for (const served of this.#open.values()) {
      if (served.isIdle && (!oldest || served.lastUsed < oldest.lastUsed)) oldest = served;
    }
    if (oldest) this.#closeOne(oldest.id, oldest);
  }

  #closeOne(id: string, served: ServedApplication): void {
    this.#open.delete(id);
    this.#secrets.delete(id);
    void served.close();
  }
}

function notRecorded({ to, since, problem }: PendingPolicy): string {
  const why = problem === undefined ? "" : ` (${problem})`;
  const when = new Date(since).toISOString();
  return `policy ${to.slice(0, 12)} not recorded since ${when}${why}: the stricter of old and new applies`;
}
