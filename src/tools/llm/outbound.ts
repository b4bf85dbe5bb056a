// What of a provider's library reaches the network. Whatever a library reads from the environment or thinks of adding,
// a request goes to the operator's address only, with the few headers named here, and its answer has an end.

import { Fault } from "../../mcp/index.js";
import type { LlmSettings } from "./settings.js";

/** What is about the format. A credential is never among them: a library would also take one from the environment. */
const HEADERS = ["accept", "content-type", "anthropic-version"];

export function guardedFetch(
  fetch: typeof globalThis.fetch,
  { baseUrl, limits }: LlmSettings,
  apiKey: string | undefined,
): typeof globalThis.fetch {
  const home = new URL(baseUrl);
  return async (input, init = {}) => {
    const url = new URL(input instanceof Request ? input.url : input);
    if (url.origin !== home.origin)
      throw new Fault("PolicyDeny", "the provider's address is another", { rule: "outbound" });
    const given = new Headers(init.headers);
    const headers = new Headers({ "user-agent": "portcullis" });
    for (const name of HEADERS) {
      const value = given.get(name);
      if (value !== null) headers.set(name, value);
    }
    if (apiKey !== undefined) headers.set("authorization", `Bearer ${apiKey}`);
    const { method, body, signal } = init;
    const settings: RequestInit = { headers, redirect: "manual" };
    if (method !== undefined) settings.method = method;
    if (body !== undefined) settings.body = body;
    if (signal !== undefined) settings.signal = signal;
    const response = await fetch(url, settings);
    return bounded(response, limits.maxResponseBytes);
  };
}

function bounded(response: Response, maxBytes: number): Response {
  if (response.body === null) return response;
  let size = 0;
  const counted = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        size += chunk.byteLength;
        if (size <= maxBytes) controller.enqueue(chunk);
        else controller.error(tooLong(maxBytes));
      },
    }),
  );
  return new Response(counted, { status: response.status, headers: new Headers([...response.headers]) });
}

function tooLong(maxBytes: number): Fault {
  return new Fault("ToolExecution", `the provider's answer has more than ${maxBytes} bytes`, {
    rule: "maxResponseBytes",
  });
}
