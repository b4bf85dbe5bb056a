// A handshake session is one thing to its client and may be in use at several replicas: what a message is about may be
// in the hands of another one. Questions and event streams are named after the replica that has them.

import { Fault, isJsonObject, type JsonObject, type RequestId, type Response } from "../mcp/index.js";
import type { Reply } from "../mcp/transports/index.js";
import type { Endpoint } from "./endpoint.js";
import { faultFromJson, faultToJson, type ReplicaBus } from "./replicas/bus.js";
import type { Owner } from "./replicas/shares.js";
import type { Session } from "./session.js";

/** The other replicas, as the sessions of one application see them. */
export interface RemoteSessions {
  readonly here: string;
  /** An answer to a question that was asked there. */
  answer(at: string, session: Session, response: Response): Promise<void>;
  /** Whoever runs this request of the session stops it. */
  cancel(session: Session, requestId: RequestId, reason: string): Promise<void>;
  /** Goes on here with an event stream that is kept there. Resolves when it has begun. */
  resume(
    at: string,
    session: Session,
    lastEventId: string,
    reply: Reply,
    credential: string | undefined,
  ): Promise<void>;
}

const NAMED = /~([A-Za-z0-9_-]{1,64})(?:\.\d+)?$/;

/** The replica that a question or an event is named after. */
export function replicaIn(name: RequestId | null): string | undefined {
  return typeof name === "string" ? NAMED.exec(name)?.[1] : undefined;
}

export function remoteSessions(post: ReplicaBus, app: string): RemoteSessions {
  const ownerOf = ({ principal }: Session): Owner => ({ app, agent: principal?.agent ?? "" });
  const about = (session: Session): JsonObject => ({ ...ownerOf(session), session: session.id });
  return {
    here: post.address,
    async answer(at, session, response) {
      const body = { ...about(session), response: response as unknown as JsonObject };
      await post.tell(at, "answer", body, ownerOf(session));
    },
    cancel: (session, requestId, reason) =>
      post.tellOthers("cancel", { ...about(session), requestId, reason }, ownerOf(session)),
    resume: (at, session, lastEventId, reply, credential) =>
      new Promise((resolve, reject) => {
        let hasBegun = false;
        const line = post.call(
          at,
          "stream",
          { ...about(session), lastEventId, ...(credential === undefined ? {} : { credential }) },
          {
            heard: ({ fault, open, text, id }) => {
              if (fault !== undefined) return reject(faultFromJson(fault));
              if (open === true) {
                hasBegun = true;
                reply.open();
                resolve();
              } else if (typeof text === "string") reply.send(text, typeof id === "string" ? id : undefined);
            },
            ended: () => {
              if (!hasBegun) reject(notKept());
              else if (!reply.ended) reply.end();
            },
          },
          ownerOf(session),
        );
        reply.onAbort(() => line.end());
      }),
  };
}

/** The other side of it. */
export function answerSessions(post: ReplicaBus, endpointOf: (app: string) => Endpoint | undefined): void {
  const sessionOf = ({ app, session: id, agent }: JsonObject): Session | undefined => {
    const session = endpointOf(String(app))?.sessions.get(String(id));
    return session?.principal?.agent === agent ? session : undefined;
  };
  post.onTold("answer", (body) => {
    if (isJsonObject(body.response)) sessionOf(body)?.answer(body.response as unknown as Response);
  });
  post.onTold("cancel", (body) => {
    const cancel = sessionOf(body)?.underWay.get(body.requestId as RequestId);
    cancel?.withdraw(new Fault("Cancelled", String(body.reason)));
  });
  post.onCalled("stream", (body, line) => {
    const gone: (() => void)[] = [];
    const sink: Reply = {
      send: (text, id) => {
        line.say({ text, ...(id === undefined ? {} : { id }) });
        return true;
      },
      drained: () => Promise.resolve(),
      open: () => line.say({ open: true }),
      end: () => line.end(),
      get ended() {
        return line.isOver;
      },
      onAbort: (listener) => gone.push(listener),
    };
    try {
      const session = sessionOf(body);
      if (!session) throw notKept();
      const { stream, seq } = session.streams.find(String(body.lastEventId));
      stream.resume(sink, seq, typeof body.credential === "string" ? body.credential : undefined);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      line.say({ fault: faultToJson(error) });
      line.end();
    }
    return {
      heard: () => {},
      ended: () => {
        for (const listener of gone) listener();
      },
    };
  });
}

function notKept(): Fault {
  return new Fault("InvalidRequest", "the events after `Last-Event-ID` are no longer kept", { field: "Last-Event-ID" });
}
