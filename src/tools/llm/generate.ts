// core.llm.generate: one shape of call, whichever provider the application has.

import { Fault, type JsonObject } from "../../mcp/index.js";
import type { CallContext, Tool } from "../../mcp/server/index.js";
import { type CoreApplication, type CoreServices, CoreSettingsError, closedRecord, ownTool } from "../application.js";
import { anthropicProvider } from "./anthropic.js";
import { ask, guardedFetch, type LlmAsked } from "./ask.js";
import { openaiProvider } from "./openai.js";
import { checkLlmSettings, type LlmRequest, type LlmSettings } from "./settings.js";

const MAX_MESSAGES = 1_000;
/** So that it is our own clock that ends an answer, with words of its own. */
const CLOCK_MARGIN_MS = 5_000;

export function llmTools(app: CoreApplication, document: JsonObject, services: CoreServices): Tool[] {
  const settings = checkLlmSettings(app.id, document);
  const { fetch } = services;
  if (fetch === undefined) throw new CoreSettingsError(app.id, "llm needs a way out to the network");
  const { limits, models } = settings;
  let underWay = 0;
  return [
    ownTool(
      { app, services },
      {
        name: "core.llm.generate",
        title: "Ask a language model",
        description: `Asks a language model and answers with its text. Models: ${models.join(", ")}.`,
        annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: false, openWorldHint: true },
        timeoutMs: limits.timeoutMs + CLOCK_MARGIN_MS,
        input: closedRecord(
          {
            messages: {
              type: "array",
              minItems: 1,
              maxItems: MAX_MESSAGES,
              items: closedRecord({ role: { enum: ["system", "user", "assistant"] }, content: { type: "string" } }, [
                "role",
                "content",
              ]),
            },
            model: { type: "string", maxLength: 200, description: `${models[0]} by default.` },
            maxTokens: { type: "integer", minimum: 1, maximum: limits.maxOutputTokens },
            temperature: {
              type: "number",
              minimum: 0,
              maximum: 2,
              description: "Where the provider takes one; see `ignored` in the answer.",
            },
            stopSequences: { type: "array", maxItems: 4, items: { type: "string", minLength: 1, maxLength: 200 } },
          },
          ["messages"],
        ),
        output: closedRecord(
          {
            text: { type: "string" },
            provider: { type: "string" },
            model: { type: "string", description: "As the provider names it." },
            finishReason: { enum: ["stop", "length", "filter", "other"] },
            truncated: { type: "boolean", description: "The answer went on beyond the application's limit." },
            ignored: {
              type: "array",
              items: { enum: ["temperature"] },
              description: "What was asked for and this provider does not take.",
            },
            usage: {
              type: "object",
              description: "Absent when the provider did not say.",
              properties: { inputTokens: { type: "integer" }, outputTokens: { type: "integer" } },
              required: ["inputTokens", "outputTokens"],
              additionalProperties: false,
            },
          },
          ["text", "provider", "model", "finishReason", "truncated", "ignored"],
        ),
        handler: async (args, context) => {
          const question = questionOf(settings, args);
          if (underWay >= limits.maxConcurrency) throw tooMany();
          underWay++;
          try {
            return await generate(app, settings, services, fetch, question, context);
          } finally {
            underWay--;
          }
        },
      },
    ),
  ];
}

interface GenerateArguments {
  readonly messages: readonly { readonly role: "system" | "user" | "assistant"; readonly content: string }[];
  readonly model?: string | undefined;
  readonly maxTokens?: number | undefined;
  readonly temperature?: number | undefined;
  readonly stopSequences?: readonly string[] | undefined;
}

function questionOf({ limits, models }: LlmSettings, args: GenerateArguments): LlmRequest {
  const model = args.model ?? (models[0] as string);
  if (!models.includes(model)) {
    throw new Fault("PolicyDeny", "the application may not ask this model", {
      rule: "llm.models",
      field: "model",
      suggestions: [`use one of ${models.join(", ")}`],
    });
  }
  const chars = args.messages.reduce((sum, { content }) => sum + content.length, 0);
  if (chars > limits.maxInputChars) {
    throw new Fault("ToolExecution", `the messages have ${chars} characters; ${limits.maxInputChars} are allowed`, {
      rule: "maxInputChars",
      field: "messages",
    });
  }
  const system = args.messages.filter(({ role }) => role === "system").map(({ content }) => content);
  const messages = args.messages.flatMap(({ role, content }) => (role === "system" ? [] : [{ role, content }]));
  if (messages.length === 0) {
    throw new Fault("ValidationError", "there is no message of a user or assistant", { field: "messages" });
  }
  return {
    model,
    system: system.length === 0 ? undefined : system.join("\n\n"),
    messages,
    maxTokens: args.maxTokens ?? limits.maxOutputTokens,
    temperature: args.temperature,
    stop: args.stopSequences,
  };
}

async function generate(
  app: CoreApplication,
  settings: LlmSettings,
  services: CoreServices,
  fetch: typeof globalThis.fetch,
  question: LlmRequest,
  context: CallContext,
) {
  const apiKey = await keyOf(settings, services);
  const access = { apiKey, fetch: guardedFetch(fetch, settings, apiKey) };
  const provider =
    settings.provider === "anthropic" ? anthropicProvider(settings, access) : openaiProvider(settings, access);
  const started = performance.now();
  const record = (outcome: "ok" | "error" | "cancelled", answer?: LlmAsked): void =>
    services.usage?.({
      app: app.id,
      agent: context.agent,
      provider: settings.provider,
      model: question.model,
      traceId: context.traceId,
      latencyMs: performance.now() - started,
      outcome,
      ...(answer?.usage === undefined ? {} : { usage: answer.usage }),
    });
  let text = "";
  try {
    const answer = await ask(provider, question, {
      limits: settings.limits,
      apiKey,
      signal: context.signal,
      onText: async (part) => {
        text += part;
        // Streams to a caller that asked for progress, and waits for one that reads slowly.
        await context.write(part);
      },
    });
    record("ok", answer);
    const { model, finishReason, truncated, usage } = answer;
    const ignored = [...answer.ignored];
    const spent = usage === undefined ? {} : { usage: { ...usage } };
    // The text is in the content already: it was written there as it came.
    const content: [] = [];
    return {
      content,
      structuredContent: { text, provider: settings.provider, model, finishReason, truncated, ignored, ...spent },
    };
  } catch (error) {
    record(context.signal.aborted ? "cancelled" : "error");
    throw error;
  }
}

async function keyOf({ apiKey }: LlmSettings, { resolve }: CoreServices): Promise<string | undefined> {
  if (apiKey === undefined) return undefined;
  try {
    const key = resolve === undefined ? apiKey : await resolve(apiKey);
    if (key !== "" && !key.includes("${")) return key;
  } catch {
    // Which secret is missing is the operator's business, and the message might hold more than its name.
  }
  throw new Fault("ToolExecution", "the application's key for the provider is not there", {
    rule: "llm.apiKey",
    suggestions: ["the operator can set the secret that llm.apiKey names"],
  });
}

function tooMany(): Fault {
  return new Fault("TooMany", "too many answers are under way for this application", {
    rule: "maxConcurrency",
    suggestions: ["try again in a moment"],
  });
}
