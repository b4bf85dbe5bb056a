// Follows the events of the gateway and continues after the last one when the connection ends. `EventSource` cannot send the
// page key, so the stream is read with `fetch`.

import type { AdminEvent } from "../../../src/admin/operations.js";
import { ROUTES } from "../../../src/admin/routes.js";
import { credentialHeaders } from "./client.js";

const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 15_000;
const MAX_BUFFERED_CHARS = 4 * 1024 * 1024;

export type ConnectionState = "connecting" | "live" | "waiting" | "ended";

interface Follower {
  onEvent(event: AdminEvent): void;
  onState(state: ConnectionState): void;
}

interface SseMessage {
  readonly event: string;
  readonly data: string;
  readonly id?: string | undefined;
}

/** Follows until the returned function is called or the session ends. */
export function follow({ onEvent, onState }: Follower): () => void {
  const stop = new AbortController();
  void (async () => {
    let last: string | undefined;
    let waitMs = FIRST_WAIT_MS;
    while (!stop.signal.aborted) {
      onState("connecting");
      try {
        const response = await fetch(ROUTES.followEvents.path, {
          headers: { ...credentialHeaders(), ...(last === undefined ? {} : { "last-event-id": last }) },
          cache: "no-store",
          signal: stop.signal,
        });
        if (response.status === 401 || response.status === 403) return onState("ended");
        if (response.ok && response.body) {
          onState("live");
          for await (const { event, data, id } of messagesOf(response.body)) {
            waitMs = FIRST_WAIT_MS;
            last = id ?? last;
            onEvent({ type: event, ...(JSON.parse(data) as object) } as AdminEvent);
          }
        }
      } catch {
        // The loop connects again.
      }
      if (stop.signal.aborted) return;
      onState("waiting");
      await new Promise((resolve) => setTimeout(resolve, waitMs * (0.75 + Math.random() / 2)));
      waitMs = Math.min(waitMs * 2, MAX_WAIT_MS);
    }
  })();
  return () => stop.abort();
}

async function* messagesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<SseMessage> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  const parser = new SseParser();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield* parser.push(part.value);
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** Parses the text of a stream of server-sent events as it arrives. */
export class SseParser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id: string | undefined;

  push(chunk: string): SseMessage[] {
    this.#rest += chunk;
    if (this.#rest.length > MAX_BUFFERED_CHARS) throw new Error("an event is too long");
    const lines = this.#rest.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line));
  }

  #line(line: string): SseMessage[] {
    if (line !== "") {
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#event = value;
      else if (field === "data") this.#data.push(value);
      else if (field === "id") this.#id = value;
      return [];
    }
    const message = { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id };
    const isEmpty = this.#data.length === 0;
    [this.#event, this.#data, this.#id] = ["", [], undefined];
    return isEmpty ? [] : [message];
  }
}
