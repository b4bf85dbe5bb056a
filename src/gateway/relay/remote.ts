// A call that waits for its client may wait at another replica than the one the client comes back to. It goes on where
// it is: the answers are taken there, and what comes of them is brought back.

import { Fault, isJsonObject, type JsonObject, parseStrict } from "../../mcp/index.js";
import type { InputRequest, LogLevel } from "../../mcp/server/index.js";
import type { ServerErrorObject, UpstreamAnswer } from "../../upstream/index.js";
import type { StreamListener, ReplicaStream } from "../replicas/stream.js";
import { faultFromJson, faultToJson, type ReplicaBus } from "../replicas/bus.js";
import { callIsOver, type SuspendedCalls, type Speaker, type SuspendedTurn } from "./suspended-calls.js";

const KIND = "resume";
/** As deep as an answer of a server may be nested. */
const MAX_DEPTH = 128;

/** The other replicas, as the calls of one application see them. */
export interface RemoteCalls {
  readonly here: string;
  resume(
    at: string,
    id: string,
    responses: Readonly<Record<string, JsonObject>>,
    by: { readonly speaker: Speaker; readonly agent: string },
  ): Promise<SuspendedTurn>;
}

export function remote(post: ReplicaBus, app: string): RemoteCalls {
  return {
    here: post.address,
    resume: (at, id, responses, { speaker, agent }) =>
      new Promise((resolve, reject) => {
        const hears: StreamListener = {
          heard: (body) => {
            if (isJsonObject(body.progress)) return speaker.relayProgress(body.progress);
            if (isJsonObject(body.log)) return relayLog(speaker, body.log);
            try {
              resolve(turnFrom(body));
            } catch (error) {
              reject(error as Error);
            }
          },
          ended: (fault) => reject(callIsOver(fault)),
        };
        try {
          const line = post.call(at, KIND, { app, id, responses }, hears, { app, agent });
          // Nobody waits for it here any more, so it ends there too.
          speaker.onStop(() => line.end());
        } catch (error) {
          // What the caller brought is used up: to try again is to begin again.
          reject(callIsOver(error));
        }
      }),
  };
}

/** The other side of it: calls that wait here go on for clients that came back to another replica. */
export function answerRemote(post: ReplicaBus, parkedOf: (app: string) => SuspendedCalls | undefined): void {
  post.onCalled(KIND, ({ app, id, responses }, line) => {
    const stops: ((fault: Fault) => void)[] = [];
    const say = (body: JsonObject): void => {
      line.say(body);
      line.end();
    };
    try {
      const suspended = parkedOf(String(app));
      if (!suspended) throw callIsOver();
      const exchange = suspended.take(String(id));
      exchange.attach(speakerOn(line, stops));
      exchange.take((isJsonObject(responses) ? responses : {}) as Record<string, JsonObject>);
      exchange
        .next(String(id))
        .then((turn) => {
          if (!("answer" in turn)) {
            if (line.isOver) return exchange.end(new Fault("Cancelled", "its client is gone"));
            suspended.put(turn.id, exchange);
          }
          say(turnToJson(turn));
        })
        .catch((error: unknown) => say({ fault: faultToJson(asTravelling(error)) }));
    } catch (error) {
      say({ fault: faultToJson(asTravelling(error)) });
    }
    const hears: StreamListener = {
      heard: () => {},
      ended: (fault = new Fault("Cancelled", "the client closed the stream")) => {
        for (const stop of stops) stop(fault);
      },
    };
    return hears;
  });
}

function speakerOn(line: ReplicaStream, stops: ((fault: Fault) => void)[]): Speaker {
  return {
    relayProgress: (progress) => line.say({ progress }),
    log: (level, data, logger) => line.say({ log: { level, data, ...(logger === undefined ? {} : { logger }) } }),
    onStop: (listener) => stops.push(listener),
  };
}

function relayLog(speaker: Speaker, { level, data, logger }: JsonObject): void {
  speaker.log(level as LogLevel, data ?? null, typeof logger === "string" ? logger : undefined);
}

function asTravelling(error: unknown): Fault {
  return error instanceof Fault ? error : new Fault("ToolExecution", (error as Error)?.message ?? String(error));
}

function turnToJson(turn: SuspendedTurn): JsonObject {
  if (!("answer" in turn)) return { questions: turn.questions as unknown as JsonObject, id: turn.id };
  return { answer: turn.answer.kind, text: turn.answer.text };
}

function turnFrom({ fault, questions, id, answer, text }: JsonObject): SuspendedTurn {
  if (fault !== undefined) throw faultFromJson(fault);
  if (isJsonObject(questions)) {
    return { questions: questions as unknown as Readonly<Record<string, InputRequest>>, id: String(id) };
  }
  return { answer: answerFrom(String(answer), String(text)) };
}

function answerFrom(kind: string, text: string): UpstreamAnswer {
  const value = parseStrict(text, MAX_DEPTH);
  if (!isJsonObject(value))
    throw new Fault("InternalError", "the other replica answered with something else than an answer");
  return kind === "error"
    ? { kind, text, error: value as unknown as ServerErrorObject }
    : { kind: "result", text, value };
}
