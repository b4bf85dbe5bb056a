// One question to the provider: bounded in time and tries, stopped when the caller stops.

import { setTimeout as pause } from "node:timers/promises";
import { Fault } from "../../mcp/index.js";
import { llmFailureOf } from "./failure.js";
import type { LlmAnswer, Provider, LlmRequest } from "./provider.js";
import type { LlmLimits } from "./settings.js";

export interface LlmAsked extends LlmAnswer {
  readonly truncated: boolean;
}

export interface AskOptions {
  readonly limits: LlmLimits;
  readonly apiKey: string | undefined;
  readonly signal: AbortSignal;
  readonly onText: (text: string) => Promise<void>;
}

export async function ask(provider: Provider, question: LlmRequest, options: AskOptions): Promise<LlmAsked> {
  const { limits, signal } = options;
  const late = AbortSignal.timeout(limits.timeoutMs);
  const stop = new AbortController();
  const any = AbortSignal.any([signal, late, stop.signal]);
  let chars = 0;
  const onText = async (text: string): Promise<void> => {
    any.throwIfAborted();
    const room = limits.maxOutputChars - chars;
    chars += Math.min(text.length, room);
    if (text.length <= room) return await options.onText(text);
    const part = text.slice(0, room).replace(/[\ud800-\udbff]$/, "");
    if (part !== "") await options.onText(part);
    stop.abort();
  };
  for (let attempt = 0; ; attempt++) {
    try {
      const answer = await untilAborted(provider(question, { signal: any, onText }), any);
      return { ...answer, truncated: false };
    } catch (error) {
      if (stop.signal.aborted)
        return { model: question.model, finishReason: "length", usage: undefined, ignored: [], truncated: true };
      if (signal.aborted) throw signal.reason;
      if (late.aborted) throw tooLate(limits.timeoutMs);
      const { fault, retry, afterMs } = llmFailureOf(error, options.apiKey);
      const delayMs = afterMs ?? Math.min(limits.maxRetryDelayMs, 500 * 2 ** attempt) * (0.5 + Math.random() / 2);
      // What was passed on cannot be taken back, so an answer that broke off is not begun anew.
      if (!retry || chars > 0 || attempt >= limits.maxRetries || delayMs > limits.maxRetryDelayMs) throw fault;
      await pause(delayMs, undefined, { signal: any }).catch(() => undefined);
      if (signal.aborted) throw signal.reason;
      if (late.aborted) throw tooLate(limits.timeoutMs);
    }
  }
}

/** A library that does not notice the end of its time is left alone with what it does. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => reject(signal.reason);
    if (signal.aborted) aborted();
    signal.addEventListener("abort", aborted, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted));
  });
}

function tooLate(timeoutMs: number): Fault {
  return new Fault("ToolTimeout", `the provider did not answer within ${timeoutMs} ms and was left`, {
    rule: "timeoutMs",
    extra: { tool_name: "core.llm.generate", timeout_ms: timeoutMs, timedOut: true },
    suggestions: ["ask for a shorter answer", "the operator can raise llm.limits.timeoutMs"],
  });
}
