// A suspended call may wait at another replica than the one that its client returns to. It continues where it is: the
// answers are sent there, and the result is sent back.

import { Fault, isJsonObject, type JsonObject, parseStrict } from "../../mcp/index.js";
import type { InputRequest, LogLevel } from "../../mcp/server/index.js";
import type { ServerErrorObject, UpstreamAnswer } from "../../upstream/index.js";
import { faultFromJson, faultToJson, type ReplicaBus } from "../replicas/bus.js";
import type { ReplicaStream, StreamListener } from "../replicas/stream.js";
import { callIsOver, type RoundOutput, type SuspendedCalls, type SuspendedTurn } from "./suspended-calls.js";

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
    by: { readonly output: RoundOutput; readonly agent: string },
  ): Promise<SuspendedTurn>;
}

export function remoteCalls(bus: ReplicaBus, app: string): RemoteCalls {
  return {
    here: bus.address,
    resume: (at, id, responses, { output, agent }) =>
      new Promise((resolve, reject) => {
        const listener: StreamListener = {
          onMessage: (body) => {
            if (isJsonObject(body.progress)) return output.relayProgress(body.progress);
            if (isJsonObject(body.log)) return relayLog(output, body.log);
            try {
              resolve(turnFrom(body));
            } catch (error) {
              reject(error as Error);
            }
          },
          onEnd: (fault) => reject(callIsOver(fault)),
        };
        try {
          const stream = bus.open(at, KIND, { app, id, responses }, listener, { app, agent });
          // A call that is stopped here ends there, too.
          output.onStop(() => stream.end());
        } catch (error) {
          // The state of the caller is used: to try again is to begin again.
          reject(callIsOver(error));
        }
      }),
  };
}

/** The other side of it: calls that wait here go on for clients that came back to another replica. */
export function answerRemote(bus: ReplicaBus, suspendedOf: (app: string) => SuspendedCalls | undefined): void {
  bus.onStream(KIND, ({ app, id, responses }, stream) => {
    const stops: ((fault: Fault) => void)[] = [];
    const answer = (body: JsonObject): void => {
      stream.send(body);
      stream.end();
    };
    try {
      const suspended = suspendedOf(String(app));
      if (!suspended) throw callIsOver();
      const exchange = suspended.take(String(id));
      exchange.attach(outputTo(stream, stops));
      exchange.take((isJsonObject(responses) ? responses : {}) as Record<string, JsonObject>);
      exchange
        .next(String(id))
        .then((turn) => {
          if (!("answer" in turn)) {
            if (stream.isOver) return exchange.end(new Fault("Cancelled", "its client disconnected"));
            suspended.put(turn.id, exchange);
          }
          answer(turnToJson(turn));
        })
        .catch((error: unknown) => answer({ fault: faultToJson(asTravelling(error)) }));
    } catch (error) {
      answer({ fault: faultToJson(asTravelling(error)) });
    }
    const listener: StreamListener = {
      onMessage: () => {},
      onEnd: (fault = new Fault("Cancelled", "the client closed the stream")) => {
        for (const stop of stops) stop(fault);
      },
    };
    return listener;
  });
}

function outputTo(stream: ReplicaStream, stops: ((fault: Fault) => void)[]): RoundOutput {
  return {
    relayProgress: (progress) => stream.send({ progress }),
    log: (level, data, logger) => stream.send({ log: { level, data, ...(logger === undefined ? {} : { logger }) } }),
    onStop: (listener) => stops.push(listener),
  };
}

function relayLog(output: RoundOutput, { level, data, logger }: JsonObject): void {
  output.log(level as LogLevel, data ?? null, typeof logger === "string" ? logger : undefined);
}

function asTravelling(error: unknown): Fault {
  return error instanceof Fault ? error : new Fault("ToolExecution", (error as Error)?.message ?? String(error));
}

function turnToJson(turn: SuspendedTurn): JsonObject {
  if (!("answer" in turn)) return { questions: turn.requests as unknown as JsonObject, id: turn.id };
  return { answer: turn.answer.kind, text: turn.answer.text };
}

function turnFrom({ fault, questions, id, answer, text }: JsonObject): SuspendedTurn {
  if (fault !== undefined) throw faultFromJson(fault);
  if (isJsonObject(questions)) {
    return { requests: questions as unknown as Readonly<Record<string, InputRequest>>, id: String(id) };
  }
  return { answer: answerFrom(String(answer), String(text)) };
}

function answerFrom(kind: string, text: string): UpstreamAnswer {
  const value = parseStrict(text, MAX_DEPTH);
  if (!isJsonObject(value)) throw new Fault("InternalError", "the answer of the other replica is not valid");
  return kind === "error"
    ? { kind, text, error: value as unknown as ServerErrorObject }
    : { kind: "result", text, value };
}
