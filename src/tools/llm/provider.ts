// What every provider is asked and answers, whichever words it uses on the wire.

import type { Usage } from "./settings.js";

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
