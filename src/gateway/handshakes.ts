// The sessions of one endpoint, for the revisions with a handshake: `initialize`, the messages about a session, and sessions
// that began or are in use at another replica.

import {
  Fault,
  type JsonObject,
  type Notification,
  negotiate,
  type Request,
  type Response,
  revisionNamed,
} from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import type { Peer, Reply } from "../mcp/transports/index.js";
import type { Principal } from "../policy/index.js";
import { successText } from "./answer.js";
import type { Gateway } from "./application-types.js";
import { describeServer, keptCapabilities } from "./capabilities.js";
import { type RemoteSessions, replicaIn } from "./remote-sessions.js";
import type { Session } from "./session.js";
import { callerOf, type SavedSessionChange, type SessionKeeper, Sessions } from "./sessions.js";

export class Handshakes {
  readonly sessions: Sessions;
  readonly #gateway: Gateway;
  readonly #keeper: SessionKeeper | undefined;
  readonly #remote: RemoteSessions | undefined;

  constructor(gateway: Gateway, keeper: SessionKeeper | undefined, remote: RemoteSessions | undefined) {
    this.#gateway = gateway;
    this.#keeper = keeper;
    this.#remote = remote;
    this.sessions = new Sessions(gateway.limits, gateway.retained, remote?.here, keeper);
  }

  /** The session that an HTTP request belongs to: a new one for `initialize`, otherwise the one that it names. */
  sessionFor(request: Request, headers: Peer["headers"], principal: Principal): Session {
    const asked = headers?.["mcp-protocol-version"];
    if (typeof asked === "string" && !revisionNamed(asked)) {
      throw new Fault("InvalidRequest", `revision \`${asked}\` is not supported`, { field: "MCP-Protocol-Version" });
    }
    const isNew = request.method === "initialize" && headers?.["mcp-session-id"] === undefined;
    return isNew ? this.sessions.open(principal) : this.find(headers, principal);
  }

  find(headers: Peer["headers"], principal: Principal): Session {
    const id = headers?.["mcp-session-id"];
    if (typeof id === "string") return this.sessions.find(id, principal);
    throw new Fault("InvalidRequest", "header `Mcp-Session-Id` is missing; begin with `initialize`", {
      field: "Mcp-Session-Id",
    });
  }

  initialize(request: Request, session: Session, principal: Principal): string {
    const params = request.params ?? {};
    session.revision = negotiate(params.protocolVersion);
    session.clientCapabilities = keptCapabilities(params.capabilities);
    session.principal = principal;
    session.phase = "initializing";
    this.#gateway.gate.flow?.begin({ principal, session: session.id });
    const { server } = this.#gateway;
    const result = {
      protocolVersion: session.revision.name,
      serverInfo: server.info,
      ...describeServer(server, session.revision, principal),
    };
    return successText(request.id, JSON.stringify(result));
  }

  /** A response, or a notification about the session itself; false for any other notification. */
  async take(message: Notification | Response, session: Session, isConnection: boolean): Promise<boolean> {
    const remote = isConnection ? undefined : this.#remote;
    if (!("method" in message)) {
      const at = replicaIn(message.id);
      if (session.answer(message) || !remote || at === undefined || at === remote.here) return true;
      await remote.answer(at, session, message);
      return true;
    }
    switch (message.method) {
      case "notifications/initialized":
        if (session.phase !== "initializing") return true;
        session.phase = "active";
        if (!isConnection) await this.save(session);
        return true;
      case "notifications/cancelled": {
        const { requestId: id, reason: given } = message.params ?? {};
        if (typeof id !== "string" && typeof id !== "number") return true;
        const reason = `the client cancelled this call${typeof given === "string" ? `: ${given}` : ""}`;
        const cancel = session.underWay.get(id);
        if (cancel) cancel.withdraw(new Fault("Cancelled", reason));
        else await remote?.cancel(session, id, reason);
        return true;
      }
      default:
        return false;
    }
  }

  /** True when a session named by a request has to be read from the store first. */
  mustAdopt(id: string): boolean {
    return this.#keeper !== undefined && this.sessions.get(id)?.phase !== "active";
  }

  /** A session that began at another replica, when it is this caller's. */
  async adopt(id: string, principal: Principal): Promise<void> {
    const saved = await this.#keeper?.load(id);
    const revision = saved && revisionNamed(saved.revision);
    const { app, agent, holder } = principal;
    if (!saved || !revision || saved.app !== app || saved.caller !== callerOf(principal)) return;
    const follow = (uri: string): (() => void) => this.#gateway.server.follow?.(uri) ?? (() => {});
    this.sessions.adopt(
      saved,
      revision,
      { app, agent, ...(holder === undefined ? {} : { holder }), scope: [], via: "session" },
      follow,
    );
  }

  /** Changes may have been missed: sessions are read again, and those that a restored store lacks are saved again. */
  async resync(): Promise<void> {
    if (!this.#keeper) return;
    for (const session of [...this.sessions.active()]) {
      if (await this.#keeper.load(session.id)) await this.refresh(session.id);
      else await this.save(session);
    }
  }

  /** It was changed at another replica. */
  async refresh(id: string): Promise<void> {
    const { principal } = this.sessions.get(id) ?? {};
    if (principal) await this.adopt(id, principal);
  }

  /** Continues an event stream where the client lost it, here or at the replica that keeps it. */
  resume(
    session: Session,
    lastEventId: string,
    reply: Reply,
    { credential }: Pick<Principal, "credential">,
  ): void | Promise<void> {
    const at = replicaIn(lastEventId);
    if (this.#remote && at !== undefined && at !== this.#remote.here) {
      return this.#remote.resume(at, session, lastEventId, reply, credential);
    }
    const { stream, seq } = session.streams.find(lastEventId);
    stream.resume(reply, seq, credential);
  }

  /** It was ended at another replica. */
  forget(id: string): void {
    const session = this.sessions.get(id);
    if (session) this.sessions.end(session, "the client ended the session");
  }

  end(session: Session): void {
    this.#keeper?.remove(session.id);
    this.sessions.end(session, "the client ended the session");
  }

  async save(session: Session): Promise<void> {
    const { id, principal, revision, phase, clientCapabilities, logLevel } = session;
    if (!this.#keeper || !principal) return;
    const { app } = principal;
    const caller = callerOf(principal);
    await this.#keeper.save({ id, app, caller, revision: revision.name, phase, clientCapabilities, logLevel });
  }

  /** What the client has changed of its session counts at every replica. */
  async keepChange({ id }: Session, { method, params }: Request): Promise<void> {
    const change = this.#keeper && changeBy(method, params ?? {});
    if (!change) return;
    await this.#keeper?.change(id, change).catch((error: Error) => {
      this.#gateway.telemetry.log.warning("a change of a session is known here only", { problem: error.message });
    });
  }
}

function changeBy(method: string, { uri, level }: JsonObject): SavedSessionChange | undefined {
  if (method === "logging/setLevel") return { logLevel: level as LogLevel };
  if (method === "resources/subscribe") return { subscribe: uri as string };
  if (method === "resources/unsubscribe") return { unsubscribe: uri as string };
  return undefined;
}
