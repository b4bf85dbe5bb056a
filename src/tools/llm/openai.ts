// Providers that speak OpenAI's chat completions: OpenAI itself, the many that imitate it, and Ollama.

import type { OpenAI } from "openai";
import type {
  LlmAnswer,
  LlmCallOptions,
  LlmRequest,
  LlmSettings,
  Provider,
  ProviderAccess,
  Usage,
} from "./settings.js";

type Parameters = OpenAI.ChatCompletionCreateParams;
type Counted = { prompt_tokens?: number; completion_tokens?: number } | null | undefined;

export function openaiProvider(settings: LlmSettings, access: ProviderAccess): Provider {
  return async (question, asking) => {
    // Loaded on first use: most applications never ask a model.
    const { OpenAI } = await import("openai");
    const client = new OpenAI({
      apiKey: access.apiKey ?? "none",
      baseURL: settings.baseUrl,
      organization: null,
      project: null,
      fetch: access.fetch,
      maxRetries: 0,
      timeout: settings.limits.timeoutMs,
      logLevel: "off",
    });
    const parameters = parametersOf(settings, question);
    return settings.streaming ? stream(client, parameters, asking) : whole(client, parameters, asking);
  };
}

function parametersOf(settings: LlmSettings, question: LlmRequest): Parameters {
  const system = question.system === undefined ? [] : [{ role: "system" as const, content: question.system }];
  const ofOpenAi = new URL(settings.baseUrl).hostname === "api.openai.com";
  const field = settings.tokenLimitField ?? (ofOpenAi ? "max_completion_tokens" : "max_tokens");
  return {
    model: question.model,
    messages: [...system, ...question.messages],
    [field]: question.maxTokens,
    ...(question.temperature === undefined ? {} : { temperature: question.temperature }),
    ...(question.stop === undefined ? {} : { stop: [...question.stop] }),
  };
}

async function stream(client: OpenAI, parameters: Parameters, { signal, onText }: LlmCallOptions): Promise<LlmAnswer> {
  const chunks = await client.chat.completions.create(
    { ...parameters, stream: true, stream_options: { include_usage: true } },
    { signal },
  );
  let { model } = parameters;
  let finish: string | null | undefined;
  let usage: Usage | undefined;
  for await (const chunk of chunks) {
    model = chunk.model || model;
    const [choice] = chunk.choices ?? [];
    finish = choice?.finish_reason ?? finish;
    usage = usageOf(chunk.usage) ?? usage;
    const text = choice?.delta?.content;
    if (typeof text === "string" && text !== "") await onText(text);
  }
  // A stream that ends without saying why was cut off.
  if (finish === undefined || finish === null) throw new Error("the stream ended early");
  return { model, finishReason: reasonOf(finish), usage, ignored: [] };
}

async function whole(client: OpenAI, parameters: Parameters, { signal, onText }: LlmCallOptions): Promise<LlmAnswer> {
  const completion = await client.chat.completions.create({ ...parameters, stream: false }, { signal });
  const [choice] = completion.choices ?? [];
  if (choice === undefined) throw new Error("the answer has no choice");
  if (typeof choice.message?.content === "string") await onText(choice.message.content);
  return {
    model: completion.model || parameters.model,
    finishReason: reasonOf(choice.finish_reason),
    usage: usageOf(completion.usage),
    ignored: [],
  };
}

function usageOf(counted: Counted): Usage | undefined {
  if (typeof counted?.prompt_tokens !== "number") return undefined;
  return { inputTokens: counted.prompt_tokens, outputTokens: counted.completion_tokens ?? 0 };
}

function reasonOf(reason: string): LlmAnswer["finishReason"] {
  switch (reason) {
    case "stop":
    case "length":
      return reason;
    case "content_filter":
      return "filter";
    default:
      return "other";
  }
}
