// Which model an application may ask, where, and how much of it.

export interface LlmSettings {
  /** Which wire format the provider speaks. Ollama is asked by its OpenAI-compatible door. */
  readonly provider: "openai" | "anthropic" | "ollama";
  /** For example `https://api.openai.com/v1`, `https://api.anthropic.com`, `http://127.0.0.1:11434/v1`. */
  readonly baseUrl: string;
  /** Name of the application's credential that holds the key; Ollama usually needs none. */
  readonly credential?: string;
  /** Nothing else can be asked; the first is the default. */
  readonly models: readonly string[];
  /** False for a server that cannot stream; true unless told. */
  readonly streaming?: boolean;
  readonly limits?: Partial<LlmLimits>;
}

export interface LlmLimits {
  /** One answer, retries included. */
  readonly timeoutMs: number;
  readonly maxInputChars: number;
  readonly maxOutputTokens: number;
  /** Of the provider's answer on the wire. */
  readonly maxResponseBytes: number;
  readonly maxRetries: number;
  /** The longest pause before a retry, whatever the provider asks for. */
  readonly maxRetryDelayMs: number;
  /** Answers under way at once. */
  readonly maxConcurrency: number;
}

export const DEFAULT_LLM_LIMITS: LlmLimits = {
  timeoutMs: 120_000,
  maxInputChars: 1_000_000,
  maxOutputTokens: 4_096,
  maxResponseBytes: 8_000_000,
  maxRetries: 2,
  maxRetryDelayMs: 10_000,
  maxConcurrency: 16,
};

export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** What one answer cost, for whoever counts. */
export interface UsageRecord extends Usage {
  readonly app: string;
  readonly agent: string;
  readonly provider: LlmSettings["provider"];
  readonly model: string;
  readonly traceId: string;
  readonly latencyMs: number;
  readonly outcome: "ok" | "error" | "cancelled";
}
