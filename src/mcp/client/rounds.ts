// Multi-round-trip requests: an answer may ask for input, and the same request goes again with the answers.
// `requestState` belongs to the server: it goes back as it came, with this request and no other.

import { isJsonObject, type JsonObject } from "../index.js";
import { ProtocolError } from "./errors.js";

interface RoundLimits {
  maxRounds: number;
  maxInputs: number;
}

export interface RoundsOptions {
  method: string;
  limits: RoundLimits;
  /** Result types beyond the core's that the caller understands. */
  resultTypes: readonly string[];
  /** False in revisions whose answers have no result type: there every answer is the answer. */
  mayAsk: boolean;
  /** What a later round begins with: answers and state of the round before. Empty for the first. */
  start?: JsonObject;
  /** Sends the request with these parameters added. */
  send(extra: JsonObject): Promise<JsonObject>;
  answer(method: string, params: JsonObject): Promise<JsonObject>;
}

/** The only requests that a server may answer with questions. */
const MAY_ASK = new Set(["tools/call", "prompts/get", "resources/read"]);
const INPUTS = new Set(["elicitation/create", "sampling/createMessage", "roots/list"]);

export async function inRounds(options: RoundsOptions): Promise<JsonObject> {
  const { method, limits } = options;
  let extra: JsonObject = options.start ?? {};
  for (let round = 0; round <= limits.maxRounds; round++) {
    const result = await options.send(extra);
    if (!options.mayAsk) return result;
    const type = result.resultType ?? "complete";
    if (type === "complete" || options.resultTypes.includes(type as string)) return result;
    if (type !== "input_required" || !MAY_ASK.has(method)) {
      throw new ProtocolError(
        "InvalidRequest",
        `the server answered ${method} with resultType ${JSON.stringify(type)}, which this client did not agree to`,
        { data: result },
      );
    }
    extra = await nextRound(result, options);
  }
  throw new ProtocolError(
    "TooMany",
    `the server asked for input more than ${limits.maxRounds} times during one ${method}; raise limits.maxRounds if that is meant`,
  );
}

async function nextRound(result: JsonObject, options: RoundsOptions): Promise<JsonObject> {
  const { inputRequests, requestState } = result;
  const broken = (what: string): ProtocolError =>
    new ProtocolError("InvalidRequest", `the server's request for input is malformed: ${what}`, { data: result });
  if (inputRequests === undefined && requestState === undefined) throw broken("it asks nothing and carries no state");
  if (requestState !== undefined && typeof requestState !== "string") throw broken("`requestState` is no string");
  const state: JsonObject = requestState === undefined ? {} : { requestState };
  if (inputRequests === undefined) return state;
  if (!isJsonObject(inputRequests)) throw broken("`inputRequests` is no object");
  const questions = Object.entries(inputRequests);
  if (questions.length > options.limits.maxInputs) {
    throw broken(`${questions.length} questions, and the limit is ${options.limits.maxInputs}`);
  }
  const answers = questions.map(async ([key, question]): Promise<[string, JsonObject]> => {
    if (!isJsonObject(question) || typeof question.method !== "string" || !INPUTS.has(question.method)) {
      throw broken(`question \`${key}\` is none of ${[...INPUTS].join(", ")}`);
    }
    return [key, await options.answer(question.method, isJsonObject(question.params) ? question.params : {})];
  });
  return { ...state, inputResponses: Object.fromEntries(await Promise.all(answers)) };
}
