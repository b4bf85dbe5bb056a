import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Fault, JsonObject } from "../../mcp/index.js";
import { createDialer, createOutbound } from "../../upstream/index.js";
import { type Calling, callTool } from "../fixtures/calling.js";
import { CoreSettingsError, coreTools, type UsageRecord } from "../index.js";
import {
  anthropicError,
  anthropicStream,
  eventStream,
  json,
  ollamaStream,
  openaiStream,
  type ProviderServer,
  startProvider,
} from "./fixtures/provider-server.js";

const KEY = "sk-test-0123456789abcdef";
let provider: ProviderServer;
const outbound = createOutbound(createDialer({ allow: ["127.0.0.1"] }));
const records: UsageRecord[] = [];
const logged: string[] = [];
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(async () => {
  await outbound.close();
  await provider.close();
});
beforeEach(() => {
  records.length = 0;
  logged.length = 0;
  provider.heard.length = 0;
});

type Settings = Record<string, unknown>;
const openai: Settings = { provider: "openai", apiKey: "${secret:key}", models: ["gpt-4o-mini", "gpt-4o"] };
const anthropic: Settings = { provider: "anthropic", apiKey: "${secret:key}", models: ["claude-opus-5-5"] };
const ollama: Settings = { provider: "ollama", models: ["llama3.2"] };

function toolsWith(settings: Settings, fetch = outbound.fetch, secrets: Record<string, string> = { key: KEY }) {
  const path = settings.provider === "anthropic" ? "" : "/v1";
  const llm = { baseUrl: provider.origin + path, ...settings } as JsonObject;
  return coreTools(
    { id: "blog", llm },
    {
      log: { log: (_level, message, fields) => logged.push(message, JSON.stringify(fields, errorText)) },
      fetch,
      usage: (record) => records.push(record),
      resolve: (text) =>
        text.replace(/\$\{secret:(\w+)\}/, (_, name: string) => {
          const value = secrets[name];
          if (value === undefined) throw new Error(`no secret ${name}`);
          return value;
        }),
    },
  );
}

const errorText = (_: string, value: unknown): unknown => (value instanceof Error ? value.message : value);

function generate(settings: Settings, args: JsonObject = {}, calling: Calling = {}) {
  const messages = [{ role: "user", content: "Hello!" }];
  return callTool(toolsWith(settings), "core.llm.generate", { messages, ...args }, calling);
}

async function faultOf(work: Promise<unknown>): Promise<Fault> {
  return await work.then(
    () => expect.unreachable("it was answered"),
    (error: Fault) => error,
  );
}

const QUICK = { maxRetryDelayMs: 50 };

describe("one shape of call", () => {
  const messages = [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Hello!" },
    { role: "assistant", content: "Hi." },
    { role: "user", content: "Who are you?" },
  ];
  const args = { messages, temperature: 0.5, maxTokens: 100, stopSequences: ["END"] };

  it("asks OpenAI, streams, and says what it cost [H8]", async () => {
    provider.answer(eventStream(openaiStream(["I am", " a", " model é\u{1f600}."])));
    const written: string[] = [];
    const answer = await generate(openai, args, { written });
    expect(answer).toEqual({
      text: "I am a model é\u{1f600}.",
      provider: "openai",
      model: "gpt-4o-mini-2024-07-18",
      finishReason: "stop",
      truncated: false,
      ignored: [],
      usage: { inputTokens: 11, outputTokens: 7 },
    });
    expect(written).toEqual(["I am", " a", " model é\u{1f600}."]);
    expect(provider.heard).toMatchObject([{ method: "POST", url: "/v1/chat/completions" }]);
    expect(provider.heard[0]?.body).toEqual({
      model: "gpt-4o-mini",
      messages,
      max_tokens: 100,
      temperature: 0.5,
      stop: ["END"],
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(provider.heard[0]?.headers.authorization).toBe(`Bearer ${KEY}`);
    expect(records).toMatchObject([
      {
        app: "blog",
        agent: "writer",
        model: "gpt-4o-mini",
        outcome: "ok",
        usage: { inputTokens: 11, outputTokens: 7 },
      },
    ]);
  });

  it("asks Anthropic, streams, and says what it cost [H8]", async () => {
    provider.answer(eventStream(anthropicStream(["I am", " Claude."])));
    const written: string[] = [];
    expect(await generate(anthropic, args, { written })).toEqual({
      text: "I am Claude.",
      provider: "anthropic",
      model: "claude-opus-5-5",
      finishReason: "stop",
      truncated: false,
      ignored: ["temperature"],
      usage: { inputTokens: 30, outputTokens: 15 },
    });
    expect(written).toEqual(["I am", " Claude."]);
    expect(provider.heard).toMatchObject([{ method: "POST", url: "/v1/messages" }]);
    expect(provider.heard[0]?.body).toEqual({
      model: "claude-opus-5-5",
      max_tokens: 100,
      system: "Be brief.",
      messages: messages.slice(1),
      stop_sequences: ["END"],
      stream: true,
    });
    expect(provider.heard[0]?.headers).toMatchObject({
      authorization: `Bearer ${KEY}`,
      "anthropic-version": "2026-10-21",
    });
  });

  it("asks Ollama by its OpenAI-compatible door, without a key [H8]", async () => {
    provider.answer(eventStream(ollamaStream(["llama", "!"])));
    expect(await generate(ollama, args)).toMatchObject({
      text: "llama!",
      provider: "ollama",
      usage: { inputTokens: 26, outputTokens: 3 },
    });
    expect(provider.heard[0]?.headers.authorization).toBeUndefined();
  });

  it("core.llm.generate asks without streaming where a server cannot stream", async () => {
    const completion = {
      id: "chatcmpl-1",
      object: "chat.completion",
      created: 1741569952,
      model: "gpt-4o-mini",
      choices: [
        {
          index: 0,
          message: { role: "assistant", content: "Hi", refusal: null },
          logprobs: null,
          finish_reason: "length",
        },
      ],
      usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
    };
    provider.answer(json(200, completion));
    expect(await generate({ ...openai, streaming: false })).toMatchObject({ text: "Hi", finishReason: "length" });
    const message = {
      id: "msg_1",
      type: "message",
      role: "assistant",
      model: "claude-opus-5-5",
      stop_reason: "refusal",
      stop_sequence: null,
      content: [{ type: "text", text: "No" }],
      usage: { input_tokens: 1, output_tokens: 2 },
    };
    provider.answer(json(200, message));
    expect(await generate({ ...anthropic, streaming: false })).toMatchObject({ text: "No", finishReason: "filter" });
    expect(provider.heard.map(({ body }) => body.stream)).toEqual([false, false]);
  });

  it("names the limit as OpenAI itself wants it, or as the operator says", async () => {
    provider.answer(eventStream(openaiStream(["x"])));
    await generate({ ...openai, tokenLimitField: "max_completion_tokens" });
    expect(provider.heard[0]?.body).toMatchObject({ max_completion_tokens: 4096 });
    expect(provider.heard[0]?.body).not.toHaveProperty("max_tokens");
  });
});

describe("what a provider does wrong", () => {
  const refused = {
    error: {
      message: `Incorrect API key provided: ${KEY}.`,
      type: "invalid_request_error",
      param: null,
      code: "invalid_api_key",
    },
  };
  const overloaded = anthropicError("overloaded_error", "Overloaded");

  it("a refused key is the operator's business, and no byte of it is said", async () => {
    for (const settings of [openai, anthropic]) {
      provider.answer(
        json(401, settings === openai ? refused : anthropicError("authentication_error", `invalid API key ${KEY}`)),
      );
      const fault = await faultOf(generate(settings));
      expect(fault).toMatchObject({ type: "ToolExecution", detail: { rule: "provider", extra: { status: 401 } } });
      expect(fault.message).toContain("refused the application's credential");
      expect(JSON.stringify([fault.message, fault.detail], errorText) + logged.join()).not.toContain(KEY.slice(3, 12));
    }
    expect(provider.heard).toHaveLength(2);
    expect(records.map(({ outcome }) => outcome)).toEqual(["error", "error"]);
  });

  it("a mistake in the question comes back with the provider's words, without the key", async () => {
    const said = {
      error: { message: `max context is 128\u001b[2J ${KEY} sk-other-key-123456`, type: "invalid_request_error" },
    };
    provider.answer(json(400, said));
    const fault = await faultOf(generate(openai));
    expect(fault.message).toContain("max context is 128\\u001b[2J [redacted] [redacted]");
  });

  it("a rate limit is waited out within bounds", async () => {
    const limited = json(
      429,
      { error: { message: "Rate limit reached", type: "requests", code: "rate_limit_exceeded" } },
      { "retry-after-ms": "20" },
    );
    provider.answer(limited, limited, eventStream(openaiStream(["at last"])));
    expect(await generate({ ...openai, limits: QUICK })).toMatchObject({ text: "at last" });
    expect(provider.heard).toHaveLength(3);
    provider.answer(limited);
    const fault = await faultOf(generate({ ...openai, limits: QUICK }));
    expect(fault).toMatchObject({ type: "Unavailable", detail: { extra: { status: 429, retry_after_ms: 20 } } });
    expect(provider.heard).toHaveLength(6);
  });

  it("a provider that asks for a long pause is not asked again", async () => {
    provider.answer(json(429, refused, { "retry-after": "3600" }));
    const fault = await faultOf(generate(openai));
    expect(fault.detail.extra).toMatchObject({ retry_after_ms: 3_600_000 });
    expect(provider.heard).toHaveLength(1);
  });

  it.each([500, 502, 503, 529])("%d is tried again, and then said to be temporary", async (status) => {
    provider.answer(json(status, overloaded), eventStream(anthropicStream(["back"])));
    expect(await generate({ ...anthropic, limits: QUICK })).toMatchObject({ text: "back" });
    provider.answer(json(status, overloaded, { "x-should-retry": "true" }));
    const fault = await faultOf(generate({ ...anthropic, limits: { ...QUICK, maxRetries: 1 } }));
    expect(fault.type).toBe("Unavailable");
    expect(provider.heard).toHaveLength(4);
  });

  it("an answer that broke off is not begun anew, nor taken for a whole one [H8]", async () => {
    const begun = anthropicStream(["half"]).split("event: a_later_kind")[0] ?? "";
    provider.answer(eventStream(begun + `event: error\ndata: ${JSON.stringify(overloaded)}\n\n`));
    expect(await faultOf(generate({ ...anthropic, limits: QUICK }))).toMatchObject({ type: "Unavailable" });
    provider.answer(eventStream(begun));
    expect(await faultOf(generate({ ...anthropic, limits: QUICK }))).toMatchObject({ type: "Unavailable" });
    provider.answer(eventStream(openaiStream(["half"]).split('data: {"id"').slice(0, 3).join('data: {"id"')));
    expect(await faultOf(generate({ ...openai, limits: QUICK }))).toMatchObject({ type: "Unavailable" });
    provider.answer((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(begun);
      setTimeout(() => response.destroy(), 100);
    });
    expect(await faultOf(generate({ ...anthropic, limits: QUICK }))).toMatchObject({ type: "Unavailable" });
    expect(provider.heard).toHaveLength(4);
  });

  it.each(["{", "<html>", "data: {\n\n", 'data: {"choices":[]}\n\n', "data: null\n\n", ""])(
    "garbage is a failure of the provider: %j",
    async (text) => {
      provider.answer(eventStream(text));
      const fault = await faultOf(generate({ ...openai, limits: { ...QUICK, maxRetries: 0 } }));
      expect(fault).toMatchObject({ type: "Unavailable" });
    },
  );

  it("an endless answer is cut at the application's limit, and the provider is left", async () => {
    provider.answer(async (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const chunk = openaiStream(["0123456789"]).split("\n\n")[1];
      for (let i = 0; i < 100_000 && !response.destroyed; i++) {
        if (!response.write(`${chunk}\n\n`)) await new Promise((later) => setTimeout(later, 1));
      }
    });
    const dropped = provider.dropped;
    const answer = await generate({ ...openai, limits: { maxOutputChars: 95 } });
    expect(answer).toMatchObject({ finishReason: "length", truncated: true });
    expect((answer.text as string).length).toBe(95);
    await expect.poll(() => provider.dropped).toBe(dropped + 1);
    provider.answer(eventStream(openaiStream(["ab\u{1f600}"])));
    expect(await generate({ ...openai, limits: { maxOutputChars: 3 } })).toMatchObject({ text: "ab", truncated: true });
  });

  it("an answer without end or line is stopped by its bytes", async () => {
    provider.answer(async (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.on("error", () => undefined);
      for (let i = 0; i < 10_000 && !response.destroyed; i++) {
        if (!response.write("x".repeat(1_000))) await new Promise((later) => setTimeout(later, 1));
      }
    });
    const fault = await faultOf(generate({ ...openai, limits: { maxResponseBytes: 100_000 } }));
    expect(fault.detail.rule).toBe("maxResponseBytes");
  });

  it("a redirect is not followed", async () => {
    provider.answer((response) => void response.writeHead(307, { location: "http://169.254.169.254/latest" }).end());
    const fault = await faultOf(generate(openai));
    expect(fault).toMatchObject({ type: "ToolExecution", detail: { extra: { status: 307 } } });
    expect(provider.heard).toHaveLength(1);
  });
});

describe("time", () => {
  it("time that is over ends the answer, also while a library waits", async () => {
    for (const settings of [openai, anthropic]) {
      const dropped = provider.dropped;
      provider.answer(
        (response) => void response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders(),
      );
      const fault = await faultOf(generate({ ...settings, limits: { timeoutMs: 150 } }));
      expect(fault).toMatchObject({ type: "ToolTimeout", detail: { extra: { timeout_ms: 150 } } });
      await expect.poll(() => provider.dropped).toBe(dropped + 1);
    }
  });

  it("a cancelled call leaves the provider at once", async () => {
    for (const settings of [openai, anthropic]) {
      const dropped = provider.dropped;
      const stop = new AbortController();
      provider.answer(() => stop.abort(new Error("the caller left")));
      await expect(generate(settings, {}, { signal: stop.signal })).rejects.toThrow("the caller left");
      await expect.poll(() => provider.dropped).toBe(dropped + 1);
    }
    expect(records.map(({ outcome }) => outcome)).toEqual(["cancelled", "cancelled"]);
  });
});

describe("what an application may not", () => {
  it("models that are not named cannot be asked", async () => {
    const fault = await faultOf(generate(openai, { model: "gpt-5-expensive" }));
    expect(fault).toMatchObject({ type: "PolicyDeny", detail: { rule: "llm.models", field: "model" } });
    provider.answer(eventStream(openaiStream(["x"])));
    await generate(openai, { model: "gpt-4o" });
    expect(provider.heard.map(({ body }) => body.model)).toEqual(["gpt-4o"]);
  });

  it("questions and answers have their limits", async () => {
    await expect(generate(openai, { maxTokens: 4097 })).rejects.toThrow("arguments");
    const long = { messages: [{ role: "user", content: "x".repeat(11) }] };
    expect((await faultOf(generate({ ...openai, limits: { maxInputChars: 10 } }, long))).detail.rule).toBe(
      "maxInputChars",
    );
    const silent = { messages: [{ role: "system", content: "x" }] };
    expect((await faultOf(generate(openai, silent))).type).toBe("ValidationError");
    expect(provider.heard).toHaveLength(0);
  });

  it("more answers at once than allowed are refused", async () => {
    const tools = toolsWith({ ...openai, limits: { maxConcurrency: 1 } });
    const ask = () => callTool(tools, "core.llm.generate", { messages: [{ role: "user", content: "x" }] });
    provider.answer(eventStream(openaiStream(["x"])));
    const [first, second] = await Promise.allSettled([ask(), ask()]);
    expect(first.status).toBe("fulfilled");
    expect(second).toMatchObject({ status: "rejected", reason: { type: "TooMany" } });
    await ask();
  });

  it("an address that the dialer does not allow is not reached [H8]", async () => {
    const strict = createOutbound(createDialer());
    const tools = toolsWith(openai, strict.fetch);
    const asked = callTool(tools, "core.llm.generate", { messages: [{ role: "user", content: "x" }] });
    expect(await faultOf(asked)).toMatchObject({ type: "PolicyDeny", detail: { rule: "outbound" } });
    expect(provider.heard).toHaveLength(0);
    await strict.close();
  });

  it("a secret that is not there is said to be missing, and nothing more", async () => {
    const tools = toolsWith(openai, outbound.fetch, {});
    const asked = callTool(tools, "core.llm.generate", { messages: [{ role: "user", content: "x" }] });
    const fault = await faultOf(asked);
    expect(fault.detail.rule).toBe("llm.apiKey");
    expect(provider.heard).toHaveLength(0);
  });

  it.each([
    [{ models: [] }, "llm.models"],
    [{ baseUrl: "ftp://x" }, "llm.baseUrl"],
    [{ baseUrl: "https://user:pass@x" }, "llm.baseUrl"],
    [{ provider: "other" }, "llm.provider"],
    [{ limits: { maxRetries: 1e9 } }, "llm.limits.maxRetries"],
    [{ extra: true }, "extra"],
  ])("settings that cannot be used are refused when the application is loaded: %j", (change, said) => {
    expect(() => toolsWith({ ...openai, ...change })).toThrow(CoreSettingsError);
    expect(() => toolsWith({ ...openai, ...change })).toThrow(said);
  });
});

describe("the environment of the gateway", () => {
  const traps: Record<string, string> = {
    OPENAI_API_KEY: "sk-of-the-operator",
    OPENAI_ORG_ID: "org-operator",
    OPENAI_PROJECT_ID: "proj-operator",
    OPENAI_BASE_URL: "http://127.0.0.1:9/v1",
    OPENAI_CUSTOM_HEADERS: "x-operator: yes\nAuthorization: Bearer of-operator",
    ANTHROPIC_API_KEY: "sk-of-the-operator",
    ANTHROPIC_AUTH_TOKEN: "sk-of-the-operator",
    ANTHROPIC_BASE_URL: "http://127.0.0.1:9",
    ANTHROPIC_CUSTOM_HEADERS: "x-operator: yes\nX-Api-Key: of-operator",
  };
  const before = { ...process.env };
  beforeEach(() => void Object.assign(process.env, traps));
  afterEach(() => {
    process.env = { ...before };
  });

  it("gives nothing to an application: neither keys, nor addresses, nor headers [H8]", async () => {
    for (const settings of [openai, anthropic, ollama]) {
      provider.answer(eventStream(settings === anthropic ? anthropicStream(["x"]) : openaiStream(["x"])));
      await generate(settings);
    }
    expect(provider.heard).toHaveLength(3);
    expect(JSON.stringify(provider.heard.map(({ headers }) => headers))).not.toMatch(/operator|stainless/i);
    expect(provider.heard[2]?.headers.authorization).toBeUndefined();
  });
});
