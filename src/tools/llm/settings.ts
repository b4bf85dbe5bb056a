// Which model an application may ask, where, and how much of it.

import {
  byDefault,
  flag,
  integer,
  type JsonObject,
  list,
  object,
  oneOf,
  optional,
  pathText,
  required,
  type ShapeProblem,
  textShape,
} from "../../mcp/index.js";
import { CoreSettingsError } from "../application.js";

export interface LlmSettings {
  /** Which wire format the provider speaks. Ollama is called at its OpenAI-compatible endpoint. */
  readonly provider: "openai" | "anthropic" | "ollama";
  /** For example `https://api.openai.com/v1`, `https://api.anthropic.com`, `http://127.0.0.1:11434/v1`. */
  readonly baseUrl: string;
  /** Usually `${secret:NAME}`; Ollama needs none. */
  readonly apiKey?: string | undefined;
  /** Nothing else can be asked; the first is the default. */
  readonly models: readonly string[];
  /** False for a server that cannot stream. */
  readonly streaming: boolean;
  /** The field in which an OpenAI-compatible server takes the limit; by default `max_tokens`, and OpenAI's own name for OpenAI. */
  readonly tokenLimitField?: "max_tokens" | "max_completion_tokens" | undefined;
  readonly limits: LlmLimits;
}

export interface LlmLimits {
  /** One answer, retries included. */
  readonly timeoutMs: number;
  readonly maxInputChars: number;
  readonly maxOutputTokens: number;
  /** A longer answer is cut here, however the provider counts tokens. */
  readonly maxOutputChars: number;
  /** Of the provider's answer on the wire. */
  readonly maxResponseBytes: number;
  readonly maxRetries: number;
  /** The longest pause before a retry; a provider that asks for a longer one is not asked again. */
  readonly maxRetryDelayMs: number;
  /** Answers under way at once. */
  readonly maxConcurrency: number;
}

const limits = object("bounds of every answer", {
  timeoutMs: byDefault(integer("one answer, retries included", { min: 100, max: 3_600_000 }), 120_000),
  maxInputChars: byDefault(integer("characters of all messages", { min: 1, max: 50_000_000 }), 1_000_000),
  maxOutputTokens: byDefault(integer("tokens of one answer", { min: 1, max: 1_000_000 }), 4_096),
  maxOutputChars: byDefault(integer("characters of one answer", { min: 1, max: 50_000_000 }), 400_000),
  maxResponseBytes: byDefault(
    integer("bytes of an answer on the wire", { min: 1_000, max: 1_000_000_000 }),
    64_000_000,
  ),
  maxRetries: byDefault(integer("tries after the first", { min: 0, max: 10 }), 2),
  maxRetryDelayMs: byDefault(integer("longest pause before a retry", { min: 1, max: 600_000 }), 10_000),
  maxConcurrency: byDefault(integer("answers under way at once", { min: 1, max: 10_000 }), 16),
});

const settings = object("the provider for core.llm", {
  provider: required(oneOf("which wire format it speaks", ["openai", "anthropic", "ollama"])),
  baseUrl: required(textShape("where it is", { min: 1, max: 2_000 })),
  apiKey: optional(textShape("write ${secret:NAME}", { min: 1, max: 10_000 })),
  models: required(
    list("models that may be asked, the default first", textShape("a model", { min: 1, max: 200 }), { max: 200 }),
  ),
  streaming: byDefault(flag("can it stream"), true),
  tokenLimitField: optional(oneOf("the field in which it takes the limit", ["max_tokens", "max_completion_tokens"])),
  limits: optional(limits),
});

/** Throws a `CoreSettingsError` that names every problem. */
export function checkLlmSettings(application: string, document: JsonObject): LlmSettings {
  const problems: ShapeProblem[] = [];
  const checked = settings.check(document, ["llm"], problems);
  if (checked === undefined) {
    const said = problems.map(({ path, message }) => `${pathText(path)}: ${message}`);
    throw new CoreSettingsError(application, said.join("; "));
  }
  const bounds = checked.limits ?? limits.check({}, [], []);
  if (bounds === undefined) throw new TypeError("limits without required fields have defaults");
  const problem = problemOf(checked);
  if (problem !== undefined) throw new CoreSettingsError(application, problem);
  return { ...checked, limits: bounds };
}

function problemOf({ baseUrl, models, provider, apiKey }: Omit<LlmSettings, "limits">): string | undefined {
  if (models.length === 0) return "llm.models: name at least one model";
  if (provider === "anthropic" && apiKey === undefined) return "llm.apiKey: is missing; write ${secret:NAME}";
  if (!URL.canParse(baseUrl)) return "llm.baseUrl: is not a URL";
  const url = new URL(baseUrl);
  if (url.protocol !== "https:" && url.protocol !== "http:") return "llm.baseUrl: must begin with https:// or http://";
  if (url.username !== "" || url.password !== "") return "llm.baseUrl: holds a password; put it into llm.apiKey";
  return undefined;
}

export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** What one call cost, for accounting. */
export interface UsageRecord {
  readonly app: string;
  readonly agent: string;
  readonly provider: LlmSettings["provider"];
  readonly model: string;
  readonly traceId: string;
  readonly latencyMs: number;
  readonly outcome: "ok" | "error" | "cancelled";
  /** Absent when the provider did not say. */
  readonly usage?: Usage;
}

// What every provider is asked and answers, whichever words it uses on the wire.

export interface LlmRequest {
  readonly model: string;
  readonly system: string | undefined;
  readonly messages: readonly { readonly role: "user" | "assistant"; readonly content: string }[];
  readonly maxTokens: number;
  readonly temperature: number | undefined;
  readonly stop: readonly string[] | undefined;
}

export interface LlmAnswer {
  /** As the provider names it, which may say more than it was asked by. */
  readonly model: string;
  readonly finishReason: "stop" | "length" | "filter" | "other";
  readonly usage: Usage | undefined;
  /** What the question had and this provider does not take. */
  readonly ignored: readonly "temperature"[];
}

export interface LlmCallOptions {
  readonly signal: AbortSignal;
  /** Called with each piece of text, in order; the next is not read before it resolves. */
  readonly onText: (text: string) => Promise<void>;
}

export type Provider = (question: LlmRequest, asking: LlmCallOptions) => Promise<LlmAnswer>;

export interface ProviderAccess {
  readonly apiKey: string | undefined;
  readonly fetch: typeof globalThis.fetch;
}
