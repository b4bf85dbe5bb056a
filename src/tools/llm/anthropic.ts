// Anthropic's messages, in the API version that its library speaks (2026-10-21): there is no temperature any more, and a
// request that has one is refused.

import type { Anthropic } from "@anthropic-ai/sdk";
import type { LlmAnswer, LlmCallOptions, LlmRequest, LlmSettings, Provider, ProviderAccess } from "./settings.js";

type Parameters = Anthropic.MessageCreateParamsNonStreaming;
type Said = Omit<LlmAnswer, "ignored">;
type Counted = Pick<
  Anthropic.MessageDeltaUsage,
  "input_tokens" | "cache_creation_input_tokens" | "cache_read_input_tokens"
>;

export function anthropicProvider(settings: LlmSettings, access: ProviderAccess): Provider {
  return async (question, asking) => {
    // Loaded on first use: most applications never ask a model.
    const { Anthropic } = await import("@anthropic-ai/sdk");
    const client = new Anthropic({
      // Given in any case: without one the library looks for credentials in the environment and on disk.
      apiKey: access.apiKey ?? "none",
      baseURL: settings.baseUrl,
      fetch: access.fetch,
      maxRetries: 0,
      timeout: settings.limits.timeoutMs,
      logLevel: "off",
      // Spans are the gateway's business; the library's could carry what was said.
      openTelemetry: false,
    });
    const parameters = parametersOf(question);
    const answer = await (settings.streaming ? stream(client, parameters, asking) : whole(client, parameters, asking));
    return { ...answer, ignored: question.temperature === undefined ? [] : ["temperature"] };
  };
}

function parametersOf(question: LlmRequest): Parameters {
  return {
    model: question.model,
    max_tokens: question.maxTokens,
    messages: [...question.messages],
    ...(question.system === undefined ? {} : { system: question.system }),
    ...(question.stop === undefined ? {} : { stop_sequences: [...question.stop] }),
  };
}

async function stream(client: Anthropic, parameters: Parameters, { signal, onText }: LlmCallOptions): Promise<Said> {
  const events = await client.messages.create({ ...parameters, stream: true }, { signal });
  let model: string = parameters.model;
  let inputTokens: number | undefined;
  let outputTokens = 0;
  let reason: string | null | undefined;
  let ended = false;
  for await (const event of events) {
    switch (event.type) {
      case "message_start":
        model = event.message.model || model;
        inputTokens = inputOf(event.message.usage);
        outputTokens = event.message.usage?.output_tokens ?? 0;
        break;
      case "content_block_delta":
        if (event.delta.type === "text_delta" && event.delta.text !== "") await onText(event.delta.text);
        break;
      case "message_delta":
        reason = event.delta.stop_reason;
        // Cumulative: what it says last counts.
        inputTokens = inputOf(event.usage) ?? inputTokens;
        outputTokens = event.usage?.output_tokens ?? outputTokens;
        break;
      case "message_stop":
        ended = true;
        break;
      default:
        // Kinds of events that were added later carry nothing that is asked for here.
        break;
    }
  }
  if (!ended) throw new Error("the stream ended early");
  return {
    model,
    finishReason: reasonOf(reason),
    usage: inputTokens === undefined ? undefined : { inputTokens, outputTokens },
  };
}

async function whole(client: Anthropic, parameters: Parameters, { signal, onText }: LlmCallOptions): Promise<Said> {
  const message = await client.messages.create({ ...parameters, stream: false }, { signal });
  for (const block of message.content ?? []) if (block.type === "text") await onText(block.text);
  const inputTokens = inputOf(message.usage);
  return {
    model: message.model || parameters.model,
    finishReason: reasonOf(message.stop_reason),
    usage: inputTokens === undefined ? undefined : { inputTokens, outputTokens: message.usage?.output_tokens ?? 0 },
  };
}

/** Whatever came from a cache was input all the same. */
function inputOf(counted: Counted | undefined): number | undefined {
  if (typeof counted?.input_tokens !== "number") return undefined;
  return counted.input_tokens + (counted.cache_creation_input_tokens ?? 0) + (counted.cache_read_input_tokens ?? 0);
}

function reasonOf(reason: string | null | undefined): LlmAnswer["finishReason"] {
  switch (reason) {
    case "end_turn":
    case "stop_sequence":
      return "stop";
    case "max_tokens":
    case "model_context_window_exceeded":
      return "length";
    case "refusal":
      return "filter";
    default:
      return "other";
  }
}
