// A handshake session may be in use at several replicas: what a message is about may be at another one. Requests to the
// client and event streams have the name of their replica in their ids.

import { Fault, isJsonObject, type JsonObject, type RequestId, type Response } from "../mcp/index.js";
import type { Reply } from "../mcp/transports/index.js";
import type { Endpoint } from "./endpoint.js";
import { faultFromJson, faultToJson, type Owner, type ReplicaBus } from "./replicas/bus.js";
import type { Session } from "./session.js";

/** The other replicas, as the sessions of one application see them. */
export interface RemoteSessions {
  readonly here: string;
  /** A response to a request that was sent there. */
  answer(at: string, session: Session, response: Response): Promise<void>;
  /** The replica that runs this request of the session stops it. */
  cancel(session: Session, requestId: RequestId, reason: string): Promise<void>;
  /** Continues here an event stream that is kept there. Resolves when it has begun. */
  resume(
    at: string,
    session: Session,
    lastEventId: string,
    reply: Reply,
    credential: string | undefined,
  ): Promise<void>;
}

const NAMED = /~([A-Za-z0-9_-]{1,64})(?:\.\d+)?$/;

/** The replica in the id of a request or an event. */
export function replicaIn(name: RequestId | null): string | undefined {
  return typeof name === "string" ? NAMED.exec(name)?.[1] : undefined;
}

export function remoteSessions(bus: ReplicaBus, app: string): RemoteSessions {
  const ownerOf = ({ principal }: Session): Owner => ({ app, agent: principal?.agent ?? "" });
  const about = (session: Session): JsonObject => ({ ...ownerOf(session), session: session.id });
  return {
    here: bus.address,
    async answer(at, session, response) {
      const body = { ...about(session), response: response as unknown as JsonObject };
      await bus.send(at, "answer", body, ownerOf(session));
    },
    cancel: (session, requestId, reason) =>
      bus.broadcast("cancel", { ...about(session), requestId, reason }, ownerOf(session)),
    resume: (at, session, lastEventId, reply, credential) =>
      new Promise((resolve, reject) => {
        let hasBegun = false;
        const stream = bus.open(
          at,
          "stream",
          { ...about(session), lastEventId, ...(credential === undefined ? {} : { credential }) },
          {
            onMessage: ({ fault, open, text, id }) => {
              if (fault !== undefined) return reject(faultFromJson(fault));
              if (open === true) {
                hasBegun = true;
                reply.open();
                resolve();
              } else if (typeof text === "string") reply.send(text, typeof id === "string" ? id : undefined);
            },
            onEnd: () => {
              if (!hasBegun) reject(notKept());
              else if (!reply.ended) reply.end();
            },
          },
          ownerOf(session),
        );
        reply.onAbort(() => stream.end());
      }),
  };
}

/** The other side of it. */
export function answerSessions(bus: ReplicaBus, endpointOf: (app: string) => Endpoint | undefined): void {
  const sessionOf = ({ app, session: id, agent }: JsonObject): Session | undefined => {
    const session = endpointOf(String(app))?.handshakes.sessions.get(String(id));
    return session?.principal?.agent === agent ? session : undefined;
  };
  bus.onMessage("answer", (body) => {
    if (isJsonObject(body.response)) sessionOf(body)?.answer(body.response as unknown as Response);
  });
  bus.onMessage("cancel", (body) => {
    const cancel = sessionOf(body)?.underWay.get(body.requestId as RequestId);
    cancel?.withdraw(new Fault("Cancelled", String(body.reason)));
  });
  bus.onStream("stream", (body, stream) => {
    const gone: (() => void)[] = [];
    const sink: Reply = {
      send: (text, id) => {
        stream.send({ text, ...(id === undefined ? {} : { id }) });
        return true;
      },
      drained: () => Promise.resolve(),
      open: () => stream.send({ open: true }),
      end: () => stream.end(),
      get ended() {
        return stream.isOver;
      },
      onAbort: (listener) => gone.push(listener),
    };
    try {
      const session = sessionOf(body);
      if (!session) throw notKept();
      const { stream: events, seq } = session.streams.find(String(body.lastEventId));
      events.resume(sink, seq, typeof body.credential === "string" ? body.credential : undefined);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      stream.send({ fault: faultToJson(error) });
      stream.end();
    }
    return {
      onMessage: () => {},
      onEnd: () => {
        for (const listener of gone) listener();
      },
    };
  });
}

function notKept(): Fault {
  return new Fault("InvalidRequest", "the events after `Last-Event-ID` are no longer kept", { field: "Last-Event-ID" });
}
